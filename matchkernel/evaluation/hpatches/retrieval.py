"""HPatches retrieval: find the other views of a patch in a pool. See docs/evaluation.md for the two conventions."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.hpatches import NOISES, PatchList
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import check_distance, comparable_rows, count_closer
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.metrics import FORMS, precision_area
from matchkernel.photos.nearest import Distance, Distances, exact_distances
from matchkernel.storage.work import Progress, progress_counter

POOLS = (100, 500, 1000, 5000, 10000, 15000, 20000)  # the official Python's K: entries ranked, the 5 positives included
NEGATIVES = ("2000", "all")  # the official MATLAB's num_neg: its default, and the article's
POSITIVES = 5
TILE = 2**22  # distances per tile: 32 MiB


def retrieval(
    descriptors: HPatchesDescriptors,
    queries: PatchList,
    distractors: PatchList,
    distance: Distance = "l2",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score the retrieval task in both official conventions.

    Args:
        queries: (Q,) patches of ref.
        distractors: (M,) patches of ref.

    Returns:
        `python`: trapezoid AP in pools of K entries; `matlab`: step AP among the first 2000 or all distractors; in each
        `noise`/<e|h|t>/<pool> and `mean`/<pool>, with its `_tie_safe` value. `per_sequence`/<sequence>: both
        forms among all distractors.
    """
    scores = average_precisions(descriptors, queries, distractors, distance, progress)
    python, matlab = slice(0, len(POOLS)), slice(len(POOLS), None)
    return {
        "queries": len(queries),
        "distractors": len(distractors),
        "python": _convention(scores, "ap_trapezoid", [str(pool) for pool in POOLS], python),
        "matlab": _convention(scores, "ap_step", NEGATIVES, matlab),
        "per_sequence": _per_sequence(scores, queries.sequences),
    }


