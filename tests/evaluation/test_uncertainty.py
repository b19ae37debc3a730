"""How far scores vary: bootstrap samples of points and of image pairs, against plain metrics and known deviations."""

import numpy as np
import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.metrics import fpr95
from matchkernel.evaluation.uncertainty import Spread, estimate, fpr95_by_points, interval_by_points, paired_difference


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


def test_the_spread_is_that_of_the_mean():
    """Standard error of a mean over scenes: sqrt(sum of variances / n) / number of scenes."""
    random = np.random.default_rng(1)
    scores = {"a": random.random(80), "b": random.random(45)}
    singles = random.random(60)  # scenes of one pair each are drawn from together
    assert estimate({str(k): singles[k : k + 1] for k in range(60)}).std == pytest.approx(
        singles.std() / 60**0.5, rel=0.05
    )
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
    assert found.text(1, 100) == "5.0 ± 0.0"
    assert found.interval_text() == "+5.0 [+5.0, +5.0]"
    assert Spread((0.05,)).interval_text() == "+5.0"
    assert estimate(ours).std > 0.02


def test_the_interval_by_points_is_that_of_the_mean():
    random = np.random.default_rng(3)
    values = np.repeat(random.normal(0.1, 1, 400), 3)  # three equal values of each point are one observation
    low, high = interval_by_points(values, np.repeat(np.arange(400), 3), draws=1000)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / 400**0.5, rel=0.1)
    assert low < values.mean() < high


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (fpr95_by_points, (np.zeros(1), np.zeros(1, int), np.zeros(1), np.array([[0, 1]]), 50)),
        (paired_difference, ({"a": np.ones(3)}, {"a": np.ones(4)})),
        (paired_difference, ({"a": np.ones(3)}, {"b": np.ones(3)})),
        (estimate, ({},)),
        (estimate, ({"a": np.ones(0)},)),
    ],
)
def test_what_cannot_be_measured_is_refused(function, arguments):
    with refuses(ArgumentError):
        function(*arguments)
