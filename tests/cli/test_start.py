"""How the command starts and stops: nothing heavy is imported too early, and Ctrl-C or a lost directory is one line."""

import inspect
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

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


@pytest.mark.parametrize(
    ("arguments", "code"),
    [("--help", 0), ("--version", 0), ("info", 0), ("--hepl", 2), ("matsch", 2), ("train --hepl", 2)],
)
def test_what_needs_no_torch_does_not_import_it(arguments, code):
    done = subprocess.run(
        [sys.executable, "-c", MODULES_AFTER, *arguments.split()], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, "LOADED []")


def test_reading_weights_imports_nothing_heavy():
    """Arithmetic on the meta device imports torch.compile and sympy: three seconds, on which every verb would wait."""
    program = "import sys, matchkernel; matchkernel.load('light'); print('torch._dynamo' in sys.modules, *sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split()[0] == "False"
    assert "sympy" not in done.stdout.split()


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
        verb: " ".join(CliRunner().invoke(whole.app, ["evaluate", verb, "--help"]).stdout.replace("│", " ").split())
        for verb in ("phototourism", "hpatches")
    }
    assert f"(default: {QUERIES:,})" in shown["phototourism"]
    assert all(task in shown["hpatches"] for task in TASKS)


def start(*arguments, command=("-m", "matchkernel"), **options):
    command = [sys.executable, *command, *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.parametrize("module", ["typer", "numpy._core._multiarray_umath", "torch.types"])
def test_ctrl_c_while_modules_are_imported(module):
    """Python tells the name of each module it has imported; then the signal comes."""
    with start("describe", "absent.npy", "-o", "x.npy", command=("-X", "importtime", "-m", "matchkernel")) as process:
        while not (line := process.stderr.readline()).rstrip().endswith(f" {module}"):
            assert line, f"{module} was never imported"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
    assert process.returncode == 130, rest
    assert "Traceback" not in rest
    assert rest.splitlines()[-1] == "interrupted"


SLOW_THREADS = """
import time
from matchkernel import __main__ as entry
from matchkernel.cli import app, console
from matchkernel.storage.work import in_threads

def work(number):
    print("begun", flush=True)
    time.sleep(100)

app.app = lambda: console.run_script(lambda: list(in_threads(work, range(2), 2)))
entry.main()
"""


@pytest.mark.parametrize(
    ("number", "code", "message"), [(signal.SIGINT, 130, "interrupted\n"), (signal.SIGTERM, 143, "")]
)
def test_nobody_waits_for_threads_after_a_signal(number, code, message):
    with start(command=("-c", SLOW_THREADS), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            assert process.communicate(timeout=20)[1] == message
        finally:
            process.kill()  # no effect on one that has ended
    assert process.returncode == code


@pytest.mark.parametrize("command", [("-m", "matchkernel"), ("-c", "from matchkernel.__main__ import main; main()")])
def test_a_directory_that_was_deleted_is_one_line(command, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    with start("params", command=command, cwd=gone, preexec_fn=gone.rmdir) as process:
        assert process.stderr.read() == "error: the current directory no longer exists\n"
    assert process.returncode == 2
