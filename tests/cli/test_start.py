"""How the command starts: nothing heavy is imported too early, and mistakes in the command line are one line."""

import inspect
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import good, run

import matchkernel
from matchkernel.cli import app as whole
from matchkernel.evaluation.hpatches.evaluate import TASKS
from matchkernel.evaluation.patch_sets import QUERIES

HEAVY = ("torch", "cv2", "matplotlib", "kornia", "scipy", "h5py")
MODULES_AFTER = f"""
import atexit, sys
atexit.register(lambda: print("LOADED", [name for name in {HEAVY} if name in sys.modules], file=sys.stderr))
from matchkernel.__main__ import main
sys.argv = ["matchkernel", *sys.argv[1:]]
main()
"""


def process(*arguments, command=("-m", "matchkernel"), **options):
    """The result of a command in a process of its own."""
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "check": False, **options}
    return subprocess.run([sys.executable, *command, *arguments], **options)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--help", 0), ("--version", 0), ("info", 0), ("--hepl", 2), ("matsch", 2), ("train --hepl", 2)],
)
def test_what_needs_no_torch_does_not_import_it(arguments, code):
    done = process(*arguments.split(), command=("-c", MODULES_AFTER))
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "LOADED []")


def test_reading_weights_imports_nothing_heavy():
    """Arithmetic on the meta device imports torch.compile and sympy: three seconds, on which every verb would wait."""
    program = "import sys, matchkernel; matchkernel.load('light'); print('torch._dynamo' in sys.modules, *sys.modules)"
    loaded = process(command=("-c", program)).stdout.split()
    assert (loaded[0], "sympy" in loaded) == ("False", False)


def test_the_list_of_verbs_says_what_each_says_of_itself():
    for name, line in whole.VERBS.items():
        assert inspect.cleandoc(whole.load_verb(name).help).splitlines()[0] == line, name


def test_option_names_have_no_underscores_and_each_is_explained():
    """An option that is made from the field of a dataclass shows its name and its help."""

    def options(command):
        for parameter in command.params:
            yield command.name, parameter
        for inner in getattr(command, "commands", {}).values():
            yield from options(inner)

    for name in whole.VERBS:
        for verb, parameter in options(whole.load_verb(name)):
            assert parameter.help, (verb, parameter.name)
            assert not any("_" in flag for flag in parameter.opts if flag.startswith("-")), (verb, parameter.name)


def test_numbers_and_names_typed_in_help_are_the_true_ones():
    """Defaults that stand in help texts, because importing their modules would take seconds."""
    shown = {
        verb: " ".join(good("evaluate", verb, "--help").stdout.replace("│", " ").split())
        for verb in ("phototourism", "hpatches")
    }
    assert f"(default: {QUERIES:,})" in shown["phototourism"]
    assert all(task in shown["hpatches"] for task in TASKS)
    assert "strongest|largest" in good("extract", "--help").stdout


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("match a.png b.png --kyepoints 3", "--keypoints"),
        ("mtach", "'match'"),
        ("match a.png", "'B'"),
        ("match a.png b.png --keypoints many", "--keypoints"),
        ("match a.png b.png --geometry flat", "homography"),
        ("match a.png b.png --json=5", "--json"),
        ("match a.png b.png --keypoints", "(see matchkernel match --help)"),
        ("data frm-colmap", "'frm-colmap'"),
        ("plot maps", "--out"),
        ("plot kernels --out=", "--out="),
    ],
)
def test_a_mistake_in_the_command_line_is_one_line_that_names_the_help(line, hint, tmp_path):
    done = process(*line.split(), cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert done.stderr.startswith("error: ")
    assert hint in done.stderr
    assert done.stderr.endswith("--help)\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("data",)])
def test_without_a_verb_the_help_is_shown(words):
    result = run(*words)
    assert (result.stdout.count("Usage"), result.stderr) == (1, "")


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("words", [(), ("--help",), ("--version",), ("info",)])
def test_what_cannot_be_written_is_one_line(words, unbuffered):
    with Path("/dev/full").open("w") as full:
        done = process(*words, stdout=full, env={**os.environ, "PYTHONUNBUFFERED": unbuffered})
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)


def test_version():
    assert good("--version").stdout == f"matchkernel {matchkernel.__version__}\n"


def test_a_terminal_without_greek():
    done = process("info", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert "cartesian" in done.stdout


def test_debug_shows_the_traceback():
    done = process("--debug", "match", "absent.png", "absent.png")
    assert done.returncode == 2
    assert done.stderr.startswith("Traceback")


def test_a_directory_that_was_deleted_is_one_line(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    done = process("params", cwd=gone, preexec_fn=gone.rmdir)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
