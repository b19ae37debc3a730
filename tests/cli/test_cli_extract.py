"""matchkernel extract, as a user meets it."""

import json
import re
import signal
import subprocess
import sys
from io import StringIO
from pathlib import Path

import pytest
from commands import run
from made_images import save, texture, write_bad_images, write_odd_images
from rich.console import Console

from matchkernel.cli import console
from matchkernel.photos.features import load_features
from matchkernel.photos.files import image_names


@pytest.mark.parametrize("out", ["rows", "features.h5"])
def test_a_folder_of_photos_and_again(out, photos):
    arguments = ("extract", photos, "-o", out, "--model", "rootsift", "--keypoints", 30)
    result = run(*arguments)
    assert result.exit_code == 0, result.stderr
    assert "3 images done, 0 already there, 0 skipped; 90 keypoints (rootsift)" in result.stderr
    again = run(*arguments)
    assert "0 images done, 3 already there" in again.stderr
    if out == "rows":
        assert len(load_features("rows/1.png.npz")) == 30
    else:
        assert image_names(out) == ["0.png", "1.png", "2.png"]
    other = run(*arguments[:-1], 31)
    assert other.exit_code == 2
    assert other.stderr.count("\n") == 1


@pytest.mark.parametrize("masks", ["photos/masks", "photos"])
def test_masks_in_the_folder_are_no_photos(masks, photos):
    Path(masks).mkdir(exist_ok=True)
    save(texture(0, 90, 110), Path(masks) / "0.png.png")
    result = run("extract", photos, "-o", "rows", "--model", "sift", "--keypoints", 30, "--masks", masks)
    assert "3 images done, 0 already there, 0 skipped" in result.stderr
    assert sorted(path.name for path in Path("rows").rglob("*.npz")) == ["0.png.npz", "1.png.npz", "2.png.npz"]


def test_seconds_by_stage_and_json(photos):
    given = ("extract", photos, "-o", "rows", "--model", "sum", "--untrained", "--keypoints", 30, "--json")
    result = run(*given, "--profile")
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    seconds = found.pop("seconds")
    assert found.pop("images_per_second") == pytest.approx(3 / found.pop("elapsed"), rel=0.01)
    assert sorted(seconds) == ["cut", "describe", "detect", "open", "read", "write"]
    assert found == {
        "done": ["0.png", "1.png", "2.png"], "kept": [], "skipped": {}, "ignored": {}, "keypoints": 90,
        "descriptor": "sum, untrained", "engine": "onnx", "on": "local",
    }  # fmt: skip
    assert [line.split()[0] for line in result.stderr.splitlines()[-7:]] == [*seconds, "total"]
    again = json.loads(run(*given).stdout)
    assert (again["kept"], "seconds" in again) == (found["done"], False)


def test_faults_are_skipped_said_and_counted(photos, tmp_path):
    bad, odd = write_bad_images(photos), write_odd_images(photos)
    places = [photos, "nothing-here.png"]
    result = run("extract", *places, "-o", "rows", "--model", "sift", "--keypoints", 10)
    assert result.exit_code == 0
    assert f"{3 + len(odd)} images done, 0 already there, {len(bad)} skipped" in result.stderr
    assert result.stderr.count("skipped ") == len(bad)  # a line each; the count says "skipped;"
    assert {path.name for path in Path("rows").iterdir()} == {
        f"{name}.npz" for name in ["0.png", "1.png", "2.png", *odd]
    }


def test_nothing_to_read_is_an_error(photos, tmp_path):
    (tmp_path / "words.png").write_text("hello")
    for arguments in (
        ("words.png", "-o", "rows", "--model", "sift"),
        ("photos", "-o", "words.png", "--model", "sift"),
        ("photos", "-o", "rows", "--model", "mystery"),
        ("photos", "-o", "words.png/f.h5", "--model", "sift"),
    ):
        result = run("extract", *arguments)
        assert result.exit_code == 2
        assert "error: " in result.stderr.splitlines()[-1]
        assert not Path("rows").exists()


def test_the_bar_knows_how_many_images_there_are_from_the_beginning(photos, monkeypatch):
    terminal = Console(file=StringIO(), force_terminal=True, width=100)
    monkeypatch.setattr(console, "stderr", terminal)
    assert run("extract", "photos", "-o", "rows", "--model", "rootsift", "--keypoints", 30).exit_code == 0
    shown = re.findall(r"(\d+)/(\d+)", re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", terminal.file.getvalue()))
    assert shown[0] == ("0", "3")
    assert {total for _, total in shown} == {"3"}


@pytest.mark.slow
def test_a_killed_run_leaves_whole_files_and_goes_on(photos):
    for seed in range(3, 9):
        save(texture(seed, 110, 110), photos / f"{seed:02}.png")
    command = [sys.executable, "-m", "matchkernel", "extract", "photos", "-o", "rows", "--model", "sum", "--untrained"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(list(Path("rows").glob("[!.]*.npz"))) < 2:
        pass
    process.send_signal(signal.SIGKILL)
    process.wait()
    whole = list(Path("rows").glob("[!.]*.npz"))
    assert 2 <= len(whole) < 9
    for path in whole:
        assert len(load_features(path))
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    assert f"{9 - len(whole)} images done, {len(whole)} already there" in done.stderr


def test_options_of_the_detector_reach_the_features_and_are_recorded(photos):
    arguments = ("extract", photos, "-o", "rows", "--model", "rootsift", "--keypoints", 30)
    options = ("--choice", "spread", "--orientations", "one", "--pooling", "6,8,10", "--contrast", "0.01")
    assert run(*arguments, *options).exit_code == 0
    settings = load_features("rows/1.png.npz").settings
    recorded = {name: settings[name] for name in ("choice", "orientations", "pooling", "contrast", "affnet")}
    assert recorded == {
        "choice": "spread", "orientations": "one", "pooling": "6,8,10", "contrast": 0.01, "affnet": None,
    }  # fmt: skip
    other = run(*arguments, *options[2:])
    assert other.exit_code == 2
    assert "were made with choice 'spread', now '" in other.stderr


def test_mistakes_in_options_of_the_detector_are_one_line(photos):
    arguments = ("extract", photos, "-o", "rows", "--model", "rootsift")
    for option, value, words in (
        ("--pooling", "6;8", "pooling must be up to 16 numbers above 0"),
        ("--affnet", "nothing.pth", "nothing.pth: cannot be read"),
        ("--choice", "best", "'best' is not one of 'strongest', 'largest'"),
    ):
        result = run(*arguments, option, value)
        assert result.exit_code == 2
        assert words in " ".join(result.stderr.split()), result.stderr
        assert not Path("rows").exists()
    help_text = run("extract", "--help").stdout
    assert "strongest|largest" in help_text
    assert "all|one" in help_text
