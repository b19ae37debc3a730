"""A real scene, small enough to be part of the repository: three aerial photos and their COLMAP model."""

import numpy as np
import pytest

from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import read_scene
from matchkernel.data.positives import find_geometric_positives
from matchkernel.geometry.cameras import unproject
from matchkernel.geometry.conventions import COLMAP_ORIGIN
from matchkernel.geometry.two_view import essential_matrix, sampson_distances
from matchkernel.photos.pipeline import match_images
from matchkernel.storage.images import read_gray


@pytest.fixture(scope="module")
def scene(photos_cc0):
    return read_scene(photos_cc0 / "images", photos_cc0 / "sparse", photos_cc0 / "database.db")


def test_geometry_finds_the_observations_that_were_left_out(scene):
    """Every fifth point has a keypoint in the last photo that its track does not name."""
    last = scene.photos[2]
    found = find_geometric_positives(scene)[2]
    free = np.flatnonzero(last.points == NO_POINT)
    assert len(free) > 50
    assert (found[found != NO_POINT] % 5 == 0).all()
    assert (found[free] != NO_POINT).sum() > 0.5 * len(free)


def test_matches_agree_with_the_model(scene):
    """Of the matches of two photos, most lie near the epipolar lines of COLMAP's poses."""
    one, two = scene.photos[1], scene.photos[2]
    matched = match_images(read_gray(one.path), read_gray(two.path), "dual", keypoints=1000)
    R = two.pose.R @ one.pose.R.T
    E = essential_matrix(R, two.pose.t - R @ one.pose.t)
    rays = [
        unproject(photo.camera.model, photo.camera.parameters, (points + COLMAP_ORIGIN) / photo.scale)
        for photo, points in zip((one, two), matched.points, strict=True)
    ]
    distances = sampson_distances(E, *rays) * one.pixels_per_unit
    assert len(distances) > 100
    assert np.mean(distances < 2) > 0.8  # pixels of the small photos
