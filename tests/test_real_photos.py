"""A real scene, small enough to be part of the repository: three aerial photos and their COLMAP model."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.model import NO_POINT, read_reconstruction
from matchkernel.colmap.scene import read_scene
from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.positives import find_geometric_positives
from matchkernel.geometry.cameras import project
from matchkernel.photos.pipeline import match_images
from matchkernel.storage.images import read_gray


@pytest.fixture(scope="module")
def scene(photos_cc0):
    return read_scene(photos_cc0 / "images", photos_cc0 / "sparse", photos_cc0 / "database.db")


def test_the_model_projects_onto_its_keypoints(photos_cc0):
    model = read_reconstruction(photos_cc0 / "sparse")
    keypoints = read_database_keypoints(photos_cc0 / "database.db")
    for image in model.images.values():
        camera, tracked = model.cameras[image.camera], image.points != NO_POINT
        X = np.array([model.points[number] for number in image.points[tracked]])
        places, visible = project(camera.model, camera.parameters, X @ image.R.T + image.t)
        assert visible.all()
        errors = np.linalg.norm(places - image.places[tracked], axis=1)
        assert np.median(errors) < 0.6  # pixels: what bundle adjustment leaves
        assert np.abs(keypoints[image.name][:, :2] - image.places).max() < 1e-3


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
    t = two.pose.t - R @ one.pose.t
    E = np.cross(np.eye(3), t) @ R  # essential matrix: the cross product with t, after R
    a, b = (rays(photo, points) for photo, points in zip((one, two), matched.points, strict=True))
    lines = a @ E.T
    distances = np.abs((lines * b).sum(1)) / np.linalg.norm(lines[:, :2], axis=1) * one.pixels_per_unit
    assert len(distances) > 100
    assert np.mean(distances < 2) > 0.8  # pixels of the small photos


def rays(photo, points):
    """(M, 3) directions through pixels of the file, undistorted (SIMPLE_RADIAL) by iteration."""
    f, cx, cy, k = photo.camera.parameters
    distorted = ((points + 0.5) / photo.scale - (cx, cy)) / f
    u = distorted
    for _ in range(10):
        u = distorted / (1 + k * (u**2).sum(1, keepdims=True))
    return np.column_stack([u, np.ones(len(u))])
