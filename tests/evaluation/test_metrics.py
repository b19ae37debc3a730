import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.metrics import (
    average_precision,
    fpr95,
    fpr_at_recall,
    non_matches_before,
    precision_area,
    precision_recall_curve,
    roc_area,
    roc_curve,
)

ranked_lists = st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=2, max_size=9).filter(
    lambda pairs: 0 < sum(label for _, label in pairs) < len(pairs)
)


def arrays(pairs):
    return np.array([d for d, _ in pairs], np.float64), np.array([label for _, label in pairs])


def slow_ap(labels, positives, form):
    """From the definition, walking down a ranked list."""
    tp = fp = 0
    area, precision = 0.0, 1.0
    for is_match in labels:
        previous = precision
        tp, fp = tp + is_match, fp + (not is_match)
        precision = max(tp, 1e-10) / (tp + fp)
        if is_match:
            area += precision if form == "step" else (precision + previous) / 2
    return area / positives


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


def number(word):
    return float(word) if isinstance(word, str) else word


def test_metric_cases_of_the_official_code(golden):
    cases = json.loads((golden / "golden.json").read_text())["metric_cases"]
    assert len(cases) == 12
    for case in cases:
        distances, labels = -np.array([number(score) for score in case["scores"]]), np.array(case["labels"])
        precision, recall = precision_recall_curve(distances, labels, positives=case["numpos"])
        fpr, tpr = roc_curve(distances, labels, positives=case["numpos"])
        for name, curve in {"precision": precision, "recall": recall, "fpr": fpr, "tpr": tpr}.items():
            np.testing.assert_allclose(curve, case[name], rtol=0, atol=1e-12, err_msg=f"{case['name']} {name}")
        assert np.trapezoid(precision, recall) == pytest.approx(case["ap"], abs=1e-9)
        assert np.trapezoid(tpr, fpr) == pytest.approx(case["auc"], abs=1e-9)
        if case["p"]:
            assert average_precision(distances, labels, positives=case["numpos"]) == pytest.approx(case["ap"], abs=1e-9)
        if case["n"] and labels.any():
            assert roc_area(distances, labels, positives=case["numpos"]) == pytest.approx(case["auc"], abs=1e-9)


def test_fpr95_of_hardnet(golden):
    cases = json.loads((golden / "fpr95.json").read_text())["cases"]
    large = np.load(golden / "fpr95_arrays.npz")
    assert len(cases) == 12
    for case in cases:
        name = case["name"]
        distances = np.array(case["distances"]) if "distances" in case else large[f"{name}/distances"]
        labels = np.array(case["labels"]) if "labels" in case else large[f"{name}/labels"]
        assert fpr95(distances, labels) == pytest.approx(case["highest_over_tie_orders"], abs=1e-12), name
        lowest = fpr_at_recall(distances, labels, ties="optimistic")
        assert lowest == pytest.approx(case["lowest_over_tie_orders"], abs=1e-12), name
        stable = fpr_at_recall(distances, labels, ties="given")
        assert stable == pytest.approx(case["fpr95_stable_order"], abs=1e-12), name
        assert lowest <= case["fpr95"] <= fpr95(distances, labels)


@given(ranked_lists)
def test_every_metric_lies_between_the_extremes_of_all_orders(pairs):
    distances, labels = arrays(pairs)
    P = int(labels.sum())
    every = list(orders(distances, labels))
    for form in ("trapezoid", "step"):
        values = [slow_ap(order, P, form) for order in every]
        assert average_precision(distances, labels, form=form, ties="pessimistic") == pytest.approx(min(values))
        assert average_precision(distances, labels, form=form, ties="optimistic") == pytest.approx(max(values))
        stable = [bool(label) for label in labels[np.argsort(distances, kind="stable")]]
        assert average_precision(distances, labels, form=form) == pytest.approx(slow_ap(stable, P, form))
    for recall in (0.5, 0.95, 1.0):
        values = [slow_fpr(order, recall) for order in every]
        assert fpr_at_recall(distances, labels, recall) == pytest.approx(max(values))
        assert fpr_at_recall(distances, labels, recall, "optimistic") == pytest.approx(min(values))


@given(ranked_lists)
def test_roc_area_is_the_share_of_pairs_in_the_right_order(pairs):
    distances, labels = arrays(pairs)
    difference = distances[~labels][None, :] - distances[labels][:, None]
    assert roc_area(distances, labels, ties="pessimistic") == pytest.approx((difference > 0).mean())
    assert roc_area(distances, labels, ties="optimistic") == pytest.approx((difference >= 0).mean())
    for ties in ("given", "pessimistic", "optimistic"):
        fpr, tpr = roc_curve(distances, labels, ties=ties)
        assert np.trapezoid(tpr, fpr) == pytest.approx(roc_area(distances, labels, ties=ties))
        precision, recall = precision_recall_curve(distances, labels, ties=ties)
        assert np.trapezoid(precision, recall) == pytest.approx(average_precision(distances, labels, ties=ties))


