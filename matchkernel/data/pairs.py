"""Draw test pairs of a patch set: positives, random negatives, and negatives that look similar."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from matchkernel.data.patch_set import group_by_label


@dataclass(frozen=True)
class PatchPlaces:
    """Where patches are in the scene; two of them may show the same spot without sharing a label."""

    labels: np.ndarray  # (K,)
    photos: np.ndarray  # (K,)
    places: np.ndarray  # (K, 3) of the 3-D point
    sizes: np.ndarray  # (K,) half width of the region in the scene

    def __getitem__(self, rows: np.ndarray) -> "PatchPlaces":
        return PatchPlaces(self.labels[rows], self.photos[rows], self.places[rows], self.sizes[rows])

    def may_be_the_same(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Same label, or closer than the larger half width: as not all photos were matched, it may be the same spot."""
        distance = np.linalg.norm(self.places[a] - self.places[b], axis=-1)
        return (self.labels[a] == self.labels[b]) | (distance < np.maximum(self.sizes[a], self.sizes[b]))


def draw_test_pairs(patches: PatchPlaces, count: int, seed: int) -> np.ndarray:
    """Draw `count` positives and `count` random negatives, shuffled: (2 count, 3) patch, patch, 1 or 0.

    There are fewer if the set has fewer distinct pairs, but always as many negatives as positives.
    """
    random = np.random.default_rng(seed)
    positives = _positives(patches.labels, count, random)
    negatives = random_negatives(patches, len(positives), random)
    return _shuffled(positives[: len(negatives)], negatives, random)


def draw_hard_pairs(
    patches: PatchPlaces, describe: Callable[[np.ndarray], np.ndarray], count: int, seed: int
) -> np.ndarray:
    """Like draw_test_pairs, but each negative is the most similar patch of another point in the same photo.

    `describe` takes numbers of patches and gives unit rows of a hand-crafted descriptor.
    """
    random = np.random.default_rng(seed)
    positives = _positives(patches.labels, count, random)
    # A third more than needed, because two patches that are most similar to each other give only one pair.
    anchors = np.sort(random.permutation(len(patches.labels))[: len(positives) * 4 // 3 + 1])
    negatives = []
    for photo in np.unique(patches.photos[anchors]):
        here = np.flatnonzero(patches.photos == photo)
        mine = anchors[patches.photos[anchors] == photo]
        rows = describe(here)
        similarity = rows[np.searchsorted(here, mine)] @ rows.T
        similarity[patches.may_be_the_same(mine[:, None], here[None, :])] = -np.inf
        best = similarity.argmax(1)
        found = np.isfinite(similarity.max(1))
        pairs = np.sort(np.column_stack([mine, here[best]]), 1)
        negatives.append(np.column_stack([pairs, np.zeros_like(mine)])[found])
    hard = np.unique(np.concatenate([np.empty((0, 3), np.int64), *negatives]), axis=0)
    k = min(len(hard), len(positives))
    return _shuffled(positives[:k], hard[random.permutation(len(hard))[:k]], random)


def _positives(labels: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Distinct pairs of patches of the same point, with points drawn uniformly."""
    order, starts, sizes = group_by_label(labels)
    starts, sizes = starts[sizes > 1], sizes[sizes > 1]
    possible = int((sizes * (sizes - 1) // 2).sum())
    pairs: dict[tuple[int, int], None] = {}
    while len(pairs) < min(count, possible):
        if possible <= 2 * count:  # few candidates: list them all and shuffle
            every = [
                (s + i, s + j) for s, n in zip(starts, sizes, strict=True) for i in range(n) for j in range(i + 1, n)
            ]
            pairs = dict.fromkeys(every[k] for k in random.permutation(possible)[:count])
            break
        group = random.integers(len(starts), size=count)
        first = random.integers(sizes[group])
        second = (first + random.integers(1, sizes[group])) % sizes[group]
        for a, b in zip(
            starts[group] + np.minimum(first, second), starts[group] + np.maximum(first, second), strict=True
        ):
            pairs[int(a), int(b)] = None
    chosen = np.array(list(pairs)[:count], np.int64).reshape(-1, 2)
    return np.column_stack([order[chosen], np.ones(len(chosen), np.int64)])


def random_negatives(patches: PatchPlaces, count: int, random: np.random.Generator) -> np.ndarray:
    """Up to `count` pairs of patches that cannot show the same spot: (M, 3) patch, patch, 0."""
    found = np.empty((0, 2), np.int64)
    for _ in range(20):  # fewer in a scene in which nearly all pairs may show the same spot
        drawn = random.integers(len(patches.labels), size=(2 * count, 2))
        drawn = drawn[~patches.may_be_the_same(drawn[:, 0], drawn[:, 1])]
        found = np.unique(np.concatenate([found, np.sort(drawn, 1)]), axis=0)
        if len(found) >= count:
            break
    found = found[random.permutation(len(found))[:count]]
    return np.column_stack([found, np.zeros(len(found), np.int64)])


def _shuffled(positives: np.ndarray, negatives: np.ndarray, random: np.random.Generator) -> np.ndarray:
    pairs = np.concatenate([positives, negatives]).astype(np.int64)
    return pairs[random.permutation(len(pairs))]
