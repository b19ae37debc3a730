"""A real scene, small enough to be part of the repository: three aerial photos and their COLMAP model."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import read_scene
from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.positives import find_geometric_positives
from matchkernel.geometry.cameras import unproject
from matchkernel.geometry.conventions import COLMAP_ORIGIN
from matchkernel.geometry.two_view import essential_matrix, sampson_distances
from matchkernel.photos.pipeline import match_images
from matchkernel.storage.images import read_gray


@pytest.fixture(scope="module")
def scene(photos_cc0):
    return read_scene(photos_cc0 / "images", photos_cc0 / "sparse", photos_cc0 / "database.db")


def test_patches_of_a_point_look_alike(photos_cc0, tmp_path):
    built = build_from_colmap(
        photos_cc0 / "images",
        photos_cc0 / "sparse",
        photos_cc0 / "database.db",
        tmp_path / "set",
        CutSettings(pairs=100),
    )
    values = built.patches.reshape(len(built), -1).astype(np.float64)
    values -= values.mean(1, keepdims=True)
    values /= np.linalg.norm(values, axis=1, keepdims=True)
    groups = built.groups().members()
    same = [values[a] @ values[b] for group in groups for a, b in combinations(group, 2)]
    other = [values[one[0]] @ values[two[0]] for one, two in pairwise(groups)]
    assert np.median(same) > 0.75
    assert np.median(other) < 0.4  # points next to each other in the list are often neighbours on the ground


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
