"""How far scores vary: over runs that differ in their seed, and over bootstrap samples of points or image pairs.

Samples are drawn with a fixed seed: the same data give the same samples, so that two methods are compared sample by
sample.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.metrics import RECALL

SAMPLES, SEED = 2000, 0
MIN_PAIRS = 10  # of photos: of two or three, all samples are alike, and chance looks certain
INTERVAL = (2.5, 97.5)  # percentiles
ROUNDING = 1e-9  # of sums of whole numbers


@dataclass(frozen=True)
class Spread:
    """A score, from one run or from several that differ only in seed or split, and how far it varies."""

    values: tuple[float, ...]  # of the runs
    estimated: float | None = None  # standard deviation of a single run over bootstrap samples
    low: float = math.nan  # of its 95 % interval over these samples
    high: float = math.nan

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ArgumentError(f"a score needs finite values, got {self.values}")

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return math.fsum(self.values) / len(self.values)

    @property
    def std(self) -> float | None:
        """Standard deviation over the runs, with n - 1, or the estimated one; None for a single run without one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else self.estimated

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """`1.43 ± 0.02`, or `1.43` for a single run; both numbers are multiplied by `scale`, such as 100."""
        spread = "" if self.std is None else f" ± {scale * self.std:.{digits}f}"
        return f"{scale * self.mean:.{digits}f}{spread}"

    def interval_text(self) -> str:
        """Of a difference of shares, in points: `+1.2 [-0.3, +2.7]`, or `+1.2` without an interval."""
        if math.isnan(self.low):
            return f"{100 * self.mean:+.1f}"
        digits = 1 + any(0 < abs(bound) < 0.0005 for bound in (self.low, self.high))  # such a bound is not 0
        mean, low, high = (f"{100 * value:+.{digits}f}" for value in (self.mean, self.low, self.high))
        return f"{mean} [{low}, {high}]"


def too_few(pairs: int) -> str:
    """Said instead of ±, an interval or a verdict; empty if there are enough pairs of photos."""
    return "" if pairs >= MIN_PAIRS else f"too few pairs to tell ({pairs}; {MIN_PAIRS} are needed)"


def estimate(scores: Mapping[str, np.ndarray]) -> Spread:
    """Mean over scenes of the mean over pairs; pairs are drawn within each scene, and every scene counts once.

    Scenes of a single pair, within which nothing can be drawn, are drawn from together.
    """
    if not scores or any(not len(values) for values in scores.values()):
        raise ArgumentError("an estimate needs at least one pair in every scene")
    random = np.random.default_rng(SEED)
    totals = np.zeros(SAMPLES)
    in_order = [values for _, values in sorted(scores.items())]
    parts = [(values, 1) for values in in_order if len(values) > 1]
    alone = [values[0] for values in in_order if len(values) == 1]
    if alone:
        parts.append((np.array(alone), len(alone)))
    for values, times in parts:
        chosen = random.integers(0, len(values), (SAMPLES, len(values)))
        totals += times * np.asarray(values, np.float64)[chosen].mean(1)
    totals /= len(scores)
    low, high = np.percentile(totals, INTERVAL)
    mean = float(np.mean([np.mean(values) for values in scores.values()]))
    return Spread((mean,), float(totals.std()), float(low), float(high))


def paired_difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Spread:
    """Estimate of the difference of two methods on the same pairs."""
    if {name: len(values) for name, values in ours.items()} != {name: len(values) for name, values in theirs.items()}:
        raise ArgumentError("a paired difference needs the same scenes and pairs for both methods")
    return estimate({name: np.asarray(ours[name]) - np.asarray(theirs[name]) for name in ours})


def interval_by_points(values: np.ndarray, points: np.ndarray, draws: int) -> tuple[float, float]:
    """95 % interval of the mean of (M,) values if other points had been drawn.

    All values of a point are drawn together.
    """
    group = np.unique(points, return_inverse=True)[1]
    sums, counts = np.bincount(group, values), np.bincount(group)
    random = np.random.default_rng(SEED)
    means = []
    for _ in range(draws):
        drawn = random.integers(len(sums), size=len(sums))
        means.append(sums[drawn].sum() / counts[drawn].sum())
    low, high = np.percentile(means, INTERVAL)
    return float(low), float(high)


def fpr95_by_points(
    matches: np.ndarray,
    match_points: np.ndarray,
    non_matches: np.ndarray,
    non_match_points: np.ndarray,
    draws: int,
    seed: int = SEED,
) -> np.ndarray:
    """FPR@95 of the pairs as they are, then of `draws` bootstrap samples of points. Ties count as errors.

    A sample draws as many points as there are, with repetition; a matching pair counts as often as its point was drawn,
    a pair of two points as often as the product of both.

    Args:
        matches: (P,) distances of matching pairs.
        match_points: (P,) their points, from 0.
        non_matches: (N,) distances of non-matching pairs.
        non_match_points: (N, 2) their points.
        draws: number of samples.
        seed: of the samples.

    Returns:
        (1 + draws,).
    """
    points = int(max(match_points.max(), non_match_points.max())) + 1
    order = np.argsort(matches, kind="stable")
    matches, match_points = matches[order], match_points[order]
    order = np.argsort(non_matches, kind="stable")
    non_matches, non_match_points = non_matches[order], non_match_points[order]
    random = np.random.default_rng(seed)
    found = []
    for draw in range(1 + draws):
        times = np.ones(points) if draw == 0 else np.bincount(random.integers(points, size=points), minlength=points)
        times = times.astype(np.float64)
        reached = np.cumsum(times[match_points])
        weights = times[non_match_points[:, 0]] * times[non_match_points[:, 1]]
        total = weights.sum()
        if not reached[-1] or not total:
            raise ArgumentError(f"{points} points are too few to draw from")
        threshold = matches[np.searchsorted(reached, RECALL * reached[-1] - ROUNDING)]
        found.append(weights[: np.searchsorted(non_matches, threshold, side="right")].sum() / total)
    return np.array(found)
