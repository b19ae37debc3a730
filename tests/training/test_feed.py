"""Which pairs a batch holds: two patches of a point, every point equally likely, determined by seed and step."""

import itertools
from collections import Counter

import numpy as np
from helpers import refuses
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chi2

from matchkernel.errors import ArgumentError
from matchkernel.training.feed import CLASSES, NETWORK, PHOTOMETRIC, WARPS, MixedSampler, PairSampler, generator_at

SIZES = [2, 3, 1, 7, 2, 40, 5, 1, 2, 11, 4, 2, 3, 90, 6]  # patches of each point; two points have one only
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.permutation(np.repeat(np.arange(len(SIZES)) * 1000 - 5000, SIZES))
USABLE = {label * 1000 - 5000 for label, size in enumerate(SIZES) if size > 1}


def is_likely(counts, expected):
    """Chi-squared test that a correct sampler fails once in a million times; the draws are fixed, so the tests are."""
    statistic = float(((np.asarray(counts) - expected) ** 2 / expected).sum())
    return statistic < chi2.ppf(1 - 1e-6, len(counts) - 1)


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), max_size=30),
    st.integers(2, 6),
    st.integers(0, 2**63 - 1),
    st.integers(1, 10**9),
)
@example(LABELS.tolist(), 13, 0, 1)
@example(LABELS.tolist(), 8, 0, 2)
def test_pairs_are_two_patches_of_a_point_no_point_occurs_twice_and_too_few_points_are_refused(
    labels, pairs, seed, step
):
    labels = np.array(labels, np.int64)
    usable = {label for label, size in Counter(labels.tolist()).items() if size > 1}
    if len(usable) < pairs:
        with refuses(ArgumentError):
            PairSampler(labels, pairs, seed)
        return
    drawn = PairSampler(labels, pairs, seed).draw(step, pairs)
    assert drawn.shape == (2, pairs)
    assert (drawn[0] != drawn[1]).all()
    first, second = labels[drawn]
    assert np.array_equal(first, second)
    assert len(set(first.tolist())) == pairs
    assert set(first.tolist()) <= usable


def test_points_are_drawn_equally_whatever_their_number_of_patches_and_at_every_place_of_the_batch():
    """Each process takes its share of a batch, so that it must see all points too."""
    sampler = PairSampler(LABELS, 5, 1)
    drawn = np.stack([LABELS[sampler.draw(step, 5)[0]] for step in range(1, 2001)])
    for places, expected in ((drawn, 10_000 / 13), *((drawn[:, k], 2000 / 13) for k in range(5))):
        counts = Counter(places.ravel().tolist())
        assert counts.keys() == USABLE
        assert is_likely(list(counts.values()), expected)


def test_the_two_patches_are_any_two_and_in_any_order():
    sampler = PairSampler(np.array([0, 0, 0, 0, 1, 1]), 2, 3)
    four, two = Counter(), Counter()
    for step in range(1, 3001):
        for first, second in sampler.draw(step, 2).T.tolist():
            (four if first < 4 else two)[first, second] += 1
    assert four.keys() == set(itertools.permutations(range(4), 2))
    assert is_likely(list(four.values()), 3000 / 12)
    assert two.keys() == {(4, 5), (5, 4)}
    assert is_likely(list(two.values()), 1500)


def test_streams_of_random_numbers_do_not_meet():
    """No stream repeats another, however seed and step are exchanged."""
    keys = list(itertools.product([0, 1, 2, 2**63 - 1], [1, 2, 3, 10**9], [CLASSES, WARPS, PHOTOMETRIC, NETWORK]))
    draws = [generator_at(*key).integers(2**62, size=64) for key in keys]
    assert len(np.unique(np.concatenate(draws))) == 64 * len(keys)


def test_a_share_of_every_batch_is_mixed_in():
    own, others = np.repeat(np.arange(5), 3), np.repeat(np.arange(100, 140), 2)
    sampler = MixedSampler(np.concatenate([own, others]), len(own), 12, 0.6, 0)
    for step in range(1, 50):
        for pairs, mixed in ((12, 7), (4, 2), (2, 1)):
            first, second = np.concatenate([own, others])[sampler.draw(step, pairs)]
            assert np.array_equal(first, second)
            assert np.count_nonzero(first >= 100) == mixed
            assert len(np.unique(first)) == pairs
    with refuses(ArgumentError):  # five points of its own, where seven are needed
        MixedSampler(np.concatenate([own, others]), len(own), 12, 0.4, 0)
