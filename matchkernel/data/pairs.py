"""Draw test pairs of a patch set: positives, random negatives, and negatives that look similar."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from matchkernel.data.patch_set import group_by_label
from matchkernel.errors import ArgumentError


@dataclass(frozen=True)
class PatchPlaces:
    """Where patches are in the scene: shows which of them may show the same spot without sharing a label."""

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
    negatives = _random_negatives(patches, len(positives), random)
    return _shuffled(positives[: len(negatives)], negatives, random)


def draw_hard_pairs(
    patches: PatchPlaces, describe: Callable[[np.ndarray], np.ndarray], count: int, seed: int
) -> np.ndarray:
    """Like draw_test_pairs, but each negative is the most similar patch of another point in the same photo.

    Args:
        patches: the set.
        describe: patch numbers -> unit rows of a hand-crafted descriptor.
        count: of positives and of negatives.
        seed: of the draw.
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


@dataclass(frozen=True)
class GeometricPairs:
    """Test pairs whose positives a matcher of SIFT did not choose; each list (M, 2) patch numbers."""

    positives: np.ndarray
    ordinary: np.ndarray  # non-matches drawn at random
    hard: np.ndarray  # the most similar non-matches

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter((self.positives, self.ordinary, self.hard))


def draw_geometric_pairs(
    patches: PatchPlaces,
    is_geometric: np.ndarray,
    describe: Callable[[np.ndarray], np.ndarray],
    positives: int,
    ordinary: int,
    hard: int,
    seed: int,
) -> GeometricPairs:
    """Draw positives that geometry found, and many negatives among the same patches.

    A positive is one pair of a point: a patch that no track contains (see positives.py), and another of the same point
    in another photo. Only the patches of the positives are used, so that few patches give many negatives.

    Args:
        patches: the set.
        is_geometric: (K,) whether a patch was found by geometry.
        describe: patch numbers -> unit rows of a hand-crafted descriptor, by which hard negatives are chosen.
        positives: the most to draw.
        ordinary: negatives to draw at random; fewer where there are not as many.
        hard: most similar negatives.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    chosen = _geometric_positives(patches, is_geometric, random)
    chosen = chosen[random.permutation(len(chosen))[:positives]]
    used = np.unique(chosen)
    here = patches[used]
    drawn = used[_random_negatives(here, ordinary, random)[:, :2]] if len(used) else np.empty((0, 2), np.int64)
    return GeometricPairs(chosen, drawn, _most_similar(patches, used, describe(used), hard))


def _geometric_positives(patches: PatchPlaces, is_geometric: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """(P, 2) a patch found by geometry and one of the same point in another photo; at most one pair of a point."""
    order, starts, sizes = group_by_label(patches.labels)
    pairs = []
    for start, size in zip(starts, sizes, strict=True):
        members = order[start : start + size]
        for one in random.permutation(members[is_geometric[members]]):
            others = members[patches.photos[members] != patches.photos[one]]
            if len(others):
                pairs.append((one, random.choice(others)))
                break
    return np.array(pairs, np.int64).reshape(-1, 2)


def _most_similar(patches: PatchPlaces, used: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """(M, 2) non-matches among `used`: as many of the nearest of each patch as are needed for `count` pairs."""
    if len(used) < 2:
        return np.empty((0, 2), np.int64)
    each = min(len(used) - 1, -(-2 * count // len(used)))  # two patches may choose each other
    found = []
    for begin in range(0, len(used), 1024):
        part = np.arange(begin, min(begin + 1024, len(used)))
        similarity = rows[part] @ rows.T
        similarity[patches.may_be_the_same(used[part][:, None], used[None, :])] = -np.inf
        near = np.argpartition(-similarity, each - 1, axis=1)[:, :each]
        is_real = np.isfinite(np.take_along_axis(similarity, near, 1))
        found.append(np.column_stack([np.repeat(part, each), near.ravel()])[is_real.ravel()])
    pairs = np.unique(np.sort(np.concatenate(found), 1), axis=0)
    similarity = np.einsum("ij,ij->i", rows[pairs[:, 0]], rows[pairs[:, 1]])
    kept = np.argsort(-similarity, kind="stable")[:count]
    return used[pairs[np.sort(kept)]]


def _positives(labels: np.ndarray, count: int, random: np.random.Generator) -> np.ndarray:
    """Distinct pairs of patches of the same point, with points drawn uniformly."""
    if count < 1:
        raise ArgumentError(f"the number of pairs must be 1 or more, got {count}")
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


def _random_negatives(patches: PatchPlaces, count: int, random: np.random.Generator) -> np.ndarray:
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
