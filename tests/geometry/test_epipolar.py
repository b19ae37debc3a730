"""Relative poses from matches of synthetic cameras."""

import numpy as np
import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.poses import pose_error
from matchkernel.geometry.epipolar import (
    agreeing_frames,
    estimate_pose,
    losses,
    refine_pose,
    relative_errors,
)
from matchkernel.geometry.frames import Frames

NOISE = 1e-3  # 0.5 px at a focal length of 500 px
ESTIMATORS = ("refined", "magsac")


def rotation(axis, angle):
    axis = np.asarray(axis) / np.linalg.norm(axis)
    K = np.cross(np.eye(3), axis)
    return np.eye(3) - np.sin(angle) * K + (1 - np.cos(angle)) * K @ K


R = rotation((0.2, 1.0, 0.1), 0.2)
T = np.array([-0.9, 0.1, 0.3]) / np.linalg.norm([-0.9, 0.1, 0.3])


def views(count=200, noise=0.0, wrong=0, t=T, flat=False, seed=0):
    """Rays of random points in two cameras; the last `wrong` matches are of other points."""
    random = np.random.default_rng(seed)
    points = random.uniform([-2, -1.5, 4], [2, 1.5, 9], (count, 3))
    if flat:
        points[:, 2] = 6 + 0.5 * points[:, 0]
    moved = points @ R.T + t
    a, b = points[:, :2] / points[:, 2:], moved[:, :2] / moved[:, 2:]
    a, b = (rays + random.normal(0, noise, rays.shape) if noise else rays for rays in (a, b))
    if wrong:
        b[-wrong:] = random.permutation(b[-wrong:])
    return a, b


def homogeneous(*rays):
    return [np.column_stack([one, np.ones(len(one))]) for one in rays]


def degrees(pose):
    return pose_error(pose.R, pose.t, R, T).worst


def squares(points, half_widths, angles):
    return Frames.turned_squares(
        points, np.broadcast_to(half_widths, len(points)), np.broadcast_to(angles, len(points))
    )


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("count", [20, 300])
def test_perfect_matches_give_the_exact_pose(estimator, count):
    pose = estimate_pose(*views(count), NOISE, estimator=estimator)
    assert degrees(pose) < 1e-2
    assert pose.inliers.all()
    np.testing.assert_allclose(pose.R @ pose.R.T, np.eye(3), atol=1e-9)
    assert np.linalg.norm(pose.t) == pytest.approx(1)


def test_noise_and_wrong_matches_are_borne_better_than_by_magsac():
    found = {name: [] for name in ESTIMATORS}
    for seed in range(8):
        rays = views(150, NOISE / 2, wrong=75, seed=seed)
        for name in ESTIMATORS:
            found[name].append(degrees(estimate_pose(*rays, NOISE, estimator=name)))
    assert np.median(found["refined"]) < 1
    assert np.mean(found["refined"]) <= np.mean(found["magsac"])


def test_most_right_matches_are_inliers_and_most_wrong_ones_are_not():
    pose = estimate_pose(*views(200, NOISE / 2, wrong=80), NOISE)
    assert pose.inliers[:120].mean() > 0.95
    assert pose.inliers[120:].mean() < 0.2


def test_points_of_a_plane_give_their_pose():
    assert degrees(estimate_pose(*views(200, NOISE / 4, flat=True), NOISE)) < 2


@pytest.mark.parametrize("seed", range(5))
def test_a_refinement_never_raises_its_cost(seed):
    random = np.random.default_rng(seed)
    a, b = homogeneous(*views(100, NOISE, wrong=40, seed=seed))
    start = R @ rotation(random.normal(size=3), 0.03), T + random.normal(0, 0.1, 3)
    start = start[0], start[1] / np.linalg.norm(start[1])

    def cost(pose):
        lines_b, lines_a = a @ essential(*pose).T, b @ essential(*pose)
        squared = (b * lines_b).sum(1) ** 2 / ((lines_b[:, :2] ** 2).sum(1) + (lines_a[:, :2] ** 2).sum(1))
        return (squared / (squared + NOISE**2)).sum()

    assert cost(refine_pose(*start, a, b, NOISE)) <= cost(start)


def essential(R, t):
    return np.cross(np.eye(3), t).T @ R


def test_a_refinement_ends_at_the_truth_of_perfect_matches():
    a, b = homogeneous(*views(60))
    refined = refine_pose(R @ rotation((1, 2, 3), 0.02), T, a, b, 0.05)
    assert pose_error(*refined, R, T).worst < 1e-2


