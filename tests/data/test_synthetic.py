"""Synthetic patch sets."""

import numpy as np
import pytest
from helpers import refuses, tree

from matchkernel.data.summary import verify
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError
from matchkernel.geometry.jitter import Jitter
from matchkernel.geometry.sift import patch_sift, to_rootsift

STILL = Jitter(0, 0, 0, 0)


def test_the_same_settings_give_the_same_bytes_and_more_points_the_same_first_textures(tmp_path):
    small, large, other = (
        SyntheticSettings(points=points, patches=3, size=16, seed=seed) for points, seed in ((50, 0), (70, 0), (50, 1))
    )
    sets = [build_synthetic(tmp_path / f"{k}", settings) for k, settings in enumerate((small, small, large, other))]
    assert tree(tmp_path / "0") == tree(tmp_path / "1")
    assert np.array_equal(sets[2].patches[:150], sets[0].patches)
    assert not np.array_equal(sets[3].patches, sets[0].patches)
    assert sets[2].patches.shape == (210, 16, 16)
    assert np.array_equal(sets[2].labels, np.repeat(np.arange(70), 3))
    verify(tmp_path / "2")


def test_without_changes_patches_of_a_point_are_equal(tmp_path):
    built = build_synthetic(tmp_path / "set", SyntheticSettings(points=20, patches=2, light=0, jitter=STILL))
    assert np.array_equal(built.patches[::2], built.patches[1::2])
    assert not np.array_equal(built.patches[0], built.patches[2])


def test_a_descriptor_finds_the_point_again(tmp_path):
    """The set is solvable but not trivial: RootSIFT ranks most second patches first, not all."""
    built = build_synthetic(tmp_path / "set", SyntheticSettings(points=100, patches=2))
    rows = to_rootsift(patch_sift(np.asarray(built.patches)))
    first = (rows[::2] @ rows[1::2].T).argmax(1) == np.arange(100)
    assert 0.5 < first.mean() < 1


@pytest.mark.parametrize("wrong", [{"points": 0}, {"patches": 0}, {"size": 4}])
def test_settings_that_are_refused(wrong, tmp_path):
    with refuses(ArgumentError):
        build_synthetic(tmp_path / "set", SyntheticSettings(**wrong))
