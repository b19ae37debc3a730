"""Which keypoints fill a budget."""

import numpy as np
import pytest
from helpers import refuses
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from matchkernel.errors import ArgumentError
from matchkernel.geometry import detect as module
from matchkernel.geometry.detect import choose, suppression_radii

CHOICES = ["strongest", "largest", "spread", "cells"]


def clustered(count, seed=0):
    """Centres crowded towards one corner, strengths that grow there too, as in a photo with one textured part."""
    random = np.random.default_rng(seed)
    centers = random.uniform(0, 1, (count, 2)) ** 3 * [640, 480]
    strengths = random.exponential(1, count) * (1 + 5 * (centers[:, 0] < 100))
    return centers, random.uniform(1, 20, count), strengths


def nearest_distances(centers):
    distances = np.hypot(*(centers[:, None] - centers).transpose(2, 0, 1))
    np.fill_diagonal(distances, np.inf)
    return distances.min(1)


def radii_by_definition(centers, strengths):
    distances = np.hypot(*(centers[:, None] - centers).transpose(2, 0, 1))
    distances[0.9 * strengths[None] <= strengths[:, None]] = np.inf
    return distances.min(1, initial=np.inf)


numbers = st.floats(0, 1000, width=32) | st.integers(0, 5).map(float)  # also many that are equal
keypoints = st.integers(0, 40).flatmap(
    lambda count: st.tuples(
        arrays.arrays(np.float64, (count, 2), elements=numbers),
        arrays.arrays(np.float64, count, elements=st.floats(0.5, 100)),
        arrays.arrays(np.float64, count, elements=numbers),
    )
)


@given(keypoints, st.integers(0, 50), st.sampled_from(CHOICES))
def test_a_choice_holds_as_many_as_fit_each_once_and_the_same_every_time(points, budget, choice):
    chosen = choose(*points, budget, choice)
    assert len(chosen) == min(budget, len(points[0]))
    assert len(np.unique(chosen)) == len(chosen)
    assert ((chosen >= 0) & (chosen < len(points[0]))).all()
    assert (choose(*points, budget, choice) == chosen).all()


@given(keypoints, st.integers(1, 50), st.sampled_from(["strongest", "largest", "spread"]))
def test_a_smaller_budget_holds_the_first_of_a_larger_one(points, budget, choice):
    everything = choose(*points, len(points[0]), choice)
    assert (choose(*points, budget, choice) == everything[:budget]).all()


@given(keypoints, st.sampled_from(CHOICES))
def test_the_strongest_of_all_is_in_every_choice_of_one_but_the_largest(points, choice):
    if not len(points[0]):
        return
    chosen = choose(*points, 1, choice)[0]
    key = points[1] if choice == "largest" else points[2]
    assert key[chosen] == key.max()


@given(keypoints)
def test_suppression_radii_are_those_of_the_definition(points):
    centers, _, strengths = points
    assert (suppression_radii(centers, strengths) == radii_by_definition(centers, strengths)).all()


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_pairs_looked_at_in_small_parts_give_the_same_radii(seed, at_a_time):
    centers, _, strengths = clustered(150, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PAIRS_AT_A_TIME", at_a_time)
        assert (suppression_radii(centers, strengths) == radii_by_definition(centers, strengths)).all()


def test_spread_keypoints_are_farther_apart_and_cover_more_of_the_image():
    points = clustered(4000)
    apart, covered = {}, {}
    for choice in CHOICES:
        centers = points[0][choose(*points, 300, choice)]
        apart[choice] = np.median(nearest_distances(centers))
        covered[choice] = len(np.unique(centers // 40, axis=0))
    assert apart["spread"] > 2 * apart["strongest"]
    assert covered["spread"] > 1.5 * covered["strongest"]
    assert covered["cells"] > 1.5 * covered["strongest"]


def test_cells_give_their_best_in_turn():
    """Four cells of 10 px for a budget of 16: the second of a rich cell waits for the first of every other."""
    centers = np.array([[0, 0], [1, 1], [2, 2], [19, 0], [0, 19], [20, 20]], float)
    strengths = np.array([9, 8, 7, 1, 2, 3], float)
    assert choose(centers, np.ones(6), strengths, 16, "cells").tolist() == [0, 5, 4, 3, 1, 2]


def test_a_slightly_stronger_neighbour_does_not_suppress():
    centers = np.array([[0, 0], [1, 0], [2, 0]], float)
    assert suppression_radii(centers, np.array([1.0, 0.95, 0.5])).tolist() == [np.inf, np.inf, 1]


def test_an_unknown_choice_is_refused():
    with refuses(ArgumentError):
        choose(*clustered(5), 2, "best")
