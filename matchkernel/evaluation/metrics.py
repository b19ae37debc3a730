"""Metrics of ranked lists, on arrays alone: FPR@95, ROC, average precision, with every tie rule named.

All of them follow from one thing: how many non-matches stand before each match when the list is sorted by distance.

Ties, matches and non-matches at the same distance, are put in order by one of three rules:

    given        as they stand in the arrays (a stable sort, as the official Python code)
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


def fpr95(distances: np.ndarray, is_match: np.ndarray) -> float:
    """False positive rate at 95 % recall by HardNet's rule, ties counted as errors.

    Args:
        distances: (M,) of pairs, smaller for more alike.
        is_match: (M,) bool or 0 and 1.
    """
    return fpr_at_recall(distances, is_match, 0.95)


def fpr_at_recall(
    distances: np.ndarray, is_match: np.ndarray, recall: float = 0.95, ties: Ties = "pessimistic"
) -> float:
    """Share of the non-matches that stand before the match with which `recall` is reached.

    That match is number ceil(recall * matches) in the order of distance. HardNet's own function leaves ties to an
    unstable sort, so that it returns some value between the optimistic and the pessimistic one.

    Args:
        distances: (M,) of pairs, smaller for more alike; infinite ones stand at the end.
        is_match: (M,) bool or 0 and 1; both must occur.
        recall: above 0, at most 1.
        ties: see the module.
    """
    if not 0 < recall <= 1:
        raise ArgumentError(f"recall must be above 0 and at most 1, got {recall}")
    distances, is_match = check_pairs(distances, is_match)
    _check_classes(is_match)
    before = _before(distances, is_match, ties)
    needed = math.ceil(recall * len(before))
    return float(before[needed - 1] / (len(distances) - len(before)))


def roc_curve(
    distances: np.ndarray, is_match: np.ndarray, *, ties: Ties = "given", positives: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """The ROC curve, one step an element; starts at (0, 0).

    Args:
        distances: (M,); infinite ones were never retrieved: they count in the totals and are no step of the curve.
        is_match: (M,) bool or 0 and 1.
        ties: see the module.
        positives: how many matches there are in all, if more than are listed.

    Returns:
        (R + 1,) false positive rates and (R + 1,) true positive rates, R elements retrieved.
    """
    distances, is_match = check_pairs(distances, is_match)
    tp, fp = _cumulative(distances, is_match, ties)
    P = _positives(is_match, positives)
    return fp / max(len(is_match) - int(is_match.sum()), SMALLEST), tp / max(P, SMALLEST)


def precision_recall_curve(
    distances: np.ndarray, is_match: np.ndarray, *, ties: Ties = "given", positives: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Precision and recall, one step an element; starts with precision 1 at recall 0.

    Args:
        distances: (M,); infinite ones were never retrieved (see roc_curve).
        is_match: (M,) bool or 0 and 1.
        ties: see the module.
        positives: how many matches there are in all, if more than are listed.

    Returns:
        (R + 1,) precisions and (R + 1,) recalls.
    """
    distances, is_match = check_pairs(distances, is_match)
    tp, fp = _cumulative(distances, is_match, ties)
    precision = np.maximum(tp, SMALLEST) / np.maximum(tp + fp, SMALLEST)
    return precision, tp / max(_positives(is_match, positives), SMALLEST)


def roc_area(
    distances: np.ndarray, is_match: np.ndarray, *, ties: Ties = "given", positives: int | None = None
) -> float:
    """Area under roc_curve by the trapezoid rule. A list of one class has none and is refused.

    Args:
        distances: (M,).
        is_match: (M,) bool or 0 and 1; both must occur.
        ties: see the module.
        positives: how many matches there are in all, if more than are listed.
    """
    distances, is_match = check_pairs(distances, is_match)
    _check_classes(is_match)
    P, N = _positives(is_match, positives), len(is_match) - int(is_match.sum())
    distances, is_match = _retrieved(distances, is_match)
    before = _before(distances, is_match, ties)
    return float((len(distances) - len(before) - before).sum(dtype=np.float64) / (P * N))


