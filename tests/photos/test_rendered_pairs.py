"""Rendered photos with known geometry through the whole of match: keypoints, rows, filter, geometry."""

import numpy as np
import pytest
from rendered_pairs import SHAPES, rendered_pair

from matchkernel.photos.pipeline import match_images


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_the_geometry_of_the_scene_is_found_without_an_option(kind, seed):
    pair = rendered_pair(kind, seed)
    found = match_images(*pair.photos, "rootsift", keypoints=500)
    expected = "homography" if kind in ("flat", "turned") else "fundamental"
    assert found.geometry == expected, found.one_line()
    right = pair.errors(*found.points) < 3
    assert right.sum() > 60
    assert found.inliers[right].mean() > 0.97
    assert right[found.inliers].mean() > 0.95
    if expected == "fundamental":  # a plane explains only part of it
        plane = match_images(*pair.photos, "rootsift", keypoints=500, geometry="homography")
        assert plane.inliers.sum() < 0.9 * found.inliers.sum()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize(
    "filter_", ["ratio", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ratio:0.8", "none"))]
)
def test_a_pattern_that_repeats_is_not_taken_for_depth(kind, filter_):
    """Matches from one repetition to another lie on lines through one point, as if the scene had depth."""
    pair = rendered_pair(kind, 2, repeats=8)
    found = match_images(*pair.photos, "rootsift", filter=filter_)
    assert found.geometry == ("homography" if kind in ("flat", "turned") else "fundamental"), found.one_line()
    right = pair.errors(*found.points) < 3
    assert right.mean() < 0.97  # many are matched to another repetition
    assert found.inliers[right].mean() > 0.95


@pytest.mark.parametrize(("kind", "geometry"), [("flat", "homography"), ("facade", "fundamental")])
def test_a_pattern_that_repeats_with_the_default_model(kind, geometry):
    found = match_images(*rendered_pair(kind, 0, repeats=8).photos, keypoints=500)
    assert found.geometry == geometry, found.one_line()


def test_photos_of_different_scenes_are_told():
    photos = [rendered_pair(kind, seed).photos[0] for kind, seed in (("flat", 3), ("depth", 4), ("facade", 5))]
    for a, b, geometry in ((0, 1, "auto"), (1, 2, "homography"), (2, 0, "fundamental")):
        found = match_images(photos[a], photos[b], "rootsift", keypoints=300, filter="none", geometry=geometry)
        assert len(found.matches) > 30
        assert found.model is None
        assert not found.inliers.any()
        assert found.to_json()["geometry"] == (None if geometry == "auto" else geometry)
        assert np.isinf(found.verification.errors).all()
