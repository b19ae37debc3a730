"""The refined fundamental matrix: nearer to the truth, from poor starts too, and finite in any case."""

import numpy as np

from matchkernel.geometry.frames import Frames
from matchkernel.geometry.fundamental import refined_fundamental
from matchkernel.geometry.two_view import essential_matrix, fit_magsac, sampson_distances

K = np.array([[800.0, 0, 400], [0, 800, 300], [0, 0, 1]])
R = np.array([[0.96, 0, -0.28], [0, 1, 0], [0.28, 0, 0.96]])
T = np.array([1.0, 0.1, 0.2])


def made(seed, wrong=0.4, count=300):
    """Points of two photos, with noise of 0.5 px and a share of wrong matches; where they are right; the true F."""
    random = np.random.default_rng(seed)
    X = random.uniform(-1.5, 1.5, (count, 3)) + np.array([0, 0, 5])
    ends = [x[:, :2] / x[:, 2:] for x in (X @ K.T, (X @ R.T + T) @ K.T)]
    a, b = (end + random.normal(0, 0.5, end.shape) for end in ends)
    right = random.random(count) >= wrong
    b[~right] = random.uniform((0, 0), (800, 600), (int((~right).sum()), 2))
    return a, b, right, np.linalg.inv(K).T @ essential_matrix(R, T) @ np.linalg.inv(K), ends


def test_it_is_as_near_to_the_truth_as_noise_allows():
    for seed in range(10):
        a, b, right, _, ends = made(seed)
        found = refined_fundamental(fit_magsac("fundamental", a, b, 20.0)[0], a, b, 0.5)
        assert sampson_distances(found, *(end[right] for end in ends)).mean() < 0.2
        assert abs(np.linalg.det(found)) < 1e-12


def test_a_poor_start_and_frames_without_area_are_no_problem():
    a, b, right, F, ends = made(7)
    squares = Frames.turned_squares(a, np.zeros(len(a)), np.zeros(len(a)))
    poor = F + 0.1 * np.abs(F).max() * np.random.default_rng(0).normal(size=(3, 3))
    found = refined_fundamental(poor, a, b, 0.5, ratios=1.0 - right, frames=(squares, squares))
    assert sampson_distances(found, ends[0][right], ends[1][right]).mean() < 0.3


def test_few_or_equal_matches_leave_a_finite_matrix():
    a, b, _, F, _ = made(3)
    for chosen in (slice(0, 8), np.zeros(20, int)):
        assert np.isfinite(refined_fundamental(F, a[chosen], b[chosen], 0.5)).all()
