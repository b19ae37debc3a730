"""Descriptors as bytes: rows of length 1, each scaled so that its largest value becomes 127, and rounded.

The scale of a row is not stored: dividing the bytes by their length gives a row of length 1 again. A row takes D bytes
instead of 4 D, and what comes back encodes to the same bytes. docs/collections.md has the measured loss.
"""

import numpy as np

from matchkernel.errors import ArgumentError

LARGEST_BYTE = 127
UNIT_WITHIN = 0.01  # difference of a row's length from 1; float16 rows differ by less than 0.001


def rows_as_bytes(rows: np.ndarray) -> np.ndarray:
    """(K, D) unit rows as int8; a row of zeros stays one. Rows of any other length are refused."""
    rows = np.asarray(rows, np.float32)
    if rows.ndim != 2:
        raise ArgumentError(f"descriptors must have shape (K, D), got {rows.shape}")
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    is_bad = ~((np.abs(lengths - 1) <= UNIT_WITHIN) | (lengths == 0))
    if is_bad.any():
        first = int(is_bad.argmax())
        raise ArgumentError(
            f"only rows of length 1 can be stored as bytes, but row {first} has length {lengths[first]}"
        )
    largest = np.abs(rows).max(1, keepdims=True, initial=0)
    return np.rint(rows * (LARGEST_BYTE / np.where(largest > 0, largest, 1))).astype(np.int8)


def rows_from_bytes(stored: np.ndarray) -> np.ndarray:
    """(K, D) float32 unit rows from int8; a row of zeros stays one."""
    if stored.dtype != np.int8 or stored.ndim != 2:
        raise ArgumentError(f"descriptors stored as bytes are (K, D) int8, got {stored.shape} {stored.dtype}")
    rows = stored.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]  # sums of whole numbers below 2^24: exact
    return rows / np.where(lengths > 0, lengths, 1)
