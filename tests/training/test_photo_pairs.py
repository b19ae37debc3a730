"""Batches that hold several points of the same two photos."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError
from matchkernel.training.feed import SPACING, PhotoPairSampler

PHOTOS, POINTS = 12, 400
RANDOM = np.random.default_rng(3)


def made_set():
    """Points seen in two to six photos of twelve, each at a place of its own."""
    labels, photos, centers = [], [], []
    for point in range(POINTS):
        seen = RANDOM.choice(PHOTOS, RANDOM.integers(2, 7), replace=False)
        labels += [point] * len(seen)
        photos += seen.tolist()
        centers += RANDOM.uniform(0, 1000, (len(seen), 2)).tolist()
    return np.array(labels), np.array(photos), np.array(centers)


LABELS, OF_PHOTO, CENTERS = made_set()


def test_a_batch_holds_groups_of_points_of_the_same_two_photos():
    sampler = PhotoPairSampler(LABELS, OF_PHOTO, CENTERS, 64, 8, 0)
    for step in range(1, 100):
        drawn = sampler.draw(step, 64)
        assert drawn.shape == (2, 64)
        assert np.array_equal(LABELS[drawn[0]], LABELS[drawn[1]])
        assert len(np.unique(LABELS[drawn[0]])) == 64
        both = OF_PHOTO[drawn]
        assert (both[0] != both[1]).all()
        sizes = np.unique(both, axis=1, return_counts=True)[1]
        assert len(sizes) <= 20, "64 points alone would be of about 50 pairs of photos"


def test_points_of_a_photo_keep_a_distance():
    centers = CENTERS.copy()
    centers[::5] = 10 * SPACING + 1.0  # every fifth patch at one place of its photo
    sampler = PhotoPairSampler(LABELS, OF_PHOTO, centers, 16, 8, 0)
    for step in range(1, 50):
        first, second = sampler.draw(step, 16)
        for side in (first, second):
            cells = np.column_stack([OF_PHOTO[side], centers[side] // SPACING])
            assert len(np.unique(cells, axis=0)) == 16


def test_every_step_is_drawn_alike_and_differs_from_the_others():
    one, two = (PhotoPairSampler(LABELS, OF_PHOTO, CENTERS, 32, 4, 5) for _ in range(2))
    assert np.array_equal(one.draw(7, 32), two.draw(7, 32))
    assert not np.array_equal(one.draw(7, 32), one.draw(8, 32))


def test_every_point_seen_in_two_photos_is_drawn():
    sampler = PhotoPairSampler(LABELS, OF_PHOTO, CENTERS, 64, 8, 1)
    drawn = np.concatenate([LABELS[sampler.draw(step, 64)[0]] for step in range(1, 200)])
    assert set(drawn.tolist()) == set(range(POINTS))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 3)), max_size=40), st.integers(2, 6), st.integers(1, 5))
def test_any_set_is_sampled_or_refused(patches, pairs, per_photo):
    labels, photos = np.array(patches, np.int64).reshape(-1, 2).T
    seen_twice = [label for label in set(labels.tolist()) if len(set(photos[labels == label].tolist())) > 1]
    centers = np.zeros((len(labels), 2))
    if len(seen_twice) < pairs:
        with pytest.raises(ArgumentError, match="seen in two photos"):
            PhotoPairSampler(labels, photos, centers, pairs, per_photo, 0)
        return
    drawn = PhotoPairSampler(labels, photos, centers, pairs, per_photo, 0).draw(1, pairs)
    assert drawn.shape == (2, pairs)
    assert np.array_equal(labels[drawn[0]], labels[drawn[1]])
    assert len(set(labels[drawn[0]].tolist())) == pairs
