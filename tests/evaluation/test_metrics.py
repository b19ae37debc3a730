import itertools
import json

import numpy as np
import pytest
import slow_metrics
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st
from slow_metrics import roc_points

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.metrics import fpr95, non_matches_before, precision_area, thinned_roc

ranked_lists = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=9).filter(
    lambda pairs: 0 < sum(label for _, label in pairs) < len(pairs)
)


def arrays(pairs):
    return np.array([d for d, _ in pairs], np.float64), np.array([label for _, label in pairs])


def slow_ap(labels, form):
    """Of a ranked list."""
    return slow_metrics.average_precision(np.arange(len(labels)), labels, form)


def slow_fpr(labels, recall):
    total, seen, errors = sum(labels), 0, 0
    for is_match in labels:
        seen, errors = seen + is_match, errors + (not is_match)
        if is_match and seen >= recall * total:
            return errors / (len(labels) - total)
    raise AssertionError


def orders(distances, labels):
    """The labels in every order that sorting by distance allows."""
    groups = [np.flatnonzero(distances == d) for d in np.unique(distances)]
    for choice in itertools.product(*(set(itertools.permutations(labels[group])) for group in groups)):
        yield [bool(label) for group in choice for label in group]


def average_precision(distances, labels, form="trapezoid", ties="given", positives=None):
    """By the two functions that every task uses; what is infinitely far was not retrieved."""
    distances, labels = np.asarray(distances), np.asarray(labels).astype(bool)
    positives, is_found = positives or labels.sum(), np.isfinite(distances)
    return float(precision_area(non_matches_before(distances[is_found], labels[is_found], ties), positives, form))


def roc_area(distances, labels, ties="given", positives=None):
    labels, is_found = np.asarray(labels).astype(bool), np.isfinite(distances)
    before = non_matches_before(distances[is_found], labels[is_found], ties)
    retrieved = (~labels[is_found]).sum()
    return (retrieved - before).sum() / ((positives or labels.sum()) * (~labels).sum())


def test_metric_cases_of_the_official_code(golden):
    cases = json.loads((golden / "golden.json").read_text())["metric_cases"]
    assert len(cases) == 12
    for case in cases:
        distances, labels = -np.array(case["scores"], np.float64), np.array(case["labels"])
        if case["p"]:
            found = average_precision(distances, labels, positives=case["numpos"])
            assert found == pytest.approx(case["ap"], abs=1e-9), case["name"]
        if case["n"] and labels.any():
            found = roc_area(distances, labels, positives=case["numpos"])
            assert found == pytest.approx(case["auc"], abs=1e-9), case["name"]


def test_fpr95_of_hardnet(golden):
    cases = json.loads((golden / "fpr95.json").read_text())["cases"]
    large = np.load(golden / "fpr95_arrays.npz")
    assert len(cases) == 12
    for case in cases:
        name = case["name"]
        distances = np.array(case["distances"]) if "distances" in case else large[f"{name}/distances"]
        labels = np.array(case["labels"]) if "labels" in case else large[f"{name}/labels"]
        assert fpr95(distances, labels) == pytest.approx(case["highest_over_tie_orders"], abs=1e-12), name
        lowest = fpr95(distances, labels, "optimistic")
        assert lowest == pytest.approx(case["lowest_over_tie_orders"], abs=1e-12), name
        stable = fpr95(distances, labels, "given")
        assert stable == pytest.approx(case["fpr95_stable_order"], abs=1e-12), name
        assert lowest <= case["fpr95"] <= fpr95(distances, labels)


@given(ranked_lists)
def test_every_metric_lies_between_the_extremes_of_all_orders(pairs):
    distances, labels = arrays(pairs)
    every = list(orders(distances, labels))
    for form in ("trapezoid", "step"):
        values = [slow_ap(order, form) for order in every]
        assert average_precision(distances, labels, form=form, ties="pessimistic") == pytest.approx(min(values))
        assert average_precision(distances, labels, form=form, ties="optimistic") == pytest.approx(max(values))
        stable = [bool(label) for label in labels[np.argsort(distances, kind="stable")]]
        assert average_precision(distances, labels, form=form) == pytest.approx(slow_ap(stable, form))
    values = [slow_fpr(order, 0.95) for order in every]
    assert fpr95(distances, labels) == pytest.approx(max(values))
    assert fpr95(distances, labels, "optimistic") == pytest.approx(min(values))


def test_five_times_as_many_negatives_first_by_the_closed_form():
    """The trapezoid AP of a constant descriptor in the imbalanced protocol tends to 1 - 5 ln 1.2."""
    labels = np.repeat([False, True], [1_000_000, 200_000])
    assert average_precision(np.zeros(1_200_000), labels) == pytest.approx(1 - 5 * np.log(1.2), abs=1e-5)


def test_precision_area_of_many_lists_at_once():
    before = np.array([[0, 0, 3], [1, 1, -1], [-1, -1, -1]])
    lists = [[1, 1, 0, 0, 0, 1], [0, 1, 1], [0]]
    for form in ("trapezoid", "step"):
        assert precision_area(before, np.array([3, 2, 1]), form) == pytest.approx([slow_ap(row, form) for row in lists])


def test_any_kind_of_number():
    for dtype in (np.float32, np.float64, np.int64, np.uint8):
        assert fpr95(np.array([3, 1, 2, 0], dtype), np.array([0, 1, 0, 1])) == 0


def test_what_cannot_be_ranked_is_refused():
    for distances, labels in [
        ([], []), ([1.0, np.nan, 2.0], [0, 1, 1]), ([1.0, 2.0], [0, 2]), ([1.0, 2.0], [1, 1]), ([1.0, 2.0], [0, 0]),
        ([1.0, 2.0], [0]), ([[1.0, 2.0]], [[0, 1]]),
    ]:  # fmt: skip
        for metric in (fpr95, thinned_roc):
            with refuses(ArgumentError):
                metric(np.array(distances, np.float64), np.array(labels, np.int64))
    with refuses(ArgumentError):
        precision_area(np.array([0]), 1, form="area")
    with refuses(ArgumentError):
        non_matches_before(np.array([1.0, 2.0]), np.array([0, 1]), "lucky")
    with refuses(ArgumentTypeError):
        fpr95(np.array(["a", "b"]), np.array([0, 1]))


@pytest.mark.parametrize(
    ("matches", "others", "step"), [(1, 1, 1), (3, 7, 4), (5000, 5000, 0), (5000, 5000, 50), (400, 9, 3)]
)
def test_points_of_the_thinned_roc_are_of_the_whole_curve(matches, others, step):
    random = np.random.default_rng(matches)
    distances = np.concatenate([random.normal(0, 1, matches), random.normal(2, 1, others)])
    distances = np.round(distances * step) if step else distances
    is_match = np.repeat([True, False], [matches, others])
    thin = thinned_roc(distances, is_match)
    assert len(thin["fpr"]) == len(thin["tpr"]) <= 200
    assert (thin["fpr"][0], thin["tpr"][0], thin["fpr"][-1], thin["tpr"][-1]) == (0, 0, 1, 1)
    whole = set(zip(*(side.tolist() for side in roc_points(distances, is_match, "pessimistic")), strict=True))
    assert set(zip(thin["fpr"], thin["tpr"], strict=True)) <= whole
    for side in thin.values():
        assert side == sorted(side)
    reached = [x for x, y in zip(thin["fpr"], thin["tpr"], strict=True) if y >= 0.95]
    assert min(reached) == fpr95(distances, is_match)
