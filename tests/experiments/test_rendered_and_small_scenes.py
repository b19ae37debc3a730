"""Scenes of the experiments on photos: small copies are the same scenes, rendered photos fit their cameras."""

from dataclasses import replace

import cv2
import numpy as np
import pytest
import render_scene
from rendering import Plane, turn
from small_scenes import shrink

from matchkernel.data.synthetic import random_texture
from matchkernel.evaluation.photos.scenes import read_cameras, read_scene


def test_a_small_copy_is_the_same_scene(rendered, tmp_path):
    count, _ = shrink(rendered, tmp_path / "planes", 5, copy=True)
    whole, small = read_scene(rendered, most_pairs=5), read_scene(tmp_path / "planes", most_pairs=60)
    assert count == 5
    assert small.pairs == whole.pairs
    assert small.images.keys() == whole.images.keys()
    for name, camera in whole.cameras.items():
        other = small.cameras[name]
        assert (other.model, other.size) == (camera.model, camera.size)
        for key in ("R", "t", "parameters"):
            assert getattr(other, key) == pytest.approx(getattr(camera, key), abs=1e-12)


@pytest.fixture(scope="module")
def walls():
    random = np.random.default_rng(0)
    texture = np.dstack(3 * [random_texture(512, random)])
    hidden = Plane(np.array([-9.0, 0, -2]), np.array([18.0, 0, 0]), np.array([0, 0, 30.0]), texture)  # the ground
    wall = Plane(np.array([-6.0, -6, 12]), np.array([12.0, 0, 0]), np.array([0, 6.0, 0]), texture)
    return [hidden, wall]


def test_a_point_of_the_scene_is_seen_where_its_camera_says(walls):
    """What both photos show of the wall, found by OpenCV's features, is related by the true homography."""
    random = np.random.default_rng(1)
    views = [render_scene.camera(number, 9, 0.5, random) for number in (3, 5)]
    dim = render_scene.Light(np.array([0, -0.6, -0.8]), 0.6, np.ones(3), np.tile([1.0, 0, 9], (2, 1)))
    photos = [render_scene.photograph(walls, view, dim, random) for view in views]
    corners = walls[1].corner + np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) @ np.stack([walls[1].u, walls[1].v])
    ends = [view.project(corners)[0].astype(np.float32) for view in views]
    H = cv2.getPerspectiveTransform(*ends)
    sift = cv2.SIFT_create(500, enable_precise_upscale=True)
    found = [sift.detectAndCompute(cv2.cvtColor(photo, cv2.COLOR_RGB2GRAY), None) for photo in photos]
    matches = cv2.BFMatcher(crossCheck=True).match(found[0][1], found[1][1])
    a = np.array([found[0][0][match.queryIdx].pt for match in matches])
    b = np.array([found[1][0][match.trainIdx].pt for match in matches])
    errors = np.linalg.norm(cv2.perspectiveTransform(a[None], H)[0] - b, axis=1)
    assert (errors < 1.5).sum() > 40
    assert np.median(errors[errors < 1.5]) < 0.5
    assert photos[0].shape == (330, 440, 3)


def test_overlap_is_what_both_see(walls):
    view = render_scene.camera(4, 9, 0.2, np.random.default_rng(2))
    half = Plane(walls[1].corner, walls[1].u / 2, walls[1].v, walls[1].texture)
    both = render_scene.overlap(walls, view, view)
    assert 0.2 < both < 1
    assert 0 < render_scene.overlap([walls[0], half], view, view) < both
    back = turn(1, np.pi) @ view.R
    assert render_scene.overlap(walls, view, replace(view, R=back, t=-back @ view.centre)) == 0
    assert render_scene.overlap(walls[:1], view, view) == 0  # the ground does not count


def test_cameras_are_written_with_all_digits(walls, tmp_path, monkeypatch):
    monkeypatch.setattr(render_scene, "street", lambda _: iter(walls))
    pairs = render_scene.render_scene(tmp_path / "street", 0, views=3, scale=0.1)
    cameras = read_cameras(tmp_path / "street" / "cameras.txt")
    again = np.random.default_rng(0)
    for name, view in zip(sorted(cameras), (render_scene.camera(k, 3, 0.1, again) for k in range(3)), strict=True):
        assert cameras[name].t == pytest.approx(view.t, abs=1e-12)
        assert cameras[name].parameters[:2] == pytest.approx(view.focal)
    assert len(read_scene(tmp_path / "street").pairs) == pairs > 0
