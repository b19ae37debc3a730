"""Parts of a scene: no photo, no point and no overlapping region on two sides, whatever the scene."""

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.data.pairs import PatchPlaces
from matchkernel.data.split import CORNER, LEFT_OUT, PARTS, Counts, check_enough, count_parts, split_places
from matchkernel.errors import ArgumentError


def scene(points=400, photos=12, reach=1.0, size=0.005, seed=0, scale=1.0):
    """Points on a wall of length 1; a photo sees the share `reach` of it, from its own place along the wall."""
    random = np.random.default_rng(seed)
    places = random.random((points, 3)) * [1, 0.4, 0.05]
    at = np.linspace(0, 1 - reach, photos)
    rows = [
        (label, photo)
        for label in range(points)
        for photo in range(photos)
        if at[photo] <= places[label, 0] <= at[photo] + reach and random.random() < 0.7
    ]
    labels, numbers = np.array(rows, np.int64).reshape(-1, 2).T
    sizes = size * random.uniform(0.5, 2, len(labels))
    return PatchPlaces(labels, numbers, scale * places[labels], scale * sizes)


def check_apart(where, parts):
    """What must hold for every split."""
    kept = [np.flatnonzero(parts == number) for number in range(len(PARTS))]
    for number, mine in enumerate(kept):
        for label in np.unique(where.labels[mine]):
            rows = mine[where.labels[mine] == label]
            assert len(np.unique(where.photos[rows])) > 1
        for others in kept[number + 1 :]:
            assert not np.intersect1d(where.labels[mine], where.labels[others]).size
            assert not np.intersect1d(where.photos[mine], where.photos[others]).size
            apart = np.linalg.norm(where.places[mine][:, None] - where.places[others][None], axis=2)
            touching = CORNER * (where.sizes[mine][:, None] + where.sizes[others][None])
            assert (apart > touching * (1 - 1e-9)).all()


@given(
    st.integers(1, 120),
    st.integers(1, 9),
    st.floats(0.05, 1),
    st.sampled_from([0.0, 0.005, 0.05, 1.0]),
    st.integers(0, 99),
    st.sampled_from([1e-9, 1.0, 1e6]),
)
def test_nothing_is_on_two_sides(points, photos, reach, size, seed, scale):
    where = scene(points, photos, reach, size, seed, scale)
    parts = split_places(where)
    check_apart(where, parts)
    assert set(np.unique(parts)) <= {LEFT_OUT, 0, 1, 2}


@given(st.lists(st.tuples(
    st.integers(0, 5), st.integers(0, 3), *[st.floats(-1e3, 1e3) | st.just(float("nan"))] * 3, st.floats(0, 10)
), max_size=40))  # fmt: skip
def test_any_patches_are_split_or_left_out(rows):
    """Points that are no points: patches of one label at several places, or at none."""
    table = np.array(rows, np.float64).reshape(-1, 6)
    where = PatchPlaces(table[:, 0].astype(int), table[:, 1].astype(int), table[:, 2:5], table[:, 5])
    parts = split_places(where)
    assert parts.shape == (len(rows),)
    assert (parts[~np.isfinite(table).all(1)] == LEFT_OUT).all()
    check_apart(where, parts)


def test_the_order_of_patches_does_not_matter():
    where = scene()
    order = np.random.default_rng(1).permutation(len(where.labels))
    assert np.array_equal(split_places(where)[order], split_places(where[order]))


@pytest.mark.parametrize(("reach", "least"), [(1.0, 0.3), (0.3, 0.4)])
def test_enough_is_left_where_all_photos_see_everything_and_where_they_go_along(reach, least):
    where = scene(2000, 20, reach)
    parts = split_places(where)
    counts = count_parts(where, parts)
    assert np.mean(parts != LEFT_OUT) > least
    assert all(count.points > 100 for count in counts.values())
    assert counts["training"].patches > counts["test"].patches
    check_enough(counts, "photos")


def test_large_regions_leave_less():
    kept = [np.count_nonzero(split_places(scene(size=size)) != LEFT_OUT) for size in (0.001, 0.02, 0.1, 0.6)]
    assert kept == sorted(kept, reverse=True)
    assert kept[0] > 2 * kept[2]
    assert kept[3] == 0  # a region as large as the wall is on every side


def test_parts_that_are_too_small_are_refused():
    enough = dict.fromkeys(PARTS, Counts(9, 500, 3000))
    check_enough(enough, "photos")
    for part, counts in (("test", Counts(1, 500, 3000)), ("training", Counts(9, 299, 900))):
        with refuses(ArgumentError):
            check_enough({**enough, part: counts}, "photos")
