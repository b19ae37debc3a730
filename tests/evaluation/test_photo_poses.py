"""Relative poses from matches whose truth is known."""

import numpy as np
import pytest

from matchkernel.evaluation.photos.poses import pose_error, relative_pose, score_pose
from matchkernel.evaluation.photos.scenes import PoseCamera
from matchkernel.evaluation.photos.scores import accuracy
from matchkernel.geometry.cameras import project

SIZE = (640, 480)
PARAMETERS = {
    "PINHOLE": [600.0, 580.0, 322.0, 238.0],
    "SIMPLE_RADIAL": [610.0, 318.0, 243.0, -0.2],
    "OPENCV": [600.0, 590.0, 320.0, 240.0, -0.15, 0.03, 2e-3, -1e-3],
    "OPENCV_FISHEYE": [500.0, 505.0, 320.0, 240.0, 0.05, -0.01, 0.004, -0.002],
}


def turn(axis, degrees):
    i, j = [(1, 2), (2, 0), (0, 1)][axis]
    R, angle = np.eye(3), np.deg2rad(degrees)
    R[i, i] = R[j, j] = np.cos(angle)
    R[i, j], R[j, i] = -np.sin(angle), np.sin(angle)
    return R


def camera(model, R, centre, size=SIZE):
    return PoseCamera(R, -R @ np.asarray(centre, np.float64), model, np.array(PARAMETERS[model]), size)


def seen(cameras, sizes, count=300, noise=0.0):
    """Pixels of the same random points in two photos, the centre of the first pixel being (0, 0)."""
    random = np.random.default_rng(0)
    points = np.column_stack(
        [random.uniform(-2, 2, count), random.uniform(-1.5, 1.5, count), random.uniform(4, 9, count)]
    )
    places, good = [], np.ones(count, bool)
    for truth, size in zip(cameras, sizes, strict=True):
        pixels, visible = project(truth.model or "PINHOLE", truth.parameters, points @ truth.R.T + truth.t)
        pixels = pixels * np.array(size) / SIZE - 0.5 + random.normal(0, noise, pixels.shape)
        good &= visible
        places.append(pixels)
    return places[0][good], places[1][good]


def views(model_a="PINHOLE", model_b="PINHOLE", scale=1.0):
    a = camera(model_a, turn(1, 4) @ turn(2, 10), (0.1, 0.0, -0.2))
    b = camera(model_b, turn(1, -8) @ turn(0, 3), (0.9, -0.2, 0.3))
    size = (round(SIZE[0] * scale), round(SIZE[1] * scale))
    return (a, b), (SIZE, size)


@pytest.mark.parametrize("model", PARAMETERS)
def test_exact_matches_give_the_exact_pose(model):
    """Any half pixel or distortion that is forgotten would be seen: 0.5 px are 0.05 degrees."""
    truth = views("PINHOLE", model, scale=0.5)
    error = score_pose(*seen(*truth), *truth, 0.5)
    assert error.worst < 1e-3
    assert error.inliers > 250
    points_a, points_b = seen(*truth)
    assert score_pose(points_a + np.array([0.5, 0]), points_b, *truth, 0.5).worst > 0.01


def test_swapped_images_give_the_inverse_pose():
    (a, b), sizes = views("SIMPLE_RADIAL", "PINHOLE")
    points_a, points_b = seen((a, b), sizes)
    assert score_pose(points_b, points_a, (b, a), sizes, 0.5).worst < 1e-3
    R, t = relative_pose(a, b)
    back_R, back_t = relative_pose(b, a)
    assert back_R @ R == pytest.approx(np.eye(3))
    assert back_R @ t + back_t == pytest.approx(np.zeros(3), abs=1e-12)


def test_noise_and_wrong_matches():
    truth = views()
    points_a, points_b = seen(*truth, noise=0.3)
    random = np.random.default_rng(1)
    wrong = random.random(len(points_a)) < 0.4
    points_b[wrong] = random.uniform(0, 480, (int(wrong.sum()), 2))
    assert score_pose(points_a, points_b, *truth, 0.5).worst < 2
    errors = [score_pose(points_a, random.permutation(points_b), *truth, 0.5).worst for _ in range(5)]
    assert accuracy(errors, 10) < 0.1


def test_without_intrinsics_the_fundamental_matrix_is_used():
    """The focal length that is assumed, 1.2 times the longer side, is right here."""
    cameras, sizes = views()
    true = np.array([1.2 * 640, 1.2 * 640, 320.0, 240.0])
    known = [PoseCamera(camera.R, camera.t, "PINHOLE", true, SIZE) for camera in cameras]
    blind = [PoseCamera(camera.R, camera.t) for camera in cameras]
    points = seen(known, sizes)
    assert score_pose(*points, blind, sizes, 0.5).worst < 0.05
    assert score_pose(*points, (blind[0], known[1]), sizes, 0.5).worst < 0.05
    assert score_pose(points[0][:7], points[1][:7], blind, sizes, 0.5).worst == np.inf


def test_too_few_or_degenerate_matches_give_no_pose_or_a_wrong_one():
    truth = views()
    for count in (0, 1, 4):
        error = score_pose(*(points[:count] for points in seen(*truth)), *truth, 0.5)
        assert (error.worst, error.inliers) == (np.inf, 0)
    for points in (np.zeros((50, 2)), np.column_stack([np.arange(50.0), np.arange(50.0)]), np.full((50, 2), 1e5)):
        assert score_pose(points, points, *truth, 0.5).worst > 1


def test_pixels_without_a_ray_are_left_out():
    """With k = -1/3 nothing beyond 2/3 focal lengths is seen."""
    bent = PoseCamera(np.eye(3), np.zeros(3), "SIMPLE_RADIAL", np.array([300.0, 320.0, 240.0, -1 / 3]), SIZE)
    other = camera("PINHOLE", turn(1, -8), (0.9, -0.2, 0.3))
    truth = (bent, other), (SIZE, SIZE)
    points_a, points_b = seen(*truth)
    outside = np.array([[0.0, 0.0], [639.0, 479.0]])
    error = score_pose(np.concatenate([outside, points_a]), np.concatenate([outside, points_b]), *truth, 0.5)
    assert error.worst < 1e-3


def test_angles_by_hand():
    error = pose_error(turn(0, 5), np.array([1.0, 0, 0]), np.eye(3), np.array([0.0, 3.0, 0]))
    assert (error.rotation, error.direction) == (pytest.approx(5), pytest.approx(90))
    assert pose_error(turn(2, 180), -np.ones(3), np.eye(3), np.ones(3)).rotation == pytest.approx(180)
    assert pose_error(np.eye(3), -np.ones(3), np.eye(3), np.ones(3)).direction == pytest.approx(180)
    assert pose_error(turn(1, 1e-5), np.ones(3), np.eye(3), np.ones(3)).rotation == pytest.approx(1e-5)
    only_turned = pose_error(turn(0, 5), np.array([1.0, 0, 0]), np.eye(3), np.zeros(3))
    assert (only_turned.worst, only_turned.direction) == (pytest.approx(5), 0.0)


def test_accuracy_by_hand():
    """Errors of 0.5, 1, 4.5 and infinity: shares of 2/4 up to 4 degrees, 3/4 from 5."""
    errors = [0.5, 1.0, 4.5, np.inf]
    assert accuracy(errors, 5) == pytest.approx((4 * 0.5 + 0.75) / 5)
    assert accuracy(errors, 10) == pytest.approx((4 * 0.5 + 6 * 0.75) / 10)
    assert (accuracy([0.0], 10), accuracy([np.inf], 10), accuracy([], 10)) == (1.0, 0.0, 0.0)
