"""Scripts of the experiments: a mistake gets one line, and nothing is written."""

import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))
sys.path.insert(0, str(Path(__file__).parents[2] / "experiments"))

import data
import homography_matching
import measure
import regions
import ship
import tolerance

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError


@pytest.mark.parametrize(
    ("script", "words", "told"),
    [
        (regions, ["none"], "none/liberty/frame.npy"),
        (tolerance, ["none", "sets"], "none/homography/oxford_graf/1.jpg: no such file"),
        (ship, ["none"], "none/dual-x6.safetensors: no such file"),
        (measure, ["ship", "dual-x6", "none.safetensors", "--sets", "sets"], "none.safetensors: no such file"),
        (measure, ["ship", "dual", "none.safetensors", "--sets", "sets"], "ship has no job dual"),
        (homography_matching, ["none", "--models", "sift"], "none/oxford_graf"),
        (homography_matching, ["none", "--models", "nothing"], "nothing: no such file"),
        (homography_matching, ["none", "--models", "sift", "--out", "no/such.json"], "no/such.json: no such folder"),
        (data, ["none", "sets", "--scenes", "fox", "--sequences", "--processes", "1"], "none/scenes/fox"),
    ],
)
def test_a_mistake_is_one_line(script, words, told, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["script", *words])
    committed = {path: path.read_bytes() for path in (ship.SHIPPED / "dual.safetensors", regions.REGIONS)}
    with pytest.raises(SystemExit) as end:
        run_script(script.main)
    error = capsys.readouterr().err
    assert end.value.code in (1, 2)
    assert told in error.splitlines()[-1]
    assert "Traceback" not in error
    assert not list(tmp_path.rglob("*.*"))
    assert all(path.read_bytes() == whole for path, whole in committed.items())


@given(st.binary() | st.recursive(st.none() | st.floats() | st.text(), st.lists).map(json.dumps).map(str.encode))
def test_thresholds_of_another_file(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("thresholds") / "run.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match="no JSON of a run on validation"):
        homography_matching.read_thresholds(path)


@pytest.mark.parametrize("value", ['"near"', "null", "[]", "{}"])
def test_thresholds_that_are_no_numbers(tmp_path, value):
    path = tmp_path / "run.json"
    path.write_text(f'{{"thresholds": {{"dual": {value}}}}}')
    with pytest.raises(FileError):
        homography_matching.read_thresholds(path)
    path.write_text('{"thresholds": {"dual": 0.8}}')
    assert homography_matching.read_thresholds(path) == {"dual": 0.8}
