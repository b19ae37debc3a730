"""The position matrices F: what is known of every cell of the map before any patch is seen [M11]."""

from collections.abc import Sequence

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.runtime.positions import Positions, positions
from matchkernel.runtime.von_mises import feature_map

SYSTEMS = ("cartesian", "polar")


def position_codes(system: str, place: Positions, gamma: Sequence[float]) -> np.ndarray:
    """f(first) (x) f(second) of each point, without the weight w_p [M11].

    Args:
        system: "cartesian" (first = x, second = y) or "polar" (first = rho, second = theta).
        place: coordinates of points, each (...).
        gamma: gamma_0 .. gamma_s of the kernel.

    Returns:
        (..., P), P = (2s + 1)^2, first factor slow.
    """
    if system not in SYSTEMS:
        raise ArgumentError(f"system must be one of {', '.join(SYSTEMS)}, got {system!r}")
    first, second = (place.x, place.y) if system == "cartesian" else (place.rho, place.theta)
    codes = feature_map(first, gamma)[..., :, None] * feature_map(second, gamma)[..., None, :]
    return codes.reshape(*codes.shape[:-2], -1)


def position_matrix(
    system: str,
    n: int,
    gamma: Sequence[float],
    *,
    grid: str = "cells",
    center_weight: bool = True,
) -> np.ndarray:
    """The matrix F of one coordinate system: row p is w_p f(first) (x) f(second) [M11].

    Args:
        system: "cartesian" or "polar".
        n: side of the map, at least 2.
        gamma: gamma_0 .. gamma_s of the kernel.
        grid: see positions.
        center_weight: False leaves w_p out.

    Returns:
        (n * n, P) float64, cells row by row.
    """
    place = positions(n, grid)
    codes = position_codes(system, place, gamma)
    if center_weight:
        codes = codes * place.weight[..., None]
    return codes.reshape(n * n, -1)