@given(ranked_lists, st.permutations(range(9)))
def test_the_order_of_the_list_does_not_matter_but_to_given(pairs, order):
    distances, labels = arrays(pairs)
    order = [k for k in order if k < len(pairs)]
    for ties in ("pessimistic", "optimistic"):
        assert np.array_equal(
            non_matches_before(distances, labels, ties), non_matches_before(distances[order], labels[order], ties)
        )


def test_perfect_and_worst():
    distances, labels = np.arange(40.0), np.arange(40) < 20
    assert fpr95(distances, labels) == 0
    assert fpr95(-distances, labels) == 1
    assert roc_area(distances, labels) == 1
    assert roc_area(-distances, labels) == 0
    for form in ("trapezoid", "step"):
        assert average_precision(distances, labels, form=form) == 1


def test_chance():
    random = np.random.default_rng(0)
    distances, labels = random.random(200_000), np.arange(200_000) % 4 == 0
    # Of 50,000 matches and 150,000 non-matches: deviations of about 0.003 and less.
    assert fpr95(distances, labels) == pytest.approx(0.95, abs=0.01)
    assert roc_area(distances, labels) == pytest.approx(0.5, abs=0.01)
    for form in ("trapezoid", "step"):
        assert average_precision(distances, labels, form=form) == pytest.approx(0.25, abs=0.01)


def test_a_constant_descriptor_gains_nothing_from_ties():
    labels = np.arange(30) < 20
    assert fpr95(np.ones(30), labels) == 1
    assert roc_area(np.ones(30), labels, ties="pessimistic") == 0
    assert average_precision(np.ones(30), labels, ties="pessimistic") < average_precision(np.ones(30), labels) == 1


def test_five_times_as_many_negatives_first_by_the_closed_form():
    """The trapezoid AP of a constant descriptor in the imbalanced protocol tends to 1 - 5 ln 1.2."""
    labels = np.repeat([False, True], [1_000_000, 200_000])
    assert average_precision(np.zeros(1_200_000), labels) == pytest.approx(1 - 5 * np.log(1.2), abs=1e-5)


def test_what_was_never_retrieved_lowers_recall_only():
    distances, labels = np.array([1.0, 2.0, np.inf, np.inf]), np.array([1, 0, 1, 0])
    assert average_precision(distances, labels) == 0.5
    assert average_precision(distances[:2], labels[:2], positives=2) == 0.5
    assert roc_area(distances, labels) == 0.25


def test_precision_area_of_many_lists_at_once():
    before = np.array([[0, 0, 3], [1, 1, -1], [-1, -1, -1]])
    for form in ("trapezoid", "step"):
        values = precision_area(before, np.array([3, 2, 1]), form)
        lists = [[1, 1, 0, 0, 0, 1], [0, 1, 1], [0]]
        wanted = [slow_ap([bool(x) for x in row], P, form) for row, P in zip(lists, (3, 2, 1), strict=True)]
        assert values == pytest.approx(wanted)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
def test_any_kind_of_number(dtype):
    assert fpr95(np.array([3, 1, 2, 0], dtype), np.array([0, 1, 0, 1])) == 0


@pytest.mark.parametrize(
    ("distances", "labels", "words"),
    [
        ([], [], "no pairs"),
        ([1.0, np.nan, 2.0], [0, 1, 1], "row 1"),
        ([1.0, 2.0], [0, 2], "row 1 has 2"),
        ([1.0, 2.0], [1, 1], "all 2 pairs are matches"),
        ([1.0, 2.0], [0, 0], "all 2 pairs are non-matches"),
        ([1.0, 2.0], [0], "(2,) and (1,)"),
        ([[1.0, 2.0]], [[0, 1]], "(1, 2)"),
    ],
)
def test_what_cannot_be_ranked_is_refused(distances, labels, words):
    for metric in (fpr95, roc_area):
        with pytest.raises(ArgumentError) as caught:
            metric(np.array(distances, np.float64), np.array(labels, np.int64))
        assert words in str(caught.value)
        assert "\n" not in str(caught.value)


def test_other_mistakes_are_named():
    d, labels = np.array([1.0, 2.0]), np.array([0, 1])
    with pytest.raises(ArgumentError, match="needs a match"):
        average_precision(d, np.zeros(2))
    with pytest.raises(ArgumentError, match="fewer than the 1"):
        average_precision(d, labels, positives=0)
    with pytest.raises(ArgumentError, match="form must be"):
        average_precision(d, labels, form="area")
    with pytest.raises(ArgumentError, match="ties must be"):
        average_precision(d, labels, ties="lucky")
    with pytest.raises(ArgumentError, match="recall must be"):
        fpr_at_recall(d, labels, 0)
    with pytest.raises(ArgumentTypeError, match="numbers"):
        fpr95(np.array(["a", "b"]), labels)
