"""The thinned ROC curve: every point is one of the whole curve, FPR@95 among them."""

import numpy as np
import pytest

from matchkernel.evaluation.metrics import fpr95, roc_curve
from matchkernel.evaluation.roc import thinned_roc


@pytest.mark.parametrize(
    ("matches", "others", "step"), [(1, 1, 1), (3, 7, 4), (5000, 5000, 0), (5000, 5000, 50), (400, 9, 3)]
)
def test_points_are_of_the_whole_curve(matches, others, step):
    random = np.random.default_rng(matches)
    distances = np.concatenate([random.normal(0, 1, matches), random.normal(2, 1, others)])
    distances = np.round(distances * step) if step else distances
    is_match = np.repeat([True, False], [matches, others])
    thin = thinned_roc(distances, is_match)
    assert len(thin["fpr"]) == len(thin["tpr"]) <= 200
    assert (thin["fpr"][0], thin["tpr"][0], thin["fpr"][-1], thin["tpr"][-1]) == (0, 0, 1, 1)
    whole = set(zip(*(side.tolist() for side in roc_curve(distances, is_match, ties="pessimistic")), strict=True))
    assert set(zip(thin["fpr"], thin["tpr"], strict=True)) <= whole
    for side in thin.values():
        assert side == sorted(side)
    reached = [x for x, y in zip(thin["fpr"], thin["tpr"], strict=True) if y >= 0.95]
    assert min(reached) == fpr95(distances, is_match)
    assert thinned_roc(distances, is_match) == thin


def test_perfect_and_constant():
    is_match = np.repeat([True, False], [50, 50])
    perfect = thinned_roc(np.where(is_match, 0.0, 1.0), is_match)
    assert set(perfect["fpr"][:-1]) == {0}
    assert perfect["tpr"][-2:] == [1, 1]
    constant = thinned_roc(np.ones(100), is_match)
    assert set(constant["fpr"][1:]) == {1}
