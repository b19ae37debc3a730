"""Positions of the cells of an n x n feature map in the patch: x, y, rho, theta and the weight w_p [M5, M6, M10]."""

import math
from typing import NamedTuple

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.runtime.config import GRIDS, STRIDE

OFF_CENTRE = 1.5  # pixels from the centre of a cell's own 4 x 4 pixels to the centre of its receptive field


class Positions(NamedTuple):
    """Coordinates of points of the patch. x, y, rho and theta are angles in radians, ready for the feature map."""

    x: np.ndarray
    y: np.ndarray
    rho: np.ndarray
    theta: np.ndarray
    weight: np.ndarray  # w_p


def positions(n: int, grid: str = "cells") -> Positions:
    """Coordinates of the cells of an n x n map, each (n, n) float64, indexed [row j, column i].

    Args:
        n: side of the map, at least 2.
        grid: "cells" puts cell centres at (2i - n - 1) / n, i = 1..n, so that maps of every n are samples of the
            same square; "endpoints" puts the first and the last cell on the border; "fields" puts cell i (from 0) where
            its receptive field is centred, at pixel 4 i: 1.5 px left of and above "cells".
    """
    if n < 2:
        raise ArgumentError(f"a position grid needs a map of at least 2 x 2 cells, got n = {n}")
    if grid not in GRIDS:
        raise ArgumentError(f"grid must be one of {', '.join(GRIDS)}, got {grid!r}")
    span = n - 1 if grid == "endpoints" else n
    # 2i - (n + 1) is a whole number, so the axis is exactly odd, and a quarter turn of the grid permutes it exactly.
    axis = np.arange(1 - n, n, 2) / span
    if grid == "fields":
        axis = axis - OFF_CENTRE / (STRIDE * n / 2)
    return coordinates(np.broadcast_to(axis[None, :], (n, n)), np.broadcast_to(axis[:, None], (n, n)))


def coordinates(u: np.ndarray, v: np.ndarray) -> Positions:
    """Coordinates of any points of the patch [M5, M6, M10].

    Args:
        u: (...) from -1 at the left border of the patch to 1 at the right.
        v: (...) from -1 at the upper border to 1 at the lower.
    """
    r = np.sqrt((u * u + v * v) / 2)  # 1 at the corner of the patch
    return Positions(
        x=u * (math.pi / 2),
        y=v * (math.pi / 2),
        rho=r * math.pi,
        theta=np.arctan2(v, u),
        weight=np.exp(-r * r),
    )
