"""HPatches matching: nearest neighbours of ref in each other image. See docs/evaluation.md for the conventions."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.hpatches import NOISES
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import Distance, check_distance
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.metrics import FORMS, non_matches_before, precision_area
from matchkernel.model.precision import full_precision
from matchkernel.storage.progress import Progress, adding

TILE = 2**22  # distances at a time: 16 MiB of float32; an image pair in one piece, so that threads seldom wait
CANDIDATES = 2**16  # rows compared one by one, at a time
SMALL = 1e-9  # below it squares might vanish in float32
GROUPS = {"i": "illumination", "v": "viewpoint"}


def matching(
    descriptors: HPatchesDescriptors,
    test: Sequence[str],
    distance: Distance = "l2",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score the matching task.

    Args:
        descriptors: of at least the sequences of `test`.
        test: the split's test sequences.
        distance: "l2", "l1", or "hamming" for bits.
        progress: called with the number of sequences done and their total.

    Returns:
        `per_pair`/<sequence>/<e|h|t>/<1..5>: `ap_trapezoid` (official Python), `ap_step` (MATLAB), `sr` (share of right
        nearest neighbours), each with its `_tie_safe` value, where a neighbour that is not the only nearest one is
        wrong and wrong ones stand first among equals. `mean`/<e|h|t|all> over image pairs; `groups` and `article`, the
        mean of the six means over illumination and viewpoint sequences.
    """
    check_distance(distance, descriptors.rows.dtype)
    if not test:
        raise ArgumentError("the split has no test sequences")
    per_pair: dict[str, Any] = {}
    room = np.empty(max([TILE, *descriptors.counts.values()]), np.float32)
    add = adding(progress, len(test))
    for name in test:
        rows = descriptors.sequence(name)
        if distance == "hamming":
            rows = np.unpackbits(rows, axis=-1).astype(np.float32)
        per_pair[name] = {
            noise: {str(k): _score(rows[0], rows[5 * level + k], distance, room) for k in range(1, 6)}
            for level, noise in enumerate(NOISES)
        }
        add(1)
    return {"per_pair": per_pair, **_means(per_pair)}


