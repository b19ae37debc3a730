"""The caption of a table: about the columns that it has, and no others."""

import pytest

from matchkernel.evaluation.notes import note_of


@pytest.mark.parametrize("task", ["verification", "matching", "retrieval"])
def test_only_the_tasks_shown_are_explained(task):
    note = note_of([{"kind": "hpatches", task: {}}])
    told = [other for other in ("verification", "matching", "retrieval") if other in note.lower()]
    assert told == [task]
    both = note_of([{"kind": "hpatches", task: {}}, {"kind": "hpatches", "matching": {}}])
    assert "Matching: mean over image pairs" in both


def test_only_the_kinds_of_scenes_shown_are_explained():
    poses, plane = ({"kind": "photos", "scenes": {"x": {"kind": kind}}} for kind in ("poses", "homographies"))
    assert "homographies" not in note_of([poses])
    assert "mAA" not in note_of([plane])
    assert "mAA" in note_of([plane, poses])


def test_without_pairs_there_is_no_fpr95():
    assert "FPR@95 with ties as errors" in note_of([{"kind": "phototourism", "pairs": {"m50": {}}}])
    assert "there is no FPR@95" in note_of([{"kind": "phototourism", "pairs": {}}])
    assert note_of([]) == ""
