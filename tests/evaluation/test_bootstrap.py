"""FPR@95 with bootstrap samples of points, against the plain metric and against pairs written out as often as drawn."""

import numpy as np
import pytest

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.bootstrap import fpr95_by_points
from matchkernel.evaluation.metrics import fpr95


def made(seed, points=60, matches=80, others=500, apart=1.0):
    random = np.random.default_rng(seed)
    d = np.round(random.normal(0, 1, matches), 1), np.round(random.normal(apart, 1, others), 1)  # with ties
    pairs = random.integers(points, size=(others, 2))
    return d[0], random.integers(points, size=matches), d[1], pairs


@pytest.mark.parametrize("seed", range(5))
def test_the_first_is_the_metric(seed):
    matches, own, others, pairs = made(seed)
    wanted = fpr95(np.concatenate([matches, others]), np.arange(580) < 80)
    assert fpr95_by_points(matches, own, others, pairs, 0) == pytest.approx([wanted], abs=1e-15)


def test_samples_are_those_of_repeated_pairs():
    matches, own, others, pairs = made(7)
    found = fpr95_by_points(matches, own, others, pairs, 4, seed=3)
    random = np.random.default_rng(3)
    points = max(own.max(), pairs.max()) + 1
    for value in found[1:]:
        times = np.bincount(random.integers(points, size=points), minlength=points)
        again = np.repeat(matches, times[own]), np.repeat(others, times[pairs[:, 0]] * times[pairs[:, 1]])
        wanted = fpr95(np.concatenate(again), np.arange(sum(map(len, again))) < len(again[0]))
        assert value == pytest.approx(wanted, abs=1e-12)


def test_the_spread_is_that_of_fresh_scenes():
    """The deviation of the samples is near that over scenes drawn anew."""
    fresh = [fpr95_by_points(*made(seed, apart=2.0), 0)[0] for seed in range(60)]
    samples = fpr95_by_points(*made(100, apart=2.0), 300)[1:]
    assert 0.5 < samples.std() / np.std(fresh) < 2


def test_the_same_samples_for_two_descriptors():
    matches, own, others, pairs = made(1)
    a = fpr95_by_points(matches, own, others, pairs, 50)
    b = fpr95_by_points(matches - 0.5, own, others, pairs, 50)  # clearly better
    assert (b <= a).all()
    assert np.array_equal(a, fpr95_by_points(matches, own, others, pairs, 50))


def test_what_cannot_be_measured_is_refused():
    matches, own, others, pairs = made(0)
    with pytest.raises(ArgumentError, match="both kinds of pairs are needed"):
        fpr95_by_points(matches[:0], own[:0], others, pairs, 1)
    with pytest.raises(ArgumentError, match="not a number"):
        fpr95_by_points(np.where(own >= 0, np.nan, matches), own, others, pairs, 1)
    one = np.zeros(1, int)
    with pytest.raises(ArgumentError, match="2 points are too few"):
        fpr95_by_points(np.zeros(1), one, np.zeros(1), np.array([[0, 1]]), 50)
