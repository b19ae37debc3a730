"""How sure FPR@95 is: the points of the scene drawn again and again, with every pair of a point drawn along."""

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.metrics import RECALL

ROUNDING = 1e-9  # of sums of whole numbers


def fpr95_by_points(
    matches: np.ndarray,
    match_points: np.ndarray,
    others: np.ndarray,
    other_points: np.ndarray,
    draws: int,
    seed: int = 0,
) -> np.ndarray:
    """FPR@95 of the pairs as they are, then of `draws` bootstrap samples of points.

    A sample draws as many points as there are, with repetition; a pair counts as often as its point was drawn, a pair
    of two points as often as the product says. The same seed and points give the same samples, so that two descriptors
    are compared sample by sample. Ties count as errors.

    Args:
        matches: (P,) distances of matching pairs.
        match_points: (P,) their points, from 0.
        others: (N,) distances of non-matching pairs.
        other_points: (N, 2) their points.
        draws: samples.
        seed: of the samples.

    Returns:
        (1 + draws,).
    """
    if not len(matches) or not len(others):
        raise ArgumentError(f"both kinds of pairs are needed, got {len(matches)} matches and {len(others)} others")
    if np.isnan(matches).any() or np.isnan(others).any():
        raise ArgumentError("a distance is not a number")
    points = int(max(match_points.max(), other_points.max())) + 1
    order = np.argsort(matches, kind="stable")
    matches, match_points = matches[order], match_points[order]
    order = np.argsort(others, kind="stable")
    others, other_points = others[order], other_points[order]
    random = np.random.default_rng(seed)
    found = []
    for draw in range(1 + draws):
        times = np.ones(points) if draw == 0 else np.bincount(random.integers(points, size=points), minlength=points)
        times = times.astype(np.float64)
        reached = np.cumsum(times[match_points])
        weights = times[other_points[:, 0]] * times[other_points[:, 1]]
        total = weights.sum()
        if not reached[-1] or not total:
            raise ArgumentError(f"{points} points are too few to draw from")
        threshold = matches[np.searchsorted(reached, RECALL * reached[-1] - ROUNDING)]
        found.append(weights[: np.searchsorted(others, threshold, side="right")].sum() / total)
    return np.array(found)
