"""Training, validation and test sets of one reconstruction."""

import numpy as np
import pytest

from matchkernel.data.from_colmap import CutSettings, build_from_colmap, build_parts
from matchkernel.data.split import PARTS
from matchkernel.data.summary import verify
from matchkernel.errors import ArgumentError

SETTINGS = CutSettings(geometric=False, pairs=50, mosaics=False)


def parts_of(scene, target, **options):
    return build_parts(scene / "images", scene / "sparse", scene / "database.db", target, SETTINGS, **options)


def patches_by_place(patch_set):
    """Bytes of each patch by the name of its photo and its region there."""
    names, photos = patch_set.manifest["source"]["photos"], patch_set.columns["photo"]
    return {
        (names[photo], *frame.tolist()): (patch.tobytes(), int(label))
        for photo, frame, patch, label in zip(
            photos, patch_set.columns["frame"], patch_set.patches, patch_set.labels, strict=True
        )
    }


@pytest.fixture(scope="module")
def parts(rendered, tmp_path_factory):
    told = []
    sets = parts_of(rendered, tmp_path_factory.mktemp("parts") / "sets", counted=told.append)
    return sets, told[0]


def test_the_parts_are_disjoint_pieces_of_the_whole_set(parts, rendered, tmp_path):
    sets, counts = parts
    whole = build_from_colmap(
        rendered / "images", rendered / "sparse", rendered / "database.db", tmp_path / "whole", SETTINGS
    )
    everything, seen, points = patches_by_place(whole), set(), set()
    assert list(sets) == list(PARTS)
    for name, part in sets.items():
        mine = patches_by_place(part)
        theirs = {everything[place][1] for place in mine}
        same = [everything[place][0] == patch for place, (patch, _) in mine.items()]
        if name == "training":
            assert all(same)
        else:  # regions of validation and test are moved
            assert np.mean(same) < 0.2
        assert len(theirs) == len(np.unique(part.labels)) == counts[name].points
        assert len(part) == counts[name].patches > 0
        assert not seen & {place[0] for place in mine}
        assert not points & theirs
        seen |= {place[0] for place in mine}
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

    with pytest.raises(ArgumentError, match="too little"):
        parts_of(rendered, tmp_path / "none", counted=refuse)
    assert not (tmp_path / "none").exists()
