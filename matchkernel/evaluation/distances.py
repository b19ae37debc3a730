"""Check descriptors to be compared, and count those closer than a threshold (see photos/nearest.py)."""

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.photos.nearest import LARGEST, Distance
from matchkernel.storage.work import in_threads

DISTANCES: tuple[Distance, ...] = ("l2", "l1", "hamming")


def check_distance(distance: str, dtype: object) -> None:
    """Refuse an unknown distance, and Hamming distance of anything but bits."""
    if distance not in DISTANCES:
        raise ArgumentError(f"distance must be one of {', '.join(DISTANCES)}, got {distance!r}")
    if distance == "hamming" and str(dtype).removeprefix("torch.") != "uint8":
        raise ArgumentTypeError(f"hamming distance needs bits packed in uint8, the descriptors are {dtype}")


def comparable_rows(descriptors: np.ndarray | Tensor, distance: Distance, what: str = "descriptors") -> Tensor:
    """(K, D) float64, or float32 if given as such, on their own device, from numbers of any kind, which are checked.

    For Hamming distance (K, D / 8) uint8 are unpacked. `what` is what messages call them.
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
        # A copy, as torch accepts neither read-only arrays nor negative strides.
        descriptors = torch.from_numpy(np.array(descriptors, dtype=kind, order="C"))
    rows = descriptors.detach()
    if distance == "hamming":
        shifts = torch.arange(7, -1, -1, device=rows.device, dtype=torch.uint8)
        return ((rows[..., None] >> shifts) & 1).flatten(-2).float()
    rows = rows if rows.dtype == torch.float32 else rows.double()
    bad = ~(rows.abs() <= LARGEST).all(1)
    if bool(bad.any()):
        raise ArgumentError(
            f"{what}: row {int(bad.int().argmax())} has a value that is not a number or above {LARGEST:g}"
        )
    return rows


def row_distances(a: np.ndarray, b: np.ndarray, distance: Distance) -> np.ndarray:
    """(M,) distances of the rows of two (M, D) arrays in float32, as the official codes compute them for pairs."""
    if distance == "hamming":
        return np.bitwise_count(a ^ b).sum(1, dtype=np.float32)
    difference = np.subtract(a, b, dtype=np.float32)
    if distance == "l1":
        return np.abs(difference).sum(1)
    return np.sqrt(np.einsum("ij,ij->i", difference, difference))


def count_closer(
    tile: Tensor, thresholds: Tensor, error: float, exact: Callable[[Tensor, Tensor], Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Count in each row the entries closer than each threshold, and those at most the error beyond it.

    Args:
        tile: (Q, M) float64 distances, infinite for entries that do not count.
        thresholds: (Q, T) exact distances; the counts for an infinite one are meaningless.
        error: largest error of the tile.
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
    # NumPy's sort of plain values takes a fifth of the time of torch's, which also returns indices.
    values = tile.numpy()
    if torch.get_num_threads() == 1:
        return torch.from_numpy(np.sort(values, axis=1))
    ranked = np.empty(values.shape, values.dtype)
    bounds = np.linspace(0, len(values), torch.get_num_threads() + 1).astype(int)

    def sort_part(part: slice) -> None:
        ranked[part] = values[part]
        ranked[part].sort(axis=1)

    for _ in in_threads(sort_part, (slice(*part) for part in pairwise(bounds)), len(bounds) - 1):
        pass
    return torch.from_numpy(ranked)