def test_points_behind_a_camera_count_as_wrong():
    a, b = homogeneous(*views(50))
    assert losses(R, T, a, b, NOISE).max() < 1e-9
    assert losses(R, -T, a, b, NOISE).min() == 1


def test_the_same_matches_give_the_same_pose():
    rays = views(100, NOISE, wrong=30)
    one, two = estimate_pose(*rays, NOISE), estimate_pose(*rays, NOISE)
    np.testing.assert_array_equal(one.R, two.R)
    np.testing.assert_array_equal(one.inliers, two.inliers)


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("count", range(7))
def test_few_matches_give_a_pose_or_none(estimator, count):
    pose = estimate_pose(*(rays[:count] for rays in views(50)), NOISE, estimator=estimator)
    assert pose is None or pose.inliers.shape == (count,)
    assert count >= 5 or pose is None


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize(
    "rays",
    [
        views(100, t=np.zeros(3)),
        (np.zeros((50, 2)), np.zeros((50, 2))),
        (np.full((50, 2), np.nan), np.zeros((50, 2))),
        (np.linspace(0, 1, 100).reshape(50, 2), np.linspace(0, 1, 100).reshape(50, 2)),
        (np.full((50, 2), 1e300), np.full((50, 2), -1e300)),
    ],
    ids=["a camera that only turns", "one point", "no finite match", "a line", "huge numbers"],
)
def test_degenerate_matches_raise_nothing(estimator, rays):
    with np.errstate(all="ignore"):
        pose = estimate_pose(*rays, NOISE, estimator=estimator)
    assert pose is None or (np.isfinite(pose.R).all() and np.isfinite(pose.t).all())


def test_matches_that_are_not_finite_are_no_inliers_and_change_nothing():
    a, b = views(100, NOISE / 4)
    frames, ratios = (squares(a, 1.0, 0.0), squares(b, 1.0, 0.0)), np.linspace(0, 1, 100)
    expected = estimate_pose(a[1:], b[1:], NOISE, ratios=ratios[1:], frames=(frames[0][1:], frames[1][1:]))
    a[0] = np.nan
    found = estimate_pose(a, b, NOISE, ratios=ratios, frames=frames)
    np.testing.assert_array_equal(found.R, expected.R)
    assert not found.inliers[0]


def test_frames_without_a_size_are_not_used():
    rays = views(100, NOISE / 4)
    flat = Frames(rays[0], np.zeros((100, 2, 2)))
    np.testing.assert_array_equal(estimate_pose(*rays, NOISE, frames=(flat, flat)).R, estimate_pose(*rays, NOISE).R)


def test_matches_with_the_common_change_of_scale_and_rotation_agree():
    """Also across the ends of the circle of angles."""
    random = np.random.default_rng(0)
    points, scales, angles = np.zeros((100, 2)), random.uniform(1, 8, 100), random.uniform(-np.pi, np.pi, 100)
    changes, turns = np.exp(random.normal(0.7, 0.05, 100)), random.normal(0, 0.05, 100)
    changes[80:], turns[80:] = changes[80:] * 4, turns[80:] + np.arange(20)
    agree = agreeing_frames(squares(points, scales, angles), squares(points, scales * changes, angles + turns))
    assert agree[:80].all()
    assert not agree[80:].any()


def test_a_match_of_large_regions_is_expected_to_be_less_accurate():
    points, sizes = np.zeros((5, 2)), np.array([1.0, 2.0, 4.0, 8.0, 16.0])
    errors = relative_errors(squares(points, sizes, 0.0), squares(points, sizes, 0.0))
    assert (np.diff(errors) > 0).all()
    assert np.median(errors) == 1


RAYS = views(10)


@pytest.mark.parametrize(
    ("rays", "options"),
    [
        ((RAYS[0], RAYS[1][:5]), {}),
        ((RAYS[0][:, 0], RAYS[1][:, 0]), {}),
        (RAYS, {"noise": 0.0}),
        (RAYS, {"noise": np.nan}),
        (RAYS, {"estimator": "best"}),
        (RAYS, {"ratios": np.zeros(9)}),
        (RAYS, {"frames": (squares(RAYS[0], 1.0, 0.0), squares(RAYS[1][:5], 1.0, 0.0))}),
    ],
    ids=["numbers of rays", "shape", "no noise", "noise NaN", "estimator", "ratios", "frames"],
)
def test_wrong_arguments_are_refused(rays, options):
    with refuses(ArgumentError):
        estimate_pose(*rays, **{"noise": NOISE, **options})
