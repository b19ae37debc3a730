"""Calibrate limits for matches on image pairs with known homographies: maximum distance and maximum ratio.

Every function takes, for each pair of images, (M, 3) distances of its mutual nearest neighbours, 1 where they are
right, and ratios. Every pair of images counts the same.
"""

from collections.abc import Sequence

import numpy as np

DISTANCE, RIGHT, RATIO = 0, 1, 2  # columns
RATIOS = (0.75, 0.8, 0.85, 0.9, 0.95)


def threshold_of(parts: Sequence[np.ndarray], column: int = DISTANCE) -> float | None:
    """The distance (or ratio) up to which right matches most outnumber wrong ones; None without matches."""
    rows, weights = _weighted(parts)
    if not len(rows):
        return None
    order = np.argsort(rows[:, column], kind="stable")
    gain = np.cumsum((weights * np.where(rows[:, RIGHT] > 0, 1, -1))[order])
    return float(rows[order[gain.argmax()], column])


def shares_of_right(parts: Sequence[np.ndarray]) -> dict[str, float]:
    """Share of right matches among those below each of RATIOS; a ratio without matches is left out."""
    rows, weights = _weighted(parts)
    kept = {ratio: weights * (rows[:, RATIO] < ratio) for ratio in RATIOS}
    return {str(ratio): float((part * rows[:, RIGHT]).sum() / part.sum()) for ratio, part in kept.items() if part.any()}


def _weighted(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The matches of all pairs, and their weights."""
    parts = [np.asarray(part, np.float64).reshape(-1, 3) for part in parts if len(part)]
    if not parts:
        return np.empty((0, 3)), np.empty(0)
    return np.concatenate(parts), np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
