"""Test pairs whose positives were found by geometry, not by a matcher of SIFT, and negatives among the same patches."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from matchkernel.data.pairs import PatchPlaces, random_negatives
from matchkernel.data.patch_set import group_by_label


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
    drawn = used[random_negatives(here, ordinary, random)[:, :2]] if len(used) else np.empty((0, 2), np.int64)
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
