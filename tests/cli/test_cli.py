"""The command line as a user meets it: real processes for exit codes and streams, the runner for the rest."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import run
from PIL import Image

import matchkernel
from matchkernel.cli.console import stdout
from matchkernel.runtime.weights import read_card


@pytest.fixture
def patches(tmp_path):
    stack = np.random.default_rng(0).integers(0, 256, (20, 32, 32), dtype=np.uint8)
    stack[4] = 100
    np.save(tmp_path / "patches.npy", stack)
    return tmp_path / "patches.npy"


@pytest.fixture
def weights(tmp_path):
    path = tmp_path / "small.safetensors"
    matchkernel.save(matchkernel.build("dual", d=4, generator=torch.Generator().manual_seed(0)), path)
    return path


def test_params_prints_table_1_beside_the_papers():
    result = run("params")
    assert result.exit_code == 0
    for count in ("433,568", "695,712", "581,024", "1,105,312", "867,008", "1,391,296", "1,334,560", "4,480,288"):
        assert result.stdout.count(count) >= 2
    assert "10 of 10 rows agree with the paper" in result.stdout
    assert len(json.loads(run("params", "--json").stdout)) == 10


def test_info_lists_every_descriptor(monkeypatch):
    result = run("info")
    assert result.exit_code == 0
    rows = json.loads(run("info", "--json").stdout)
    assert [row["variant"] for row in rows] == list(matchkernel.VARIANTS)
    for row in rows:
        assert row["variant"] in result.stdout
        assert f"{row['parameters']:,}" in result.stdout
    assert sorted(name for row in rows for name in row["weights"]) == matchkernel.available()
    assert "39,060 x 512" in result.stdout
    monkeypatch.setenv("COLUMNS", "40")
    assert "…" not in run("info").stdout  # nothing is cut, however narrow the window


def test_info_tells_what_weights_say_of_themselves(weights):
    result = run("info", "dual")
    assert result.exit_code == 0
    said, words = read_card("dual"), " ".join(result.stdout.split())
    for heading in ("configuration", "training", "data", "scores", "licence", "file"):
        assert any(line.split()[:1] == [heading] for line in result.stdout.splitlines() if line[:1].isalpha())
    assert f"licence {said.licence}" in words  # wrapped, but whole
    assert f"trained_on {said.trained_on}" in words
    assert "parameters 1,391,296" in words
    assert "sampling epoch_pairs 0, pairs 4096, steps 6000" in words
    for name, value in said.metrics.items():
        assert f"{name} {value:g}" in words
    assert max(map(len, result.stdout.splitlines())) <= stdout.width
    facts = json.loads(run("info", weights, "--json").stdout)
    assert facts["config"]["variant"] == matchkernel.load(weights).config.variant
    assert run("info", "nothing").exit_code == 2


def test_info_tells_any_card(tmp_path):
    """Words nobody foresaw, markup and long ones among them, are told as they are."""
    deep = json.dumps({"loss": {"of": {"many": {"levels": 1}}}, "seed": 3, "data": {"train": ["x"], "validation": []}})
    card = {"training": deep, "mood": "good", "[b]": "[red]" + "w" * 150, "validation": '{"map": 0.5}'}
    card["parameters"] = "a few"
    matchkernel.save(matchkernel.build("sum", d=4), tmp_path / "odd.safetensors", card)
    result = run("info", tmp_path / "odd.safetensors")
    assert result.exit_code == 0, result.stderr
    words = " ".join(result.stdout.split())
    for expected in (
        "seed 3 loss of many ...",
        "train x",
        "mood good",
        "[b] [red]www",
        "validation_map 0.5",
        "a few",
    ):
        assert expected in words
    assert "licence" not in words
    assert words.count("w") >= 150  # folded, not cut
    assert max(map(len, result.stdout.splitlines())) <= stdout.width
    assert "levels" in run("info", tmp_path / "odd.safetensors", "--json").stdout


@pytest.mark.parametrize(
    "words",
    [
        ["describe", "patches.npy", "-o", "patches.npy", "--model", "small.safetensors"],
        ["describe", "patches.npy", "-o", "weights.npy", "--model", "weights.npy"],
        ["export", "weights.onnx", "-o", "weights.onnx"],
        ["plot", "maps", "strip.png", "-o", "strip.png", "--model", "small.safetensors"],
        ["plot", "training", "log.jsonl", "-o", "log.jsonl"],
        ["plot", "augmentation", "run.toml", "-o", "run.toml"],
    ],
)
def test_inputs_are_not_written_over(words, patches, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Image.fromarray(np.load(patches).reshape(-1, 32)).save("strip.png")
    for name in ("log.jsonl", "run.toml"):
        Path(name).write_text("")
    for name in ("weights.npy", "weights.onnx"):
        shutil.copy("small.safetensors", name)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    done = run(*words)
    assert done.exit_code == 2
    assert "is one of the inputs" in done.stderr or "must end in .png" in done.stderr
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_describe(suffix, patches, weights, tmp_path):
    out = tmp_path / f"rows{suffix}"
    result = run("describe", patches, "-o", out, "--model", weights, "--json")
    assert result.exit_code == 0, result.stderr
    rows = np.load(out) if suffix == ".npy" else np.loadtxt(out, delimiter=",", dtype=np.float32)
    assert np.abs(rows - matchkernel.describe(np.load(patches), matchkernel.load(weights))).max() < 1e-6
    summary = json.loads(result.stdout)
    assert (summary["patches"], summary["D"], summary["invalid"]) == (20, 128, [4])
    assert "1 without content" in result.stderr
    assert "small.safetensors" in summary["weights"]
    assert "--resize" not in result.stderr
    np.save(tmp_path / "large.npy", np.load(patches).repeat(2, 1).repeat(2, 2))
    told = run("describe", tmp_path / "large.npy", "-o", out, "--model", weights).stderr
    assert "was trained on 32 px: --resize describes them as such" in told


def test_describe_a_strip_with_untrained_weights(tmp_path):
    strip = np.random.default_rng(0).integers(0, 256, (3 * 65, 65), dtype=np.uint8)
    Image.fromarray(strip).save(tmp_path / "ref.png")
    result = run(
        "describe", tmp_path / "ref.png", "-o", tmp_path / "a.npy", "--model", "cartesian", "--untrained", "--resize"
    )
    assert result.exit_code == 0, result.stderr
    assert "random weights" in result.stderr
    assert np.load(tmp_path / "a.npy").shape == (3, 128)
    run("describe", tmp_path / "ref.png", "-o", tmp_path / "b.npy", "--model", "cartesian", "--untrained", "--resize")
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_plots(patches, weights, tmp_path):
    assert run("plot", "kernels", "-o", tmp_path / "new").exit_code == 0
    assert len(list((tmp_path / "new").iterdir())) == 3
    assert run("plot", "conventions", "-o", tmp_path / "c.png").exit_code == 0
    assert run("plot", "maps", patches, "-o", tmp_path / "m.png", "--model", weights).exit_code == 0
    assert (tmp_path / "m.png").stat().st_size > 10_000
    two = ("--model", weights, "--model", weights, "--at", "0.5,0.5")
    assert run("plot", "maps", patches, "-o", tmp_path / "n.png", *two).exit_code == 0
    assert (tmp_path / "n.png").stat().st_size > 5_000
    assert run("plot", "overview", patches, "-o", tmp_path / "o.png", "--patch", "3").exit_code == 0
    assert (tmp_path / "o.png").stat().st_size > 10_000


def test_an_overview_names_a_run_by_its_folder(patches, tmp_path, monkeypatch):
    figures, file = [], tmp_path / "mine" / "final.safetensors"
    file.parent.mkdir()
    matchkernel.save(matchkernel.build("polar", d=4, encoding_norm=True), file)
    monkeypatch.setattr("matchkernel.plots.overview.save_png", lambda figure, path: figures.append(figure))
    assert run("plot", "overview", patches, "-o", tmp_path / "o.png", "--model", file).exit_code == 0
    assert figures[0].get_suptitle().startswith("mine: ")
    assert "ℓ2,\nM, m,\nℓ2" in [text.get_text() for axes in figures[0].axes for text in axes.texts]


MISTAKES = [
    ("describe", "absent.npy", "-o", "x.npy", "--model", "small.safetensors"),
    ("describe", "patches.npy", "-o", "x.npy", "--model", "sum"),  # no trained weights of that name
    ("describe", "patches.npy", "-o", "x.txt", "--model", "small.safetensors"),
    ("describe", "patches.npy", "-o", "odd.npy/x.npy", "--model", "small.safetensors"),
    ("describe", "patches.npy", "-o", "x.npy", "--model", "patches.npy"),
    ("describe", "odd.npy", "-o", "x.npy", "--model", "small.safetensors"),
    ("describe", "patches.npy", "-o", "x.npy", "--model", "mystery", "--untrained"),
    ("describe", "patches.npy", "-o", "x.npy", "--model", "small.safetensors", "--device", "abacus"),
    ("plot", "kernels", "--kappa", "-1"),
    ("plot", "kernels", "-o", "patches.npy"),
    ("plot", "maps", "rgb.npy", "-o", "x.png", "--model", "small.safetensors"),
    ("plot", "maps", "patches.npy", "-o", "x.png", "--model", "small.safetensors", "--b", "4"),  # constant
    ("describe", "nothing.npy", "-o", "x.npy", "--model", "small.safetensors", "--resize"),
    ("plot", "maps", "patches.npy", "-o", "x.png", "--model", "small.safetensors", "--b", "99"),
    ("plot", "maps", "patches.npy", "-o", "x.png", "--model", "small.safetensors", "--at", "0.5"),
    ("plot", "maps", "patches.npy", "-o", "x.png", "--model", "small.safetensors", "--at", "2,0.5"),
    ("plot", "maps", "patches.npy", "-o", "x.jpg", "--model", "small.safetensors"),
    ("plot", "maps", "patches.npy", "-o", "x.png", "--model", "small.safetensors", "--match", "1"),
    ("plot", "overview", "patches.npy", "-o", "x.png", "--model", "fc"),
    ("plot", "overview", "patches.npy", "-o", "x.png", "--patch", "99"),
    ("plot", "scores", "patches.npy", "-o", "x.png"),
]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("match a.png b.png --kyepoints 3", "--keypoints"),
        ("mtach", "Did you mean 'match'? (see python -m matchkernel --help)"),
        ("match a.png", "Missing argument 'B'. (see python -m matchkernel match --help)"),
        ("match a.png b.png --keypoints many", "Invalid value for '--keypoints'"),
        ("match a.png b.png --geometry flat", "'flat' is not one of"),
        ("data frm-colmap", "No such command 'frm-colmap'"),
        ("plot maps", "Missing option '--out'"),
        ("match a.png b.png --keypoints", "'--keypoints' requires an argument. (see matchkernel match --help)"),
        ("train -o", "'-o' requires an argument. (see matchkernel train --help)"),
        ("match a.png b.png --json=5", "'--json' does not take a value"),
        ("plot kernels --out=", "--out= is empty"),
    ],
)
def test_a_mistake_in_the_command_line_is_one_line(words, told, tmp_path):
    command = [sys.executable, "-m", "matchkernel", *words.split()]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert told in result.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", ["", "data"])
def test_without_a_verb_the_help_is_shown(words):
    result = run(*words.split())
    assert result.stdout.count("Usage") == 1
    assert result.stderr == ""


def test_an_empty_path_is_not_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for words in (("plot", "kernels", "-o", ""), ("extract", "", "-o", "f.h5"), ("train", "x.toml", "-o", "")):
        result = run(*words)
        assert (result.exit_code, result.stdout) == (2, "")
        assert result.stderr.startswith(f"error: The argument after {words[words.index('') - 1]} is empty")
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [(), ("--help",)])
def test_help_without_room_for_it_is_one_line(words):
    with Path("/dev/full").open("w") as full, command(*words, stdout=full, stderr=subprocess.PIPE) as process:
        assert process.communicate()[1] == "error: [Errno 28] No space left on device\n"
    assert process.returncode == 1


def test_a_users_mistake_is_one_line_and_exit_2(patches, weights, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("odd.npy", np.zeros((2, 30, 30)))
    np.save("rgb.npy", np.zeros((2, 3, 32, 32)))
    np.save("nothing.npy", np.zeros((2, 0, 0)))
    before = sorted(tmp_path.iterdir())
    for arguments in MISTAKES:
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert result.stdout == "", arguments
        assert result.stderr.startswith("error: "), arguments
        assert result.stderr.count("\n") == 1, arguments
        assert [path for path in sorted(tmp_path.iterdir()) if path.name != "out"] == before, arguments


def command(*arguments, **options):
    return subprocess.Popen([sys.executable, "-m", "matchkernel", *map(str, arguments)], text=True, **options)


def test_version():
    assert run("--version").stdout == f"matchkernel {matchkernel.__version__}\n"


def test_a_terminal_without_greek(tmp_path):
    process = command("info", stdout=subprocess.PIPE, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert "cartesian" in process.communicate()[0]
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("number", "code", "message"),
    [pytest.param(signal.SIGTERM, 143, "", marks=pytest.mark.slow), (signal.SIGINT, 130, "interrupted\n")],
)
def test_stopped_work_leaves_nothing(number, code, message, tmp_path):
    np.lib.format.open_memmap(tmp_path / "many.npy", "w+", np.uint8, (200_000, 32, 32))  # sparse on disk
    arguments = ("describe", tmp_path / "many.npy", "-o", tmp_path / "rows.csv", "--model", "sum", "--untrained")
    with command(*arguments, stderr=subprocess.PIPE) as process:
        while process.poll() is None and len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.02)  # until the file being written appears beside its target
        process.send_signal(number)
        assert process.communicate() == (None, message)
    assert process.returncode == code
    assert [path.name for path in tmp_path.iterdir()] == ["many.npy"]


def test_debug_shows_the_traceback():
    result = run("--debug", "describe", "absent.npy", "-o", "x.npy", "--model", "fc", "--untrained")
    assert result.exit_code == 2
    assert result.stderr.startswith("Traceback")


def test_failed_work_is_exit_1(small_disk, patches):
    """A full disk, made real: a file system of one page."""
    mount = small_disk("4k")
    result = run("describe", patches, "-o", mount / "rows.npy", "--model", "sum", "--untrained")
    assert result.exit_code == 1
    assert "could not be written" in result.stderr
    assert not list(mount.iterdir())
