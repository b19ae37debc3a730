"""Cameras and points of a COLMAP workspace, shown by `explore --results`."""

import base64
import json

import numpy as np
import pytest
from helpers import refuses
from made_results import photos, written

from matchkernel.cli.explore import _report
from matchkernel.errors import FileError
from matchkernel.storage.images import write_png


@pytest.fixture
def workspace(tmp_path):
    (tmp_path / "castle").mkdir()
    facts = {"images": 4, "registered": 3, "points": 1234, "error": 0.456, "reasons": {"<d>.jpg": "too blurred"}}
    (tmp_path / "castle" / "summary.json").write_text(json.dumps(facts))
    write_png(tmp_path / "castle" / "model.png", np.zeros((8, 12, 3), np.uint8))
    return tmp_path / "castle"


def test_a_workspace_is_shown_with_its_picture_alone_and_after_results(workspace, tmp_path):
    page = _report([workspace])
    assert "<title>Cameras and points</title>" in page
    assert "castle: 3 of 4 photos have a place, 1,234 points, 0.46 px off on average." in page
    assert base64.b64encode((workspace / "model.png").read_bytes()).decode() in page
    assert "&lt;d&gt;.jpg" in page
    assert "too blurred" in page
    results = written(tmp_path / "results", photos("sift"))
    both = _report([workspace, results])
    assert "castle: 3 of 4 photos" in both
    assert both.count("<section") > page.count("<section")


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"images": 1, "registered": 1, "points": "many", "error": 1}'])
def test_a_damaged_summary_is_one_line(workspace, text):
    (workspace / "summary.json").write_text(text)
    with refuses(FileError):
        _report([workspace])
