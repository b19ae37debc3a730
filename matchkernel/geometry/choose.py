"""Choose which keypoints fill a budget: the strongest, the largest, or ones spread over the image."""

from collections.abc import Iterator
from typing import Literal

import numpy as np

from matchkernel.errors import ArgumentError

Choice = Literal["strongest", "largest", "spread", "cells"]
# Brown, Szeliski and Winder 2005: a keypoint is suppressed only by one that is clearly stronger.
ROBUSTNESS = 0.9
PER_CELL = 4  # keypoints in a cell of an evenly filled image
PAIRS_AT_A_TIME = 2**20


def choose(
    centers: np.ndarray, sigmas: np.ndarray, strengths: np.ndarray, budget: int, choice: Choice = "strongest"
) -> np.ndarray:
    """Indices of at most `budget` of K keypoints, the best first; ties go to the stronger, then to the earlier one.

    - strongest: by strength;
    - largest: by sigma, as COLMAP does;
    - spread: by suppression radius, the distance to the nearest keypoint that is clearly stronger (adaptive
      non-maximal suppression);
    - cells: the best of every square cell, then the second best of every cell, and so on.

    Args:
        centers: (K, 2) x and y.
        sigmas: (K,) sizes.
        strengths: (K,) not negative.
        budget: how many.
        choice: how.
    """
    if choice == "strongest" or len(centers) <= 1:
        rank = -strengths
    elif choice == "largest":
        rank = -sigmas
    elif choice == "spread":
        rank = -suppression_radii(centers, strengths)
    elif choice == "cells":
        rank = _turns(centers, strengths, budget)
    else:
        raise ArgumentError(f"choice must be strongest, largest, spread or cells, got {choice!r}")
    return np.lexsort((-strengths, rank))[:budget]


def suppression_radii(centers: np.ndarray, strengths: np.ndarray, robustness: float = ROBUSTNESS) -> np.ndarray:
    """(K,) distance to the nearest keypoint that is stronger even when its strength is multiplied by `robustness`.

    Infinite where there is none. Exact: all keypoints within one cell's side are seen in a cell and its eight
    neighbours; those that find nobody within that distance look again in cells of twice the side. There are fewer of
    them the larger the cells, so the number of pairs looked at grows with K and not with its square.
    """
    centers = np.asarray(centers, np.float64)
    radii = np.full(len(centers), np.inf)
    reduced = robustness * np.asarray(strengths, np.float64)
    waiting = np.flatnonzero(strengths < reduced.max(initial=-np.inf))
    extent = np.ptp(centers, axis=0) if len(centers) else np.zeros(2)
    side = max(float(np.sqrt(2 * extent.prod() / max(1, len(centers)))), float(extent.max()) / 1000, 1e-9)
    while len(waiting):
        nearest = np.full(len(waiting), np.inf)
        for rows, others in _neighbours(centers, waiting, side):
            asking = waiting[rows]
            are_stronger = reduced[others] > strengths[asking]
            rows, asking, others = rows[are_stronger], asking[are_stronger], others[are_stronger]
            np.minimum.at(nearest, rows, np.hypot(*(centers[asking] - centers[others]).T))
        found = nearest <= side  # others may be nearer beyond the neighbouring cells
        radii[waiting[found]] = nearest[found]
        waiting, side = waiting[~found], 2 * side
    return radii


def _neighbours(centers: np.ndarray, asking: np.ndarray, side: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Pairs (row of `asking`, index of a keypoint in its cell or one of the eight around it), some at a time."""
    cells = np.floor((centers - centers.min(0)) / side).astype(np.int64) + 1  # with an empty border all around
    width = int(cells[:, 0].max()) + 2
    numbers = cells[:, 1] * width + cells[:, 0]
    by_cell = np.argsort(numbers, kind="stable")
    in_order = numbers[by_cell]
    # The three cells of a row are neighbours in this order, so three ranges hold all nine.
    firsts = numbers[asking][:, None] + np.array([-width - 1, -1, width - 1])
    starts = np.searchsorted(in_order, firsts)
    counts = np.searchsorted(in_order, firsts + 3) - starts
    totals = np.cumsum(counts.sum(1))
    begin = 0
    while begin < len(asking):
        before = totals[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(totals, before + PAIRS_AT_A_TIME, "right")))
        part = counts[begin:end].ravel()
        offsets = np.arange(part.sum()) - np.repeat(np.cumsum(part) - part, part)
        places = np.repeat(starts[begin:end].ravel(), part) + offsets
        yield np.repeat(np.arange(begin, end), counts[begin:end].sum(1)), by_cell[places]
        begin = end


def _turns(centers: np.ndarray, strengths: np.ndarray, budget: int) -> np.ndarray:
    """(K,) in which turn a keypoint is taken: 0 for the strongest of its cell."""
    extent = np.ptp(centers, axis=0)
    side = max(float(np.sqrt(PER_CELL * extent.prod() / max(1, budget))), float(extent.max()) / 1000, 1e-9)
    cells = np.floor((centers - centers.min(0)) / side).astype(np.int64)
    numbers = cells[:, 1] * (int(cells[:, 0].max()) + 1) + cells[:, 0]
    order = np.lexsort((-strengths, numbers))
    is_first = np.diff(numbers[order], prepend=-1) != 0
    places = np.arange(len(order))
    turns = np.empty(len(order), np.int64)
    turns[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return turns
