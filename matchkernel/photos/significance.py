"""How surprising is it that so many matches agree on a model? The a-contrario test of Moisan and Stival.

Suppose that the matches mean nothing: each point of image A is paired with a point of B by chance. Then a pair agrees
with a given model with a probability p. Of n matches, k agree with one of the models that can be fitted to them. The
expected number of models that have such support by chance, the number of false alarms, is at most

    (n - m) C(n, k) C(k, m) s p^(k - m),

where m matches determine s models. We report -log10 of it: a significance of 3 means that among a thousand pairs of
unrelated photos one such model is expected.
"""

from collections.abc import Callable
from math import lgamma, log, pi

import numpy as np

ErrorTable = Callable[[np.ndarray, np.ndarray], np.ndarray]  # (k, 2) points of A, (m, 2) of B -> (k, m) pixels

MOST_POINTS = (200, 1000)  # points of A and of B between which the probability of chance is counted


def significance(matches: int, agreeing: int, minimal: int, log10_chance: float, models: int = 1) -> float:
    """-log10 of the number of false alarms; at most 0 if nothing agrees beyond the minimal set.

    Args:
        matches: n.
        agreeing: k, without those that repeat another match.
        minimal: m, number of matches that determine a model.
        log10_chance: log10 of p.
        models: s, number of models that a minimal set has at most.
    """
    if agreeing <= minimal:
        return -log10_tests(max(matches, minimal), minimal, minimal, models)
    return -log10_tests(matches, agreeing, minimal, models) - (agreeing - minimal) * log10_chance


def log10_tests(matches: int, agreeing: int, minimal: int, models: int = 1) -> float:
    """log10 of the number of models and supports that are tried."""
    sizes = max(matches - minimal, 1) * models
    return log(sizes) / log(10) + _log10_binomial(matches, agreeing) + _log10_binomial(agreeing, minimal)


def chance_of_a_homography(pixels: float, area: float) -> float:
    """Probability that a point anywhere in image B is as near to its predicted place as `pixels`."""
    return min(1.0, pi * pixels**2 / area)


def chance_of_a_line(pixels: float, size: tuple[float, float]) -> float:
    """Probability that a point anywhere in image B is as near to a line across it.

    A Sampson distance of `pixels` allows sqrt 2 times as much in B if both images have the same scale.
    """
    width, height = size
    return min(1.0, 2 * 2**0.5 * pixels * float(np.hypot(width, height)) / (width * height))


def counted_chance(errors: ErrorTable, points_a: np.ndarray, points_b: np.ndarray, pixels: float) -> float:
    """Share of agreeing pairs if the points of A are paired with those of other matches.

    Keypoints are not spread evenly: where a model predicts the places where the points of B crowd (in the extreme, all
    places in one spot), much more agrees by chance than the area says.

    Args:
        errors: of all pairs of points, for the model.
        points_a: (k, 2) points of A of the matches that agree.
        points_b: (k, 2) their partners, which do not count.
        pixels: maximum error.
    """
    here, there = (spread_out(len(points_a), most) for most in MOST_POINTS)
    others = distance_table(points_b[here], points_b[there]) > 2 * pixels
    return float((errors(points_a[here], points_b[there])[others] <= pixels).mean()) if others.any() else 1.0


def distance_table(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(k, m) distances between (k, 2) and (m, 2) points."""
    return np.sqrt((a[:, :1] - b[:, 0]) ** 2 + (a[:, 1:] - b[:, 1]) ** 2)


def distinct(points_a: np.ndarray, points_b: np.ndarray, cell: float) -> np.ndarray:
    """(M,) bool: one match of each place of A and of B; keypoints of several scales or directions repeat a match.

    Args:
        points_a: (M, 2).
        points_b: (M, 2).
        cell: side of the squares that count as one place, in pixels.
    """
    kept = np.zeros(len(points_a), bool)
    seen_a: set[tuple[int, int]] = set()
    seen_b: set[tuple[int, int]] = set()
    cells = (map(tuple, np.floor(points / cell).astype(np.int64).tolist()) for points in (points_a, points_b))
    for number, (a, b) in enumerate(zip(*cells, strict=True)):
        if a not in seen_a and b not in seen_b:
            kept[number] = True
            seen_a.add(a)
            seen_b.add(b)
    return kept


def _log10_binomial(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def spread_out(count: int, most: int) -> np.ndarray:
    """Indices of at most so many of `count` things, evenly."""
    return np.arange(count) if count <= most else np.linspace(0, count - 1, most).astype(int)
