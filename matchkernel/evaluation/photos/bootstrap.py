"""How far a mean over the pairs of scenes would vary with other pairs: bootstrap samples, drawn within each scene."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from matchkernel.errors import ArgumentError

SAMPLES, SEED = 2000, 0
INTERVAL = (2.5, 97.5)  # percentiles


@dataclass(frozen=True)
class Estimate:
    """A mean over scenes, its standard deviation over bootstrap samples, and its 95 % interval."""

    mean: float
    std: float
    low: float
    high: float

    def text(self, digits: int = 1, scale: float = 100.0) -> str:
        """`85.8 ± 3.2`."""
        return f"{scale * self.mean:.{digits}f} ± {scale * self.std:.{digits}f}"


def estimate(scores: Mapping[str, np.ndarray]) -> Estimate:
    """Mean over scenes of the mean over pairs; every scene counts once.

    Args:
        scores: for each scene one number per pair. The same scenes with the same numbers of pairs always get the same
            samples, so that scores and their differences between methods can be compared.
    """
    if not scores or any(not len(values) for values in scores.values()):
        raise ArgumentError("an estimate needs at least one pair in every scene")
    random = np.random.default_rng(SEED)
    totals = np.zeros(SAMPLES)
    for _, values in sorted(scores.items()):
        chosen = random.integers(0, len(values), (SAMPLES, len(values)))
        totals += np.asarray(values, np.float64)[chosen].mean(1)
    totals /= len(scores)
    low, high = np.percentile(totals, INTERVAL)
    mean = float(np.mean([np.mean(values) for values in scores.values()]))
    return Estimate(mean, float(totals.std()), float(low), float(high))


def paired_difference(ours: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> Estimate:
    """Estimate of the difference of two methods on the same pairs."""
    if {name: len(values) for name, values in ours.items()} != {name: len(values) for name, values in theirs.items()}:
        raise ArgumentError("a paired difference needs the same scenes and pairs for both methods")
    return estimate({name: np.asarray(ours[name]) - np.asarray(theirs[name]) for name in ours})