def average_precision(
    distances: np.ndarray,
    is_match: np.ndarray,
    *,
    form: Form = "trapezoid",
    ties: Ties = "given",
    positives: int | None = None,
) -> float:
    """Average precision of a ranked list.

    Args:
        distances: (M,); infinite ones were never retrieved (see roc_curve).
        is_match: (M,) bool or 0 and 1.
        form: "trapezoid" as the official Python code of HPatches, "step" as its MATLAB code (see precision_area).
        ties: see the module.
        positives: how many matches there are in all, if more than are listed.
    """
    distances, is_match = check_pairs(distances, is_match)
    P = _positives(is_match, positives)
    if P < 1:
        raise ArgumentError(f"average precision needs a match; none of the {len(is_match)} pairs is one")
    before = _before(*_retrieved(distances, is_match), ties)
    return float(precision_area(before, P, form))


def precision_area(before: np.ndarray, positives: int | np.ndarray, form: Form = "trapezoid") -> np.ndarray:
    """Average precision from the number of non-matches before each match.

    With i the match's number from 1 and f = before: step is the mean over all positives of i / (i + f); trapezoid
    takes the mean of that and the precision just before the match, (i - 1) / (i - 1 + f), 1 at the very start.

    Args:
        before: (..., H) of the H matches found, in the order of their distance; a negative number marks one not found.
        positives: (...) how many matches there are in all.
        form: "trapezoid" or "step".

    Returns:
        (...) float64.
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
    """(H,) int64: how many non-matches stand before each of the H matches, in the order of distance.

    Args:
        distances: (M,), none NaN.
        is_match: (M,) bool or 0 and 1.
        ties: see the module.
    """
    return _before(*check_pairs(distances, is_match), ties)


def check_pairs(distances: np.ndarray, is_match: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Refuse distances and labels that cannot be ranked: other shapes, none at all, NaN, labels other than 0 and 1.

    Returns:
        (M,) distances and (M,) bool.
    """
    distances, is_match = np.asarray(distances), np.asarray(is_match)
    if distances.dtype.kind not in "uif" or is_match.dtype.kind not in "buif":
        raise ArgumentTypeError(f"wanted numbers and labels, got {distances.dtype} and {is_match.dtype}")
    if distances.ndim != 1 or distances.shape != is_match.shape:
        raise ArgumentError(f"wanted a distance and a label a pair, got shapes {distances.shape} and {is_match.shape}")
    if not len(distances):
        raise ArgumentError("there are no pairs to rank")
    if np.isnan(distances).any():
        raise ArgumentError(f"the distance in row {int(np.isnan(distances).argmax())} is not a number")
    if is_match.dtype != bool:
        wrong = (is_match != 0) & (is_match != 1)
        if wrong.any():
            row = int(wrong.argmax())
            raise ArgumentError(f"a label is 0 or 1, row {row} has {is_match[row]}")
    return distances, is_match.astype(bool, copy=False)


def _check_classes(is_match: np.ndarray) -> None:
    if is_match.all() or not is_match.any():
        raise ArgumentError(f"all {len(is_match)} pairs are {'matches' if is_match[0] else 'non-matches'}; wanted both")


def _positives(is_match: np.ndarray, positives: int | None) -> int:
    listed = int(is_match.sum())
    if positives is not None and positives < listed:
        raise ArgumentError(f"positives cannot be fewer than the {listed} matches listed, got {positives}")
    return listed if positives is None else positives


def _retrieved(distances: np.ndarray, is_match: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    lost = np.isposinf(distances)
    return (distances[~lost], is_match[~lost]) if lost.any() else (distances, is_match)


def _before(distances: np.ndarray, is_match: np.ndarray, ties: Ties) -> np.ndarray:
    if ties not in TIES:
        raise ArgumentError(f"ties must be one of {', '.join(TIES)}, got {ties!r}")
    if ties == "given":
        ranked = is_match[np.argsort(distances, kind="stable")]
        return np.cumsum(~ranked, dtype=np.int64)[ranked]
    # Two plain sorts and a merge take a third of the time of one stable argsort.
    matches, others = np.sort(distances[is_match]), np.sort(distances[~is_match])
    return np.searchsorted(others, matches, side="right" if ties == "pessimistic" else "left").astype(np.int64)


def _cumulative(distances: np.ndarray, is_match: np.ndarray, ties: Ties) -> tuple[np.ndarray, np.ndarray]:
    """(R + 1,) true and false positives after 0, 1, ... retrieved elements."""
    distances, is_match = _retrieved(distances, is_match)
    before = _before(distances, is_match, ties)
    is_hit = np.zeros(len(distances) + 1, bool)
    is_hit[before + np.arange(1, len(before) + 1)] = True
    tp = np.cumsum(is_hit, dtype=np.float64)
    return tp, np.arange(len(is_hit)) - tp
