"""Scripts of the experiments: a mistake gets one line, and nothing is written."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import choose
import colmap_scene
import data
import make_int8
import make_vocabularies
import pytest
import render_scene
import run
import seconds
import sequences
import ship
import small_scenes
import unrelated_photos
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_images import save, texture

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError

MISTAKES = [
    (data, ["none", "sets", "--regions"], "sets/liberty/frame.npy"),
    (data, ["none", "sets", "--tolerance"], "none/homography/oxford_graf/1.jpg: no such file"),
    (data, ["none", "sets", "--scenes", "fox", "--sequences", "--processes", "1"], "none/scenes/fox"),
    (ship, ["none"], "none: no such folder"),
    (data, ["none", "sets", "--geometry", "--scenes", "fox"], "none/scenes/fox"),
    (run, ["ship", "--sets", "sets", "--only", "dual"], "no such jobs: dual"),
    (unrelated_photos, ["none", "--cache", "cache"], "none"),
    (unrelated_photos, ["none", "--cache", "cache", "--filter", "wide"], "filter must be one of"),
    (unrelated_photos, ["none", "--cache", "cache", "--images", "1"], "--images must be 2 or more"),
    (unrelated_photos, ["none", "--cache", "cache", "--out", "none/told.json"], "none"),
    (sequences, ["none", "--models", "sift"], "none/oxford_graf"),
    (sequences, ["none", "--models", "nothing"], "nothing: no such file"),
    (choose, ["keypoints", "none", "--results", "none"], "none/scenes/liberty: no such folder"),
    (choose, ["frames", "none", "--results", "none"], "none/photos_keypoints.json: not measured yet"),
    (small_scenes, ["none", "small", "--scenes", "fox"], "none/scenes/fox: no such folder"),
    (seconds, ["none"], "none/scenes/sceaux/images"),
    (make_int8, ["none", "--calibrate", "sceaux"], "sceaux is for validation: calibrate on training scenes"),
    (make_int8, ["none", "--calibrate", "fox"], "none/fox"),
    (make_int8, ["none", "--calibrate", "fox", "--only", "best"], "best: no such file"),
    (make_vocabularies, ["sceaux", "fox"], "are kept for validation and test"),
    (render_scene, ["/"], "/: already exists"),
    (colmap_scene, ["none", "out", "dual,size=3"], "'size=3' is not a setting of the detector"),
    (colmap_scene, ["none", "out", "dual,contrast=low"], "'contrast=low': expected a value of type float"),
]

FOLDER = data.RESULTS.parent
COMMANDS = [path for path in sorted(FOLDER.glob("*/*.py")) if "ArgumentParser" in path.read_text(encoding="utf-8")]


@pytest.mark.slow
@pytest.mark.parametrize("path", COMMANDS, ids=lambda path: str(path.relative_to(FOLDER)))
def test_a_script_starts_by_itself(path, tmp_path):
    """Without the folders that the tests put on the path."""
    command = [sys.executable, path, "--help"]
    found = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith("usage: ")


def test_a_mistake_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    committed = {path: path.read_bytes() for path in (*ship.SHIPPED.iterdir(), data.RESULTS / "regions.json")}
    for script, words, told in MISTAKES:
        monkeypatch.setattr(sys, "argv", ["script", *words])
        with pytest.raises(SystemExit) as end:
            run_script(script.main)
        error = capsys.readouterr().err
        assert end.value.code in (1, 2), words
        assert told in error.splitlines()[-1], words
        assert "Traceback" not in error, words
        assert not list(tmp_path.rglob("*.*")), words
    assert all(path.read_bytes() == whole for path, whole in committed.items())


@given(st.binary() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps).map(str.encode))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_thresholds_of_another_file(tmp_path, content):
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match="not the JSON of a run on validation"):
        sequences.read_thresholds(path)


@pytest.mark.parametrize("value", ['"near"', "null", "[]", "{}"])
def test_thresholds_that_are_no_numbers(tmp_path, value):
    path = tmp_path / "run.json"
    path.write_text(f'{{"thresholds": {{"dual": {value}}}}}')
    with pytest.raises(FileError):
        sequences.read_thresholds(path)
    path.write_text('{"thresholds": {"dual": 0.8}}')
    assert sequences.read_thresholds(path) == {"dual": 0.8}


def test_related_and_unrelated_photos(tmp_path, monkeypatch, capsys):
    """Two real photos of one scene are told, and so are those of it and noise, which has another scene's name."""
    scene = Path(__file__).parents[1] / "photos_cc0"
    other = tmp_path / "noise"
    shutil.copytree(scene, other)
    for number, path in enumerate(sorted((other / "images").iterdir())):
        save(texture(number, 375, 500), path)
    options = ["--cache", str(tmp_path / "cache"), "--images", "3", "--keypoints", "300", "--processes", "1"]
    monkeypatch.setattr(sys, "argv", ["script", str(scene), str(other), *options, "--out", str(tmp_path / "told.json")])
    unrelated_photos.main()
    told = json.loads((tmp_path / "told.json").read_text())
    unrelated = [pair for pair in told["pairs"] if not pair["related"]]
    assert len(unrelated) == 9
    assert all(pair["geometry"] is None and not pair["inliers"] for pair in unrelated)
    real = [pair for pair in told["pairs"] if pair["related"] and not pair["a"].startswith("noise")]
    assert real
    assert all(pair["geometry"] and pair["inliers"] > 20 for pair in real)
    assert told["summary"][0]["unrelated told"] == "100.0"
    assert "| rootsift | ratio |" in capsys.readouterr().out


def test_settings_of_a_reconstruction():
    name, found = colmap_scene.settings_of("untrained:dual,choice=spread,contrast=0.01,filter=both:0.85,0.8")
    assert (name, found.detector.choice, found.detector.contrast) == ("untrained:dual", "spread", 0.01)
    assert found.detector.keypoints == 8192
    assert str(found.filter) == "both:0.85,0.8"
