"""Positions of the cells of an n x n feature map in the patch: x, y, rho, theta and the weight w_p [M5, M6, M10]."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from matchkernel.errors import ArgumentError
from matchkernel.model.config import GRIDS, STRIDE
from matchkernel.model.precision import exact_type

OFF_CENTRE = 1.5  # pixels from the centre of a cell's own 4 x 4 pixels to the centre of its receptive field


class Positions(NamedTuple):
    """Coordinates of points of the patch. x, y, rho and theta are angles in radians, ready for the feature map."""

    x: Tensor
    y: Tensor
    rho: Tensor
    theta: Tensor
    weight: Tensor  # w_p


def positions(n: int, grid: str = "cells", device: torch.device | None = None) -> Positions:
    """Coordinates of the cells of an n x n map, each (n, n) float64, indexed [row j, column i].

    Args:
        n: side of the map, at least 2.
        grid: "cells" puts cell centres at (2i - n - 1) / n, i = 1..n, so that maps of every n are samples of the
            same square; "endpoints" puts the first and the last cell on the border; "fields" puts cell i (from 0) where
            its receptive field is centred, at pixel 4 i: 1.5 px left of and above "cells".
        device: where the tensors are made.
    """
    if n < 2:
        raise ArgumentError(f"a position grid needs a map of at least 2 x 2 cells, got n = {n}")
    if grid not in GRIDS:
        raise ArgumentError(f"grid must be one of {', '.join(GRIDS)}, got {grid!r}")
    span = n - 1 if grid == "endpoints" else n
    # 2i - (n + 1) is a whole number, so the axis is exactly odd, and a quarter turn of the grid permutes it exactly.
    axis = torch.arange(1 - n, n, 2, dtype=exact_type(device), device=device) / span
    if grid == "fields":
        axis = axis - OFF_CENTRE / (STRIDE * n / 2)
    return coordinates(axis[None, :].expand(n, n), axis[:, None].expand(n, n))


def coordinates(u: Tensor, v: Tensor) -> Positions:
    """Coordinates of any points of the patch [M5, M6, M10].

    Args:
        u: (...) from -1 at the left border of the patch to 1 at the right.
        v: (...) from -1 at the upper border to 1 at the lower.
    """
    r = ((u * u + v * v) / 2).sqrt()  # 1 at the corner of the patch
    return Positions(
        x=u * (math.pi / 2),
        y=v * (math.pi / 2),
        rho=r * math.pi,
        theta=torch.atan2(v, u),
        weight=torch.exp(-r * r),
    )
