"""Retrieval within a patch set: how well a patch finds the other patches of its point among all patches."""

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_set import group_by_label
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import comparable_rows, count_closer
from matchkernel.evaluation.metrics import Form, precision_area
from matchkernel.photos.nearest import Distance, Distances

TILE = 2**24  # distances at a time: 128 MiB


def retrieval_map(
    descriptors: np.ndarray | Tensor,
    labels: np.ndarray | Tensor,
    *,
    queries: int | None = None,
    seed: int = 0,
    distance: Distance = "l2",
    form: Form = "step",
    tile: int = TILE,
) -> float:
    """Mean average precision over queries, each against all other patches of the set, ties counted as errors.

    The arguments are those of retrieval_range.
    """
    lowest, _ = retrieval_range(
        descriptors, labels, queries=queries, seed=seed, distance=distance, form=form, tile=tile
    )
    return lowest


def retrieval_range(
    descriptors: np.ndarray | Tensor,
    labels: np.ndarray | Tensor,
    *,
    queries: int | None = None,
    seed: int = 0,
    distance: Distance = "l2",
    form: Form = "step",
    tile: int = TILE,
) -> tuple[float, float]:
    """The lowest and the highest mean average precision that an order of tied distances can give.

    Distances tie that rounding in float64 cannot tell apart.

    A query is a patch that shares its label with another one; its matches are all patches of its label but itself.
    About eight bytes times `tile` times three are needed beside the descriptors in float64.

    Args:
        descriptors: (K, D) numbers, or bits packed in uint8 for hamming; computed on their own device.
        labels: (K,) whole numbers.
        queries: at most so many, drawn without repetition (default: all).
        seed: of that draw.
        distance: "l2", "l1" or "hamming".
        form: "step" or "trapezoid", see precision_area.
        tile: distances held at a time.
    """
    rows = comparable_rows(descriptors, distance).double()
    labels = _checked_labels(labels, len(rows))
    groups = group_by_label(labels)
    ranks = groups.ranks()
    starts, sizes = groups.starts[ranks], groups.sizes[ranks]  # of each patch's label
    chosen = _chosen_queries(sizes, queries, seed)
    distances = Distances(rows, rows, distance)
    step = max(1, tile // max(1, len(rows)))
    totals = [0.0, 0.0]
    for start in range(0, len(chosen), step):
        part = chosen[start : start + step]
        closer, as_close = _count_part(distances, part, (groups.order, starts[part], sizes[part]))
        for number, before in enumerate((as_close, closer)):
            totals[number] += float(precision_area(before, sizes[part] - 1, form).sum())
    return totals[0] / len(chosen), totals[1] / len(chosen)


def _checked_labels(labels: np.ndarray | Tensor, count: int) -> np.ndarray:
    values = labels.detach().cpu().numpy() if isinstance(labels, Tensor) else np.asarray(labels)
    if values.shape != (count,) or values.dtype.kind not in "ui":
        raise ArgumentError(
            f"wanted a whole number a patch, {count} labels, got {values.dtype} of shape {values.shape}"
        )
    return values


def _chosen_queries(sizes: np.ndarray, queries: int | None, seed: int) -> np.ndarray:
    able = np.flatnonzero(sizes > 1)
    if not len(able):
        raise ArgumentError(f"none of the {len(sizes)} patches shares its label with another: nothing can be retrieved")
    if queries is None or queries >= len(able):
        return able
    if queries < 1:
        raise ArgumentError(f"queries must be 1 or more, got {queries}")
    return np.sort(np.random.default_rng(seed).choice(able, queries, replace=False))


def _count_part(
    distances: Distances, part: np.ndarray, groups: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Non-matches before each match of the queries `part`: (Q, T) with ties for the matches, (Q, T) with ties against.

    T is the most matches of a query; -1 where one has fewer.
    """
    device = distances.a.device
    order, starts, sizes = groups
    slots = np.arange(sizes.max())
    is_member = slots < sizes[:, None]
    query, slot = np.nonzero(is_member)
    member = order[starts[query] + slot]
    values = distances.tile(torch.from_numpy(part).to(device))
    query_on, member_on = torch.from_numpy(query).to(device), torch.from_numpy(member).to(device)
    values[query_on, member_on] = torch.inf
    thresholds = torch.full(is_member.shape, torch.inf, dtype=torch.float64, device=device)
    own = torch.from_numpy(part).to(device)
    exact = distances.exact(own[query_on], member_on)
    exact[own[query_on] == member_on] = torch.inf  # the query itself goes to the end, to be cut off
    thresholds[query_on, torch.from_numpy(slot).to(device)] = exact
    thresholds = thresholds.sort(1).values[:, :-1]
    less, at_most = count_closer(values, thresholds, distances.error)
    is_match = slots[:-1] < sizes[:, None] - 1
    return np.where(is_match, less.cpu().numpy(), -1), np.where(is_match, at_most.cpu().numpy(), -1)
