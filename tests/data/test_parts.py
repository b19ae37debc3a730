"""Training, validation and test sets of one reconstruction."""

import numpy as np
import pytest
from helpers import refuses

from matchkernel.data.from_colmap import CutSettings, build_from_colmap, build_parts
from matchkernel.data.split import PARTS
from matchkernel.data.summary import verify
from matchkernel.errors import ArgumentError

SETTINGS = CutSettings(geometric=False, pairs=50, mosaics=False)


def parts_of(scene, target, **options):
    return build_parts(scene / "images", scene / "sparse", scene / "database.db", target, SETTINGS, **options)


def found_again(part, whole):
    """(K,) rows of the whole set: the patch of the same photo whose region is nearest to that of each patch."""
    rows = []
    for photo, frame in zip(part.columns["photo"], part.columns["frame"], strict=True):
        name = part.manifest["source"]["photos"][photo]
        there = np.flatnonzero(whole.columns["photo"] == whole.manifest["source"]["photos"].index(name))
        rows.append(there[np.linalg.norm(whole.columns["frame"][there] - frame, axis=1).argmin()])
    return np.array(rows)


@pytest.fixture(scope="module")
def parts(rendered, tmp_path_factory):
    counts = []
    sets = parts_of(rendered, tmp_path_factory.mktemp("parts") / "sets", counted=counts.append)
    return sets, counts[0]


def test_the_parts_are_disjoint_pieces_of_the_whole_set(parts, rendered, tmp_path):
    sets, counts = parts
    whole = build_from_colmap(
        rendered / "images", rendered / "sparse", rendered / "database.db", tmp_path / "whole", SETTINGS
    )
    seen, points = set(), set()
    assert list(sets) == list(PARTS)
    for name, part in sets.items():
        rows = found_again(part, whole)
        same = (part.patches == whole.patches[rows]).all((1, 2))
        moved = np.linalg.norm((part.columns["frame"] - whole.columns["frame"][rows])[:, :2], axis=1)
        if name == "training":
            assert same.all()
            assert not moved.any()
        else:  # regions of validation and test are moved, by less than their size
            assert same.mean() < 0.2
            assert (moved < np.linalg.norm(whole.columns["frame"][rows, 2:], axis=1)).all()
        theirs = set(whole.labels[rows].tolist())
        assert len(theirs) == len(np.unique(part.labels)) == counts[name].points
        assert len(part) == counts[name].patches > 0
        photos = {part.manifest["source"]["photos"][photo] for photo in part.columns["photo"]}
        assert not seen & photos
        assert not points & theirs
        seen |= photos
        points |= theirs
        assert any(key.startswith("m50hard") for key in part.pairs)
        left_out = part.manifest["selection"]["tracked keypoints left out"]
        assert part.manifest["selection"]["tracked keypoints"] == len(part) + sum(left_out.values())
        verify(part.folder)


def test_parts_that_are_there_are_kept_and_a_refusal_leaves_nothing(parts, rendered, tmp_path):
    sets, _ = parts
    before = {name: (part.folder / "manifest.json").stat().st_mtime_ns for name, part in sets.items()}
    parts_of(rendered, sets["test"].folder.parent)
    assert before == {name: (part.folder / "manifest.json").stat().st_mtime_ns for name, part in sets.items()}

    def refuse(counts):
        raise ArgumentError("too little")

    with refuses(ArgumentError):
        parts_of(rendered, tmp_path / "none", counted=refuse)
    assert not (tmp_path / "none").exists()
