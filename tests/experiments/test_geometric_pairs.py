"""Positives that geometry found, with many negatives among the same patches: against their definitions."""

import numpy as np
import pytest

from experiments.paper.geometric_pairs import draw_geometric_pairs
from matchkernel.data.pairs import PatchPlaces


@pytest.fixture
def made():
    """Forty points of five patches in different photos on a line; every third patch found by geometry."""
    random = np.random.default_rng(0)
    labels = np.repeat(np.arange(40), 5)
    places = np.column_stack([labels * 1.0, np.zeros(200), np.zeros(200)])
    patches = PatchPlaces(labels, np.tile(np.arange(5), 40), places, np.full(200, 1.5))
    rows = random.standard_normal((200, 8)) + random.standard_normal((40, 8))[labels]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    return patches, np.arange(200) % 3 == 0, rows


def drawn(made, positives=30, negatives=200, seed=0):
    patches, is_geometric, rows = made
    return draw_geometric_pairs(patches, is_geometric, lambda used: rows[used], positives, negatives, negatives, seed)


def test_positives_have_a_geometric_patch_and_negatives_are_other_places_of_the_same_patches(made):
    patches, is_geometric, _ = made
    found = drawn(made)
    a, b = found.positives.T
    assert is_geometric[a].all()
    assert (patches.labels[a] == patches.labels[b]).all()
    assert (patches.photos[a] != patches.photos[b]).all()
    assert len(np.unique(patches.labels[a])) == len(a) == 30  # one of a point
    for pairs in (found.ordinary, found.hard):
        assert np.isin(pairs, found.positives).all()
        assert (np.abs(patches.labels[pairs[:, 0]] - patches.labels[pairs[:, 1]]) >= 2).all()  # nearer: the same spot?
        assert len(np.unique(np.sort(pairs, 1), axis=0)) == len(pairs) == 200


def test_hard_negatives_are_the_most_similar(made):
    patches, _, rows = made
    found = drawn(made, negatives=60)
    used = np.unique(found.positives)
    a, b = (used[k] for k in np.triu_indices(len(used), 1))
    real = ~patches.may_be_the_same(a, b)
    best = np.sort((rows[a] * rows[b]).sum(1)[real])[-60:]
    chosen = (rows[found.hard[:, 0]] * rows[found.hard[:, 1]]).sum(1)
    # Each patch offers its nearest four, so a few of the very best may be missed.
    assert chosen.mean() > best.mean() - 0.05
    assert chosen.mean() > (rows[found.ordinary[:, 0]] * rows[found.ordinary[:, 1]]).sum(1).mean() + 0.3
