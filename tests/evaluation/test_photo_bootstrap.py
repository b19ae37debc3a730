"""Means over scenes with their spread over other choices of the pairs."""

import numpy as np
import pytest

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.bootstrap import estimate, paired_difference


def test_every_scene_counts_once():
    found = estimate({"a": np.ones(10), "b": np.zeros(1000)})
    assert (found.mean, found.std, found.low, found.high) == (0.5, 0.0, 0.5, 0.5)


def test_the_spread_is_that_of_the_mean():
    """Standard error of a mean over scenes: sqrt(sum of variances / n) / number of scenes."""
    random = np.random.default_rng(1)
    scores = {"a": random.random(80), "b": random.random(45)}
    found = estimate(scores)
    expected = np.sqrt(sum(values.var() / len(values) for values in scores.values())) / 2
    assert found.std == pytest.approx(expected, rel=0.05)
    assert (found.mean - found.low) / found.std == pytest.approx(1.96, rel=0.1)
    assert (found.high - found.mean) / found.std == pytest.approx(1.96, rel=0.1)
    assert found == estimate(dict(reversed(scores.items())))


def test_a_paired_difference_is_narrower_than_two_separate_ones():
    random = np.random.default_rng(2)
    ours = {"a": random.random(100)}
    theirs = {"a": ours["a"] - 0.05}
    found = paired_difference(ours, theirs)
    assert (found.mean, found.std) == (pytest.approx(0.05), pytest.approx(0, abs=1e-12))
    assert found.text() == "5.0 ± 0.0"
    assert estimate(ours).std > 0.02


def test_what_cannot_be_compared_is_refused():
    with pytest.raises(ArgumentError, match="same scenes and pairs"):
        paired_difference({"a": np.ones(3)}, {"a": np.ones(4)})
    with pytest.raises(ArgumentError, match="same scenes and pairs"):
        paired_difference({"a": np.ones(3)}, {"b": np.ones(3)})
    for nothing in ({}, {"a": np.ones(0)}):
        with pytest.raises(ArgumentError, match="at least one pair"):
            estimate(nothing)
