"""ROC and precision-recall curves written out from their definitions, independent of the package."""

import numpy as np


def ranked_labels(distances, is_match, ties="given"):
    """Labels by distance; ties as they stand, or non-matches (pessimistic) or matches (optimistic) first."""
    is_match = np.asarray(is_match).astype(bool)
    second = {"given": np.arange(len(is_match)), "pessimistic": is_match, "optimistic": ~is_match}[ties]
    return is_match[np.lexsort((second, distances))]


def roc_points(distances, is_match, ties="given"):
    """(M + 1,) false positive rates and (M + 1,) true positive rates, from (0, 0)."""
    ranked = ranked_labels(distances, is_match, ties)
    fpr, tpr = (np.cumsum(part) / max(part.sum(), 1) for part in (~ranked, ranked))
    return np.concatenate([[0], fpr]), np.concatenate([[0], tpr])


def precision_recall_points(distances, is_match, ties="given", positives=None):
    """(M + 1,) precisions and (M + 1,) recalls, from precision 1 at recall 0."""
    tp = np.concatenate([[0], np.cumsum(ranked_labels(distances, is_match, ties))])
    precision = np.maximum(tp, 1e-10) / np.maximum(np.arange(len(tp)), 1e-10)
    return precision, tp / (positives or max(tp[-1], 1))


def roc_area(distances, is_match, ties="given"):
    fpr, tpr = roc_points(distances, is_match, ties)
    return np.trapezoid(tpr, fpr)


def average_precision(distances, is_match, form="trapezoid", ties="given", positives=None):
    precision, recall = precision_recall_points(distances, is_match, ties, positives)
    if form == "trapezoid":
        return np.trapezoid(precision, recall)
    return float((precision[1:] * np.diff(recall)).sum())