def average_precisions(
    descriptors: HPatchesDescriptors,
    queries: PatchList,
    distractors: PatchList,
    distance: Distance = "l2",
    progress: Progress | None = None,
    *,
    pools: Sequence[int] = POOLS,
    negatives: Sequence[str] = NEGATIVES,
) -> dict[str, np.ndarray]:
    """(Q, 3, pools) AP of each query, noise level and pool: `ap_trapezoid`, `ap_step`, each with its `_tie_safe` value.

    Args:
        pools: sizes of the official Python's pools, the 5 positives included; each above 5.
        negatives: numbers of distractors in the manner of the official MATLAB code, or "all"; they come after `pools`.
    """
    check_distance(distance, descriptors.rows.dtype)
    if not len(queries) or not len(distractors):
        raise ArgumentError(f"retrieval needs queries and distractors, got {len(queries)} and {len(distractors)}")
    query_rows = _rows(descriptors, queries, "retrieval queries", distance)
    pool = _rows(descriptors, distractors, "retrieval distractors", distance)
    thresholds = _thresholds(descriptors, queries, query_rows, distance)
    distances = Distances(query_rows, pool, distance)
    shape = (len(queries), len(NOISES), len(pools) + len(negatives), POSITIVES)
    closer, as_close = np.empty(shape, np.int64), np.empty(shape, np.int64)  # distractors before each positive
    step = max(1, TILE // len(pool))
    add = progress_counter(progress, len(queries))
    for name in np.unique(queries.sequences):
        is_other = distractors.sequences != name
        bounds = _pool_bounds(is_other, pools, negatives)
        own = torch.from_numpy(~is_other)
        members = np.flatnonzero(queries.sequences == name)
        for start in range(0, len(members), step):
            part = members[start : start + step]
            chosen = torch.from_numpy(part)
            tile = distances.tile(chosen)
            tile[:, own] = torch.inf
            closer[part], as_close[part] = _count_pools(tile, thresholds[chosen], bounds, chosen, distances)
            add(len(part))
    counts = {"": closer, "_tie_safe": as_close}  # positives are first among ties by the official rule
    return {
        f"ap_{form}{suffix}": precision_area(before, POSITIVES, form)
        for form in FORMS
        for suffix, before in counts.items()
    }


def distractor_warnings(queries: PatchList, distractors: PatchList) -> list[str]:
    """At most one sentence, about queries without distractors from other sequences, which any method gets right."""
    alone = [name for name in np.unique(queries.sequences) if not (distractors.sequences != name).any()]
    count = int(np.isin(queries.sequences, alone).sum())
    if not count:
        return []
    if count == len(queries):
        return ["retrieval of this split has no distractors from other sequences: every method gets 100"]
    return [
        f"retrieval: {count} of {len(queries)} queries have no distractors from other sequences and always score 100"
    ]


def _rows(descriptors: HPatchesDescriptors, patches: PatchList, what: str, distance: Distance) -> Tensor:
    rows = descriptors.rows[descriptors.find_rows(patches, "e", what)]
    if patches.images.any():
        raise ArgumentError(
            f"{what} must be patches of ref, row {int(patches.images.argmax()) + 1} is from another image"
        )
    return comparable_rows(rows, distance, what).double()


def _thresholds(descriptors: HPatchesDescriptors, queries: PatchList, query_rows: Tensor, distance: Distance) -> Tensor:
    """(Q, 3, 5) exact distances of the positives, sorted."""
    each = torch.arange(len(queries))
    found = torch.empty(len(queries), len(NOISES), POSITIVES, dtype=torch.float64)
    for level, noise in enumerate(NOISES):
        for k in range(POSITIVES):
            views = PatchList(queries.sequences, np.full(len(queries), k + 1), queries.indices)
            rows = descriptors.rows[descriptors.find_rows(views, noise, "retrieval queries")]
            positives = comparable_rows(rows, distance, "retrieval positives")
            found[:, level, k] = exact_distances(query_rows, positives, each, each, distance)
    return found.sort(-1).values


def _pool_bounds(is_other: np.ndarray, pools: Sequence[int], negatives: Sequence[str]) -> list[int]:
    """Where each pool ends in the list of distractors. Python drops the query's sequence first, MATLAB cuts first."""
    kept = np.flatnonzero(is_other)
    ends = [int(kept[K - POSITIVES]) if len(kept) > K - POSITIVES else len(is_other) for K in pools]
    return [*ends, *(len(is_other) if number == "all" else min(int(number), len(is_other)) for number in negatives)]


def _count_pools(
    tile: Tensor, thresholds: Tensor, bounds: list[int], part: Tensor, distances: Distances
) -> list[np.ndarray]:
    """(q, 3, pools, 5) distractors before each positive with positives first among ties, then with positives last.

    Pools are prefixes of one list, and each part of it is counted once.
    """
    flat = thresholds.flatten(1).contiguous()
    edges = sorted({0, *bounds})
    counts = [torch.zeros(2, *flat.shape, dtype=torch.int64)]
    for begin, end in pairwise(edges):

        def exact(rows: Tensor, columns: Tensor, begin: int = begin) -> Tensor:
            return distances.exact(part[rows], columns + begin)

        more = count_closer(tile[:, begin:end], flat, distances.error, exact)
        counts.append(counts[-1] + torch.stack(more))
    pools = torch.stack([counts[edges.index(bound)] for bound in bounds], 2)  # (2, q, pools, 3 * 5)
    return list(pools.unflatten(3, thresholds.shape[1:]).transpose(2, 3).numpy())


def _convention(scores: Mapping[str, np.ndarray], key: str, names: Iterable[str], part: slice) -> dict[str, Any]:
    keys = (key, f"{key}_tie_safe")
    means = {k: scores[k][:, :, part].mean(0) for k in keys}  # (3, pools)
    names = list(names)
    noise = {
        noise: {name: {k: float(means[k][level, at]) for k in keys} for at, name in enumerate(names)}
        for level, noise in enumerate(NOISES)
    }
    return {
        "noise": noise,
        "mean": {name: {k: float(means[k][:, at].mean()) for k in keys} for at, name in enumerate(names)},
    }


def _per_sequence(scores: Mapping[str, np.ndarray], sequences: np.ndarray) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in np.unique(sequences):
        members = sequences == name
        result[str(name)] = {"queries": int(members.sum())}
        for level, noise in enumerate(NOISES):
            result[str(name)][noise] = {key: float(ap[members, level, -1].mean()) for key, ap in scores.items()}
    return result
