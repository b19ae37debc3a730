"""Distances between descriptors, fast and yet exact where the order of two of them is decided.

A matrix product gives all distances at once, but with a rounding error that breaks ties. So the product only tells
what is certainly closer than a threshold; what is within the error is computed again, one difference at a time.

L2 distances are kept as squares: their order is the same. Hamming distances are the squares of L2 distances of bits.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError

Distance = Literal["l2", "l1", "hamming"]

DISTANCES: tuple[Distance, ...] = ("l2", "l1", "hamming")
PAIRS_AT_A_TIME = 2**16
LARGEST = 1e15  # of a descriptor's values, so that squares and their sums stay far from overflow in float32
FRACTION = 256.0  # descriptors that are multiples of 1/256 and not large have exact products


def check_distance(distance: str, dtype: object) -> None:
    """Refuse an unknown distance, and bits without Hamming or Hamming without bits."""
    if distance not in DISTANCES:
        raise ArgumentError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}")
    if distance == "hamming" and str(dtype).removeprefix("torch.") != "uint8":
        raise ArgumentTypeError(f"hamming distance is between bits packed in uint8, the descriptors are {dtype}")


def comparable_rows(descriptors: np.ndarray | Tensor, distance: Distance, what: str = "descriptors") -> Tensor:
    """Check descriptors and bring them to numbers: bits are unpacked for Hamming distance.

    Args:
        descriptors: (K, D) integers or floats; for Hamming (K, D / 8) uint8.
        distance: the distance they are meant for.
        what: named in the error.

    Returns:
        (K, D) float64, or float32 where they came as such, on their own device.
    """
    if not isinstance(descriptors, np.ndarray | Tensor):
        raise ArgumentTypeError(f"{what} must be a numpy array or a torch tensor, got {type(descriptors).__name__}")
    if descriptors.ndim != 2 or not descriptors.shape[1]:
        raise ArgumentError(f"{what} must have shape (K, D), got {tuple(descriptors.shape)}")
    check_distance(distance, descriptors.dtype)
    if isinstance(descriptors, np.ndarray):
        if descriptors.dtype.kind not in "uif":
            raise ArgumentTypeError(f"{what} must be numbers, got {descriptors.dtype}")
        kind = descriptors.dtype if descriptors.dtype in (np.uint8, np.float32) else np.float64
        # A copy: torch takes neither read-only arrays nor strides below zero.
        descriptors = torch.from_numpy(np.array(descriptors, dtype=kind, order="C"))
    rows = descriptors.detach()
    if distance == "hamming":
        shifts = torch.arange(7, -1, -1, device=rows.device, dtype=torch.uint8)
        return ((rows[..., None] >> shifts) & 1).flatten(-2).float()
    rows = rows if rows.dtype == torch.float32 else rows.double()
    bad = ~(rows.abs() <= LARGEST).all(1)
    if bool(bad.any()):
        raise ArgumentError(f"{what}: row {int(bad.int().argmax())} has a value that is no number or above {LARGEST:g}")
    return rows


def column_offsets(b: Tensor, distance: Distance) -> Tensor:
    """(M,) what distance_tile adds to each column of (M, D) rows; set one to infinity to leave that row out."""
    return b.square().sum(1) if distance != "l1" else torch.zeros(len(b), dtype=b.dtype, device=b.device)


def distance_tile(a: Tensor, b: Tensor, offsets: Tensor, distance: Distance) -> Tensor:
    """(Q, M) squared L2 (or L1) distances of (Q, D) and (M, D) float64 rows, with an error below tile_error.

    Args:
        a: (Q, D).
        b: (M, D).
        offsets: (M,) column_offsets of b.
        distance: which.
    """
    if distance == "l1":
        return torch.cdist(a, b, p=1).add_(offsets)
    return torch.addmm(offsets[None], a, b.T, alpha=-2).add_(a.square().sum(1)[:, None])


def tile_error(a: Tensor, b: Tensor, distance: Distance) -> float:
    """How far a distance_tile may be from pair_distances: 0 where all products and sums are exact."""
    longest = max((float(rows.square().sum(1).max()) if len(rows) else 0.0) for rows in (a, b))
    largest = max((float(rows.abs().max()) if len(rows) else 0.0) for rows in (a, b))
    exact = all(bool((rows * FRACTION == (rows * FRACTION).round()).all()) for rows in (a, b))
    D = a.shape[1]
    unit = torch.finfo(torch.float64).eps
    if exact and 4 * FRACTION**2 * longest * unit < 1:
        return 0.0
    # Sums of D products: at most D + 2 roundings of a term of this size; the direct sum has as many.
    return 2 * (D + 4) * unit * (4 * longest if distance != "l1" else 2 * D * largest)


def pair_distances(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor, distance: Distance) -> Tensor:
    """(M,) float64 squared L2 (or L1) distances of a[rows] and b[columns], each from its own differences.

    Args:
        a: (K, D) rows.
        b: (L, D) rows.
        rows: (M,) indices of a.
        columns: (M,) indices of b.
        distance: which.
    """
    found = torch.empty(len(rows), dtype=torch.float64, device=a.device)
    for start in range(0, len(rows), PAIRS_AT_A_TIME):
        part = slice(start, start + PAIRS_AT_A_TIME)
        difference = a[rows[part]].double() - b[columns[part]].double()
        found[part] = difference.abs().sum(1) if distance == "l1" else difference.square().sum(1)
    return found


def row_distances(a: np.ndarray, b: np.ndarray, distance: Distance) -> np.ndarray:
    """(M,) distances of the rows of two (M, D) arrays in float32, as the official codes take them for pairs."""
    if distance == "hamming":
        return np.bitwise_count(a ^ b).sum(1, dtype=np.float32)
    difference = np.subtract(a, b, dtype=np.float32)
    if distance == "l1":
        return np.abs(difference).sum(1)
    return np.sqrt(np.einsum("ij,ij->i", difference, difference))


def count_closer(
    tile: Tensor, thresholds: Tensor, error: float, exact: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Count in each row what is closer than each threshold, and what is not farther by more than the error.

    Args:
        tile: (Q, M) float64 distances, infinite for what does not count.
        thresholds: (Q, T) exact distances; the counts below an infinite one mean nothing.
        error: of the tile, see tile_error.
        exact: (m,) rows and (m,) columns of the tile -> (m,) exact distances. With it the first count is that of
            exact distances; without it, of those closer by more than the error.

    Returns:
        (Q, T) int64 and (Q, T) int64.
    """
    ranked = _sorted_rows(tile)
    least = torch.searchsorted(ranked, thresholds - error)
    most = torch.searchsorted(ranked, thresholds + error, right=True)
    if error == 0 or exact is None:
        return least, most
    is_unsure = (most > least) & thresholds.isfinite()
    unsure = is_unsure.any(1).nonzero()[:, 0]
    if len(unsure):
        part, wanted = tile[unsure], thresholds[unsure]
        near = torch.zeros(part.shape, dtype=torch.bool, device=tile.device)
        for t in is_unsure.any(0).nonzero()[:, 0]:
            here = is_unsure[unsure, t].nonzero()[:, 0]
            near[here] |= (part[here] - wanted[here, t, None]).abs() <= error
        rows, columns = near.nonzero(as_tuple=True)
        part[rows, columns] = exact(unsure[rows], columns)
        least[unsure] = torch.searchsorted(_sorted_rows(part), wanted)
    return least, most


def _sorted_rows(tile: Tensor) -> Tensor:
    if tile.device.type != "cpu":
        return tile.sort(1).values
    # NumPy's sort of plain values takes a fifth of the time of torch's, which keeps track of places.
    values = tile.numpy()
    if torch.get_num_threads() == 1:
        return torch.from_numpy(np.sort(values, axis=1))
    ranked = np.empty(values.shape, values.dtype)
    bounds = np.linspace(0, len(values), torch.get_num_threads() + 1).astype(int)

    def sort_part(part: slice) -> None:
        ranked[part] = values[part]
        ranked[part].sort(axis=1)

    with ThreadPoolExecutor(len(bounds) - 1) as pool:
        list(pool.map(sort_part, (slice(*part) for part in pairwise(bounds))))
    return torch.from_numpy(ranked)