def nearest(
    a: np.ndarray, b: np.ndarray, distance: Distance, room: np.ndarray | None = None, tile_size: int = TILE
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The exact nearest neighbour of each row of a in b, the lowest index among equals.

    A product in the rows' own precision finds it; where others are within the rounding error, differences decide.

    Args:
        a: (N, D) float32 or float64.
        b: (M, D) the same, M >= 1.
        distance: "l2" or "l1" (bits come as numbers 0 and 1, with "hamming" or "l2").
        room: (tile_size or M,) of the rows' dtype to compute in, for many calls: fresh memory costs half of a product.
        tile_size: distances at a time.

    Returns:
        (N,) indices, (N,) float64 distances (the root of the Hamming distance), (N,) whether no other is as near.
    """
    if len(np.unique(b.sum(1))) < len(b):  # equal rows have equal sums; without copies the usual case stays fast
        first, copies = _distinct(b)
        if len(first) < len(b):
            index, distances, is_only = nearest(a, b[first], distance, room, tile_size)
            return first[index], distances, is_only & (copies[index] == 1)
    if max(np.abs(a).max(), np.abs(b).max()) < SMALL:
        a, b = a.astype(np.float64), b.astype(np.float64)
    error = _error(a, b, distance)
    factors = _factors(a, b)
    index, is_only = np.empty(len(a), np.int64), np.empty(len(a), bool)
    step = max(1, tile_size // len(b))
    room = np.empty(min(step, len(a)) * len(b), a.dtype) if room is None or room.dtype != a.dtype else room
    for start in range(0, len(a), step):
        part = slice(start, start + step)
        if distance == "l1":
            tile = torch.cdist(torch.from_numpy(a[part]).double(), torch.from_numpy(b).double(), p=1).numpy()
        else:
            tile = room[: len(a[part]) * len(b)].reshape(-1, len(b))
            with full_precision():
                torch.mm(factors[0][part], factors[1], out=torch.from_numpy(tile))
        index[part], is_only[part] = _nearest_part(tile, a[part], b, distance, error)
    exact = _exact(a, b[index], distance)
    return index, exact if distance == "l1" else np.sqrt(exact), is_only


def _distinct(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Where each distinct row of (M, D) occurs first, in that order, and how often it occurs."""
    # Adding zero makes one of the two zeros, which are equal but not of the same bytes.
    _, first, counts = np.unique(b + 0, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


def _factors(a: np.ndarray, b: np.ndarray) -> tuple[Tensor, Tensor]:
    """(N, D + 1) and (D + 1, M) with the product |b|^2 - 2 a.b, which orders b as the distance to a does."""
    one = np.ones((len(a), 1), a.dtype)
    squares = np.einsum("ij,ij->i", b, b)[:, None]
    left, right = np.concatenate([a, one], 1), np.concatenate([-2 * b, squares], 1)
    # torch's product keeps its speed on a busy machine; NumPy's threads then wait for each other.
    return torch.from_numpy(left), torch.from_numpy(right).T


def _nearest_part(
    tile: np.ndarray, a: np.ndarray, b: np.ndarray, distance: Distance, error: float
) -> tuple[np.ndarray, np.ndarray]:
    each = np.arange(len(a))
    index = tile.argmin(1)
    least = tile[each, index]
    tile[each, index] = np.inf
    is_only = tile.min(1) > least + 2 * error
    unsure = np.flatnonzero(~is_only)
    if error and len(unsure):
        tile[each, index] = least
        row, column = np.nonzero(tile[unsure] <= (least[unsure] + 2 * error)[:, None])
        exact = np.empty(len(row))
        for start in range(0, len(row), CANDIDATES):
            part = slice(start, start + CANDIDATES)
            exact[part] = _exact(a[unsure[row[part]]], b[column[part]], distance)
        order = np.lexsort((column, exact, row))
        best = order[np.flatnonzero(np.diff(row[order], prepend=-1))]
        index[unsure] = column[best]
        # As near as rounding in float64 can tell: one in 10^12.
        ties = np.bincount(row, exact <= exact[best][row] * (1 + 1e-12) + 1e-24, len(unsure))
        is_only[unsure] = ties == 1
    return index, is_only


def _exact(a: np.ndarray, b: np.ndarray, distance: Distance) -> np.ndarray:
    """(m,) float64 squared l2 (or l1) distances of the rows of two (m, D) arrays, from their differences."""
    difference = np.subtract(a, b, dtype=np.float64)
    return np.abs(difference).sum(1) if distance == "l1" else np.einsum("ij,ij->i", difference, difference)


def _error(a: np.ndarray, b: np.ndarray, distance: Distance) -> float:
    """How far a product may be from the exact value; 0 for whole numbers small enough to be added exactly."""
    D = a.shape[1]
    if distance == "l1":
        return 4 * D * D * float(np.finfo(np.float64).eps) * float(max(np.abs(a).max(), np.abs(b).max()))
    unit = float(np.finfo(a.dtype).eps)
    longest = float(max(np.einsum("ij,ij->i", rows, rows).max() for rows in (a, b)))
    if 8 * longest * unit < 1 and all(np.array_equal(rows, np.rint(rows)) for rows in (a, b)):
        return 0.0
    return (D + 4) * unit * 3 * longest


def _score(reference: np.ndarray, image: np.ndarray, distance: Distance, room: np.ndarray) -> dict[str, float]:
    index, distances, is_only = nearest(reference, image, distance, room)
    is_right = index == np.arange(len(index))
    is_safe = is_right & is_only
    scores = {"sr": float(is_right.mean()), "sr_tie_safe": float(is_safe.mean())}
    before = non_matches_before(distances, is_right)
    before_safe = non_matches_before(distances, is_safe, "pessimistic")
    for form in FORMS:
        scores[f"ap_{form}"] = float(precision_area(before, len(index), form))
        scores[f"ap_{form}_tie_safe"] = float(precision_area(before_safe, len(index), form))
    return scores


def _means(per_pair: Mapping[str, Any]) -> dict[str, Any]:
    mean = {noise: _mean(pair for part in per_pair.values() for pair in part[noise].values()) for noise in NOISES}
    mean["all"] = _mean(mean[noise] for noise in NOISES)
    groups = {}
    for prefix, group in GROUPS.items():
        members = [part for name, part in per_pair.items() if name.startswith(f"{prefix}_")]
        if members:
            groups[group] = {
                noise: _mean(pair for part in members for pair in part[noise].values()) for noise in NOISES
            }
    flat = [group[noise] for group in groups.values() for noise in NOISES]
    return {"mean": mean, "groups": groups, "article": _mean(flat) if flat else None}


def _mean(scores: Iterable[Mapping[str, float]]) -> dict[str, float]:
    listed = list(scores)
    return {key: float(np.mean([score[key] for score in listed])) for key in listed[0]}
