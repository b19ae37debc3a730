import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

from matchkernel.errors import ArgumentError
from matchkernel.training.feed import CLASSES, NETWORK, PHOTOMETRIC, WARPS, MixedSampler, PairSampler, generator_at

SIZES = [2, 3, 1, 7, 2, 40, 5, 1, 2, 11, 4, 2, 3, 90, 6]  # patches of each point; two points have one only
RANDOM = np.random.default_rng(0)
LABELS = RANDOM.permutation(np.repeat(np.arange(len(SIZES)) * 1000 - 5000, SIZES))


def least_likely(freedom):
    """A bound that a right sampler exceeds once in a million times; the draws are fixed, so it is not up to chance."""
    return chi2.ppf(1 - 1e-6, freedom)


def statistic(counts, expected):
    return float(((np.asarray(counts) - expected) ** 2 / expected).sum())


def test_pairs_are_two_patches_of_a_point_and_no_point_is_there_twice():
    sampler = PairSampler(LABELS, 13, 0)
    for step in range(1, 200):
        for pairs in (13, 8, 2):
            drawn = sampler.draw(step, pairs)
            assert drawn.shape == (2, pairs)
            assert np.array_equal(LABELS[drawn[0]], LABELS[drawn[1]])
            assert (drawn[0] != drawn[1]).all()
            assert len(np.unique(LABELS[drawn[0]])) == pairs


@given(
    st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 2), max_size=30),
    st.integers(2, 6),
    st.integers(0, 2**63 - 1),
    st.integers(1, 10**9),
)
def test_any_labels_are_sampled_or_refused(labels, pairs, seed, step):
    labels = np.array(labels, np.int64)
    sizes = Counter(labels.tolist())
    usable = {label for label, size in sizes.items() if size > 1}
    if len(usable) < pairs:
        with pytest.raises(ArgumentError):
            PairSampler(labels, pairs, seed)
        return
    first, second = labels[PairSampler(labels, pairs, seed).draw(step, pairs)]
    assert np.array_equal(first, second)
    assert len(set(first.tolist())) == pairs
    assert set(first.tolist()) <= usable


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16, np.int32, np.int64, np.uint64])
def test_labels_of_any_kind_give_the_same_pairs(dtype):
    """Only which patches belong together counts, and the order of the points; extremes would overflow a difference."""
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    names = np.array([low, low + 1, low + 100, high - 1, high], dtype)
    points = np.random.default_rng(1).permutation(np.repeat(np.arange(5), [2, 3, 4, 5, 6]))
    expected = PairSampler(points, 5, 3).draw(7, 5)
    assert np.array_equal(PairSampler(names[points], 5, 3).draw(7, 5), expected)


def test_points_are_drawn_equally_whatever_their_number_of_patches():
    sampler = PairSampler(LABELS, 5, 1)
    drawn = np.concatenate([LABELS[sampler.draw(step, 5)[0]] for step in range(1, 2001)])
    counts = Counter(drawn.tolist())
    expected = {label * 1000 - 5000 for label, size in enumerate(SIZES) if size > 1}
    assert counts.keys() == expected
    assert statistic(list(counts.values()), 10_000 / 13) < least_likely(12)
    by_patches = np.array([size for size in SIZES if size > 1])
    by_patches = by_patches / by_patches.sum() * 10_000
    assert statistic([counts[label] for label in sorted(counts)], by_patches) > least_likely(12)  # the test can tell


def test_points_are_drawn_equally_at_every_place_of_the_batch():
    """So that a process that takes its share of a batch sees all points too."""
    sampler = PairSampler(np.repeat(np.arange(8), 2), 4, 2)
    drawn = np.stack([sampler.draw(step, 4)[0] // 2 for step in range(1, 2001)])
    for place in range(4):
        assert statistic(np.bincount(drawn[:, place], minlength=8), 250) < least_likely(7)


def test_the_two_patches_are_any_two_and_in_any_order():
    sampler = PairSampler(np.array([0, 0, 0, 0, 1, 1]), 2, 3)
    four, two = Counter(), Counter()
    for step in range(1, 3001):
        for first, second in sampler.draw(step, 2).T.tolist():
            (four if first < 4 else two)[first, second] += 1
    assert four.keys() == set(itertools.permutations(range(4), 2))
    assert statistic(list(four.values()), 3000 / 12) < least_likely(11)
    assert two.keys() == {(4, 5), (5, 4)}
    assert statistic(list(two.values()), 1500) < least_likely(1)


def test_a_batch_follows_from_seed_and_step_alone():
    sampler = PairSampler(LABELS, 13, 5)
    forwards = [sampler.draw(step, 13) for step in range(1, 20)]
    other = PairSampler(LABELS, 13, 5)
    backwards = [other.draw(step, 13) for step in range(19, 0, -1)][::-1]
    assert np.array_equal(forwards, backwards)


def test_steps_and_seeds_differ():
    batches = [PairSampler(LABELS, 13, seed).draw(step, 13) for seed in range(5) for step in range(1, 30)]
    assert len({batch.tobytes() for batch in batches}) == 5 * 29
    assert len({LABELS[batch[0]].tobytes() for batch in batches}) == 5 * 29


def test_streams_of_random_numbers_do_not_meet():
    """No stream repeats another, however seed and step are exchanged; the same three numbers give the same stream."""
    keys = list(itertools.product([0, 1, 2, 2**63 - 1], [1, 2, 3, 10**9], [CLASSES, WARPS, PHOTOMETRIC, NETWORK]))
    draws = [generator_at(*key).integers(2**62, size=64) for key in keys]
    assert len(np.unique(np.concatenate(draws))) == 64 * len(keys)
    assert all(
        np.array_equal(generator_at(*key).integers(2**62, size=64), d) for key, d in zip(keys, draws, strict=True)
    )


@pytest.mark.parametrize("labels", [[], [4], [1, 2, 3, -7]])
def test_no_point_with_two_patches_is_refused(labels):
    with pytest.raises(ArgumentError, match=rf"no point has two patches.*\({len(labels)} patches\)"):
        PairSampler(np.array(labels, np.int64), 2, 0)


def test_fewer_points_than_the_batch_is_refused():
    labels = np.array([1, 1, 2, 2, 3, 3, 4])  # the fourth has one patch
    PairSampler(labels, 3, 0)
    with pytest.raises(ArgumentError, match=r"batch of 4 pairs .* the set has 3; lower sampling\.pairs"):
        PairSampler(labels, 4, 0)


def test_a_batch_of_all_points_holds_all_points():
    drawn = PairSampler(LABELS, 13, 0).draw(1, 13)
    assert set(LABELS[drawn[0]].tolist()) == {label * 1000 - 5000 for label, size in enumerate(SIZES) if size > 1}


def test_a_share_of_every_batch_is_mixed_in():
    own, others = np.repeat(np.arange(5), 3), np.repeat(np.arange(100, 140), 2)
    sampler = MixedSampler(np.concatenate([own, others]), len(own), 12, 0.6, 0)
    for step in range(1, 50):
        for pairs, mixed in ((12, 7), (4, 2), (2, 1)):
            first, second = np.concatenate([own, others])[sampler.draw(step, pairs)]
            assert np.array_equal(first, second)
            assert np.count_nonzero(first >= 100) == mixed
            assert len(np.unique(first)) == pairs
    with pytest.raises(ArgumentError, match="the set has 5"):
        MixedSampler(np.concatenate([own, others]), len(own), 12, 0.4, 0)
