"""Patches to rows on a CPU: what an engine is given, and which patches have no content."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np


def describe_patches(
    patches: np.ndarray, size: int, dtype: str, compute: Callable[[np.ndarray], np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """(b, D) rows and (b,) validity of patches; the row of an invalid one is zeros.

    Args:
        patches: (b, 1, N, N) bytes, or floats of the type `dtype`.
        size: of the patches that `compute` takes.
        dtype: "float32" or "float64".
        compute: (b, 1, size, size) floats to (b, D) unit rows, such as an engine.
    """
    values, good = prepare_patches(patches, size, dtype)
    rows = compute(values)
    squares = np.einsum("ij,ij->i", rows, rows)  # 1, unless a row is zeros or not finite
    good &= (squares > 0) & (squares < np.inf)
    return rows if good.all() else np.where(good[:, None], rows, rows.dtype.type(0)), good


def prepare_patches(patches: np.ndarray, size: int, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Floats of the size that an engine takes, and which patches have content."""
    side, good = patches.shape[-1], has_content(patches)
    if patches.dtype != np.uint8:
        values = np.where(good[:, None, None, None], patches, patches.dtype.type(0))  # keeps NaN out of the network
    elif side == 2 * size:
        values = _halved_bytes(patches).astype(dtype, copy=False)
    else:
        values = patches.astype(dtype)
    if values.shape[-1] != size:
        matrix = _resize_matrix(side, size, dtype)
        values = matrix @ values @ matrix.T
    if side != size:  # a fine checkerboard becomes rounding noise when resized
        good &= has_content(values, 16 * float(np.finfo(dtype).eps))
    return values, good


def has_content(patches: np.ndarray, relative: float = 0.0) -> np.ndarray:
    """(b,) whether a patch is finite, not constant, and its values small enough to sum their squares."""
    flat = patches.reshape(len(patches), math.prod(patches.shape[1:]))
    low, high = flat.min(1), flat.max(1)
    if patches.dtype == np.uint8:
        return np.asarray(low < high)
    with np.errstate(invalid="ignore", over="ignore"):
        largest = np.maximum(np.abs(high), np.abs(low))
        limit = (float(np.finfo(patches.dtype).max) / flat.shape[1]) ** 0.5 / 2
        return np.asarray((largest < limit) & (high - low > relative * largest))


def _halved_bytes(patches: np.ndarray) -> np.ndarray:
    """The resized patches of half the side, equal to the last bit, in a tenth of the time."""
    pairs = np.ascontiguousarray(patches).view(np.uint16)  # two neighbours in a row
    sums = (pairs & 255) + (pairs >> 8)
    return (sums[..., 0::2, :] + sums[..., 1::2, :]).astype(np.float32) * np.float32(0.25)


@cache
def _resize_matrix(old: int, new: int, dtype: str) -> np.ndarray:
    return resize_weights(old, new).astype(dtype)


def resize_weights(old: int, new: int) -> np.ndarray:
    """(new, old) float64 matrix that resizes one axis; every row sums to 1.

    By the exact mean over the area of a new pixel, or by linear interpolation to enlarge. Pixels are unit squares and
    the borders of the patch stay in place. Halving the side takes the mean of 2 x 2 pixels, as HardNet does from 64 to
    32; with a non-integer ratio (65 to 32), partly covered pixels count in part.
    """
    scale = old / new
    left = np.arange(new)[:, None] * scale
    pixel = np.arange(old)
    if new <= old:
        overlap = np.minimum(left + scale, pixel + 1) - np.maximum(left, pixel)
        return np.maximum(overlap, 0) / scale
    # Outside the outermost pixel centres, their values are repeated.
    centre = np.clip(left + scale / 2 - 0.5, 0, old - 1)
    return np.maximum(1 - np.abs(centre - pixel), 0)
