"""Synthetic patch sets."""

import numpy as np
import pytest
from helpers import refuses

from matchkernel.data.summary import verify
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import ArgumentError
from matchkernel.geometry.jitter import Jitter
from matchkernel.geometry.sift import patch_sift, to_rootsift

STILL = Jitter(0, 0, 0, 0)


def test_a_set_has_the_size_of_its_settings_and_is_intact(tmp_path):
    built = build_synthetic(tmp_path / "set", SyntheticSettings(points=70, patches=3, size=32))
    assert built.patches.shape == (210, 32, 32)
    assert np.array_equal(built.labels, np.repeat(np.arange(70), 3))
    verify(tmp_path / "set")


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


def test_same_seed_same_bytes(tmp_path):
    settings = SyntheticSettings(points=60, patches=2, size=16)
    sets = [build_synthetic(tmp_path / name, settings) for name in ("a", "b")]
    assert np.array_equal(sets[0].patches, sets[1].patches)
    assert (tmp_path / "a" / "manifest.json").read_bytes() == (tmp_path / "b" / "manifest.json").read_bytes()
    other = build_synthetic(tmp_path / "c", SyntheticSettings(points=60, patches=2, size=16, seed=1))
    assert not np.array_equal(other.patches, sets[0].patches)


def test_more_points_do_not_change_the_first_textures(tmp_path):
    few = build_synthetic(tmp_path / "few", SyntheticSettings(points=50, patches=2, size=16))
    many = build_synthetic(tmp_path / "many", SyntheticSettings(points=60, patches=2, size=16))
    assert np.array_equal(many.patches[:100], few.patches)


@pytest.mark.parametrize("wrong", [{"points": 0}, {"patches": 0}, {"size": 4}])
def test_settings_that_are_refused(wrong, tmp_path):
    with refuses(ArgumentError):
        build_synthetic(tmp_path / "set", SyntheticSettings(**wrong))
