"""Metrics of ranked lists, on plain arrays: FPR@95, a thinned ROC curve, average precision, with every tie rule named.

All of them follow from the number of non-matches before each match when the list is sorted by distance.

Ties, matches and non-matches at the same distance, are ordered by one of three rules:

    given        in the order of the arrays (a stable sort, as in the official Python code)
    pessimistic  non-matches first: the lowest value any order could give
    optimistic   matches first: the highest
"""

import math
from typing import Literal

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError

Ties = Literal["given", "pessimistic", "optimistic"]
Form = Literal["trapezoid", "step"]

TIES: tuple[Ties, ...] = ("given", "pessimistic", "optimistic")
FORMS: tuple[Form, ...] = ("trapezoid", "step")
SMALLEST = 1e-10  # the official precision is max(TP, 1e-10) / max(TP + FP, 1e-10)
RECALL = 0.95
BY_RECALL, BY_RATE = 99, 98  # points of a thinned ROC: even steps of recall, even ratios of the false positive rate


def fpr95(distances: np.ndarray, is_match: np.ndarray, ties: Ties = "pessimistic") -> float:
    """False positive rate at 95 % recall by HardNet's rule: the share of the non-matches before match ceil(0.95 P).

    HardNet's own function leaves ties to an unstable sort, so it returns some value between the optimistic and the
    pessimistic one.

    Args:
        distances: (M,) of pairs, smaller for more similar ones; infinite ones come last.
        is_match: (M,) bool or 0 and 1; both must occur.
        ties: see the module; by default they count as errors.

    Example:
        >>> import numpy as np
        >>> from matchkernel.evaluation.metrics import fpr95
        >>> fpr95(np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0, 1, 0]))
        0.5
    """
    before = non_matches_before(distances, is_match, ties)
    _check_classes(before, distances)
    return float(before[_deciding(len(before))] / (len(distances) - len(before)))


def thinned_roc(distances: np.ndarray, is_match: np.ndarray) -> dict[str, list[float]]:
    """At most 200 points of the ROC curve of (M,) pairs, ties counted as errors; FPR@95 is one of them.

    Every point lies on the full curve, just after a match was found. Points are chosen at even steps of recall and at
    even ratios of the false positive rate, so that the curve looks right on a linear axis and on a logarithmic one.

    Returns:
        `fpr` and `tpr`, rising from (0, 0) to (1, 1).
    """
    before = non_matches_before(distances, is_match, "pessimistic")
    _check_classes(before, distances)
    P, N = len(before), len(distances) - len(before)
    by_recall = np.ceil(np.linspace(0, 1, BY_RECALL + 1)[1:] * P).astype(np.int64) - 1
    rates = np.floor(N ** np.linspace(0, 1, BY_RATE - 1))
    by_rate = np.searchsorted(before, rates, side="right") - 1  # the last match with at most that many non-matches
    chosen = np.unique(np.concatenate([by_recall, by_rate, [_deciding(P)]]))
    chosen = chosen[chosen >= 0]
    ends = [] if before[-1] == N else [1.0]
    return {
        "fpr": [0.0, *(before[chosen] / N).tolist(), *ends],
        "tpr": [0.0, *((chosen + 1) / P).tolist(), *ends],
    }


def precision_area(before: np.ndarray, positives: int | np.ndarray, form: Form = "trapezoid") -> np.ndarray:
    """Average precision from the number of non-matches before each match.

    With i the rank of a match among the matches, from 1, and f = before: step is the mean over all positives of
    i / (i + f); trapezoid averages that with the precision just before the match, (i - 1) / (i - 1 + f), 1 at the
    very start.

    Args:
        before: (..., H) of the H matches found, in the order of their distance; negative where one was not found.
        positives: (...) the total number of matches.
        form: "trapezoid" or "step".

    Returns:
        (...) float64.

    Example:
        >>> import numpy as np
        >>> from matchkernel.evaluation.metrics import non_matches_before, precision_area
        >>> before = non_matches_before(np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0, 1, 0]))
        >>> round(float(precision_area(before, 2, "step")), 3)
        0.833
    """
    if form not in FORMS:
        raise ArgumentError(f"form must be one of {', '.join(FORMS)}, got {form!r}")
    i = np.arange(1, before.shape[-1] + 1, dtype=np.float64)
    is_found = before >= 0
    f = np.where(is_found, before, 0).astype(np.float64)
    precision = i / (i + f)
    if form == "trapezoid":
        previous = np.maximum(i - 1, SMALLEST) / np.maximum(i - 1 + f, SMALLEST)
        precision = (precision + previous) / 2
    return np.asarray(np.where(is_found, precision, 0).sum(-1) / positives)


def non_matches_before(distances: np.ndarray, is_match: np.ndarray, ties: Ties = "given") -> np.ndarray:
    """(H,) int64: how many non-matches come before each of the H matches, in the order of distance.

    Args:
        distances: (M,), none NaN.
        is_match: (M,) bool or 0 and 1.
        ties: see the module.

    Example:
        >>> import numpy as np
        >>> from matchkernel.evaluation.metrics import non_matches_before
        >>> non_matches_before(np.array([0.1, 0.2, 0.3, 0.4]), np.array([1, 0, 1, 0])).tolist()
        [0, 1]
    """
    distances, is_match = check_pairs(distances, is_match)
    if ties not in TIES:
        raise ArgumentError(f"ties must be one of {', '.join(TIES)}, got {ties!r}")
    if ties == "given":
        ranked = is_match[np.argsort(distances, kind="stable")]
        return np.cumsum(~ranked, dtype=np.int64)[ranked]
    # Two plain sorts and a merge take a third of the time of one stable argsort.
    matches, others = np.sort(distances[is_match]), np.sort(distances[~is_match])
    return np.searchsorted(others, matches, side="right" if ties == "pessimistic" else "left").astype(np.int64)


def check_pairs(distances: np.ndarray, is_match: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M,) distances and (M,) bool; those that cannot be ranked are refused.

    They have other shapes, none at all, NaN, or labels other than 0 and 1.
    """
    distances, is_match = np.asarray(distances), np.asarray(is_match)
    if distances.dtype.kind not in "uif" or is_match.dtype.kind not in "buif":
        raise ArgumentTypeError(f"expected numbers and labels, got {distances.dtype} and {is_match.dtype}")
    if distances.ndim != 1 or distances.shape != is_match.shape:
        raise ArgumentError(
            f"expected one distance and one label per pair, got shapes {distances.shape} and {is_match.shape}"
        )
    if not len(distances):
        raise ArgumentError("there are no pairs to rank")
    if np.isnan(distances).any():
        raise ArgumentError(f"the distance in row {int(np.isnan(distances).argmax())} is not a number")
    if is_match.dtype != bool:
        wrong = (is_match != 0) & (is_match != 1)
        if wrong.any():
            row = int(wrong.argmax())
            raise ArgumentError(f"a label must be 0 or 1, row {row} has {is_match[row]}")
    return distances, is_match.astype(bool, copy=False)


def _deciding(matches: int) -> int:
    """Index of the match with which 95 % recall is reached."""
    return math.ceil(RECALL * matches) - 1


def _check_classes(before: np.ndarray, distances: np.ndarray) -> None:
    if len(before) in (0, len(distances)):
        kind = "matches" if len(before) else "non-matches"
        raise ArgumentError(f"all {len(distances)} pairs are {kind}; both are needed")
