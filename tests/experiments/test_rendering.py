"""Rendered photos: rays, planes and cameras agree with each other."""

import numpy as np
import pytest
from rendering import Plane, View, hits, intersect, quaternion, turn

RAMP = np.tile(np.arange(101.0), (51, 1))  # gray = 100 u


def view(angle: float = 0.2) -> View:
    R = turn(1, angle) @ turn(2, 0.1)
    return View(R, -R @ np.array([0.3, -0.2, -1.0]), 320.0, 64, 48)


def test_a_ray_leads_to_the_point_that_is_projected_there():
    points = np.random.default_rng(0).uniform((-1, -1, 3), (1, 1, 5), (20, 3))
    camera = view()
    places, depths = camera.project(points)
    assert camera.centre + camera.rays(places) * depths[:, None] == pytest.approx(points)
    assert (camera.project(camera.centre - camera.rays(places))[1] < 0).all()  # behind it


def test_the_nearer_plane_hides_the_other():
    far = Plane(np.array([-5.0, -5, 9]), np.array([10.0, 0, 0]), np.array([0, 10.0, 0]), RAMP)
    near = Plane(np.array([0.0, -1, 3]), np.array([1.0, 0, 0]), np.array([0.3, 2.0, 0]), RAMP)  # not a rectangle
    rays = np.array([[0.0, 0, 1], [0.2, 0, 1], [0, 2.0, 1], [0, 0, -1]])
    found = hits([far, near], np.zeros(3), rays)
    assert found.planes.tolist() == [0, 1, -1, -1]
    assert found.depths[:2] == pytest.approx([9, 3])
    assert found.uv[1] == pytest.approx([0.6 - 0.15, 0.5])
    places, gray = intersect([far, near], np.zeros(3), rays)
    assert places[1] == pytest.approx([0.6, 0, 3])
    assert np.isnan(places[2:]).all()
    assert gray == pytest.approx([50, 45, 128, 128], abs=0.01)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("angle", [0.0, 0.7, -2.0, np.pi])
def test_a_quaternion_is_its_rotation(axis, angle):
    w, *xyz = quaternion(turn(axis, angle))
    expected = np.zeros(3)
    expected[axis] = np.sin(angle / 2)
    sign = 1 if w * np.cos(angle / 2) + xyz @ expected > 0 else -1  # q and -q are the same rotation
    assert sign * w == pytest.approx(np.cos(angle / 2))
    assert sign * np.array(xyz) == pytest.approx(expected)
