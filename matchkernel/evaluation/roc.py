"""A ROC curve thinned to a few points, for results and their pictures."""

import math

import numpy as np

from matchkernel.evaluation.metrics import non_matches_before

BY_RECALL, BY_RATE = 99, 98  # points at even steps of recall, and at even ratios of the false positive rate


def thinned_roc(distances: np.ndarray, is_match: np.ndarray) -> dict[str, list[float]]:
    """At most 200 points of the ROC curve, ties counted as errors; FPR@95 is one of them.

    Every point is one of the whole curve, just after a match was found. They are chosen at even steps of recall and at
    even ratios of the false positive rate, so that the curve is good on a plain axis and on a logarithmic one.

    Args:
        distances: (M,) of pairs, smaller for more alike.
        is_match: (M,) bool or 0 and 1; both must occur.

    Returns:
        `fpr` and `tpr`, rising from (0, 0) to (1, 1).
    """
    before = non_matches_before(distances, is_match, "pessimistic")
    P, N = len(before), len(distances) - len(before)
    by_recall = np.ceil(np.linspace(0, 1, BY_RECALL + 1)[1:] * P).astype(np.int64) - 1
    rates = np.floor(N ** np.linspace(0, 1, BY_RATE - 1))
    by_rate = np.searchsorted(before, rates, side="right") - 1  # the last match within so many non-matches
    at_95 = math.ceil(0.95 * P) - 1
    chosen = np.unique(np.concatenate([by_recall, by_rate, [at_95]]))
    chosen = chosen[chosen >= 0]
    ends = [] if before[-1] == N else [1.0]
    return {
        "fpr": [0.0, *(before[chosen] / N).tolist(), *ends],
        "tpr": [0.0, *((chosen + 1) / P).tolist(), *ends],
    }
