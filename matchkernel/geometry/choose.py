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
        budget: maximum number of keypoints.
        choice: one of the above.
    """
    if choice == "strongest" or len(centers) <= 1:
        rank = -strengths
    elif choice == "largest":
        rank = -sigmas
    elif choice == "spread":
        rank = -suppression_radii(centers, strengths)
    elif choice == "cells":
        rank = _ranks_in_cells(centers, strengths, budget)
    else:
        raise ArgumentError(f"choice must be strongest, largest, spread or cells, got {choice!r}")
    return np.lexsort((-strengths, rank))[:budget]


def suppression_radii(centers: np.ndarray, strengths: np.ndarray, robustness: float = ROBUSTNESS) -> np.ndarray:
    """(K,) distance to the nearest keypoint that is stronger even when its strength is multiplied by `robustness`.

    Infinite where there is none. Exact: all keypoints within one cell's side are in a cell and its eight neighbours;
    for keypoints without one that near, the search is repeated with cells of twice the side. Few are left when cells
    are large, so the number of compared pairs grows with K and not with its square.
    """
    order = np.argsort(-np.asarray(strengths), kind="stable")
    centers, falling = np.asarray(centers, np.float64)[order], -np.asarray(strengths, np.float64)[order]
    stronger = np.searchsorted(robustness * falling, falling)  # the first so many suppress a keypoint
    radii = np.full(len(order), np.inf)
    waiting, side = np.flatnonzero(stronger), _cell_side(centers, 0.5)
    while len(waiting):
        nearest = _nearest_around(centers, waiting, stronger[waiting], side)
        is_sure = nearest <= side  # others may be nearer beyond the neighbouring cells
        radii[waiting[is_sure]] = nearest[is_sure]
        waiting, side = waiting[~is_sure], 2 * side
    result = np.empty(len(order))
    result[order] = radii
    return result


def _nearest_around(centers: np.ndarray, asking: np.ndarray, limits: np.ndarray, side: float) -> np.ndarray:
    """Distance of some keypoints to the nearest of the first `limits` in their cell and the eight around it."""
    K, numbers, width = len(centers), *_cell_numbers(centers, side)
    keys = numbers * K + np.arange(K)  # by cell, then by strength: those that count are a range in each cell
    by_cell = np.argsort(keys)
    offsets = np.array([row * width + column for row in (-1, 0, 1) for column in (-1, 0, 1)])
    firsts = (numbers[asking][:, None] + offsets) * K
    starts = np.searchsorted(keys[by_cell], firsts)
    counts = np.searchsorted(keys[by_cell], firsts + limits[:, None]) - starts
    totals = counts.sum(1)
    nearest = np.full(len(asking), np.inf)
    for part in _parts(totals):
        number = counts[part].ravel()
        places = np.arange(number.sum()) + np.repeat(starts[part].ravel() - np.cumsum(number) + number, number)
        pairs = centers[np.repeat(asking[part], totals[part])] - centers[by_cell[places]]
        some = np.flatnonzero(totals[part])
        begins = (np.cumsum(totals[part]) - totals[part])[some]
        if len(some):
            nearest[part.start + some] = np.minimum.reduceat(np.hypot(pairs[:, 0], pairs[:, 1]), begins)
    return nearest


def _parts(totals: np.ndarray) -> Iterator[slice]:
    """Slices of rows that together have about PAIRS_AT_A_TIME pairs."""
    ends, begin = np.cumsum(totals), 0
    while begin < len(totals):
        before = ends[begin - 1] if begin else 0
        end = max(begin + 1, int(np.searchsorted(ends, before + PAIRS_AT_A_TIME, "right")))
        yield slice(begin, end)
        begin = end


def _cell_side(centers: np.ndarray, per_cell: float) -> float:
    """Side of square cells that would hold so many keypoints if these were evenly spread."""
    extent = np.ptp(centers, axis=0) if len(centers) else np.zeros(2)
    even = float(np.sqrt(per_cell * extent.prod() / max(1, len(centers))))
    return max(even, float(extent.max()) / 1000, 1e-9)  # at most a million cells, also for keypoints on a line


def _cell_numbers(centers: np.ndarray, side: float) -> tuple[np.ndarray, int]:
    """(K,) numbers of the keypoints' cells, row by row with an empty border, and how many there are in a row."""
    cells = np.floor((centers - centers.min(0)) / side).astype(np.int64) + 1
    width = int(cells[:, 0].max()) + 2
    return cells[:, 1] * width + cells[:, 0], width


def _ranks_in_cells(centers: np.ndarray, strengths: np.ndarray, budget: int) -> np.ndarray:
    """(K,) rank of a keypoint in its cell: 0 for the strongest."""
    numbers, _ = _cell_numbers(centers, _cell_side(centers, PER_CELL * len(centers) / max(1, budget)))
    order = np.lexsort((-strengths, numbers))
    is_first = np.diff(numbers[order], prepend=-1) != 0
    places = np.arange(len(order))
    ranks = np.empty(len(order), np.int64)
    ranks[order] = places - np.maximum.accumulate(np.where(is_first, places, 0))
    return ranks
