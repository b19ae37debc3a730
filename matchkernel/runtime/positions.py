"""Where the cells of the feature map are, and how positions are encoded: the kernel part of the paper [M5 to M11].

Coordinates of the cells and their weights; the Von Mises kernel on angles, its Fourier coefficients and the feature map
of its truncation; the position matrices F, which are known before any patch is seen.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from matchkernel.runtime.config import STRIDE

SYSTEMS = ("cartesian", "polar")
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


def kernel(delta: np.ndarray, kappa: float) -> np.ndarray:
    """The exact kernel k(delta) = (exp(kappa cos delta) - exp(-kappa)) / (2 sinh kappa): 1 at 0, 0 at pi [M7].

    Args:
        delta: (...) differences of angles in radians.
        kappa: concentration, > 0; the kernel gets narrower as kappa grows.
    """
    # The same fraction, divided by exp(kappa): no overflow for large kappa and no cancellation for small kappa.
    return 1 - np.expm1(kappa * (np.cos(delta) - 1)) / math.expm1(-2 * kappa)


def fourier_coefficients(kappa: float, s: int) -> tuple[float, ...]:
    """gamma_0 .. gamma_s with k(delta) = gamma_0 + sum_i gamma_i cos(i delta) [M8].

    gamma_i = I_i(kappa) / sinh(kappa) by the backward recurrence of the Bessel ratios
    I_i / I_{i-1} = kappa / (2 i + kappa I_{i+1} / I_i), scaled with exp(-kappa) (I_0 + 2 I_1 + 2 I_2 + ...) = 1.
    gamma_0 follows from k(0) = 1, where its own formula would cancel for small kappa.

    Args:
        kappa: concentration, 0 < kappa <= 1e8.
        s: number of frequencies, >= 0.
    """
    highest = s + 20 + math.ceil(10 * math.sqrt(kappa))  # I_i / I_0 is about exp(-i^2 / (2 kappa)): below 1e-21 there
    ratios = [0.0] * (highest + 2)
    for i in range(highest, 0, -1):
        ratios[i] = kappa / (2 * i + kappa * ratios[i + 1])
    bessel_over_first = [1.0]  # I_i / I_0
    for i in range(1, highest + 1):
        bessel_over_first.append(bessel_over_first[-1] * ratios[i])
    scaled_first = 1 / (1 + 2 * math.fsum(bessel_over_first[1:]))  # exp(-kappa) I_0
    gamma = [2 * scaled_first * value / -math.expm1(-2 * kappa) for value in bessel_over_first]
    gamma[0] = 1 - math.fsum(gamma[1:])
    return tuple(gamma[: s + 1])


def truncated_kernel(delta: np.ndarray, gamma: Sequence[float]) -> np.ndarray:
    """The kernel of the first s frequencies: gamma_0 + sum_{i<=s} gamma_i cos(i delta) [M8].

    Args:
        delta: (...) differences of angles in radians.
        gamma: gamma_0 .. gamma_s.
    """
    return np.sum([value * np.cos(i * delta) for i, value in enumerate(gamma)], axis=0)


def feature_map(alpha: np.ndarray, gamma: Sequence[float]) -> np.ndarray:
    """Map angles to vectors whose inner products are the truncated kernel [M9].

    Args:
        alpha: (...) angles in radians.
        gamma: gamma_0 .. gamma_s, not negative.

    Returns:
        (..., 2s + 1): the constant, s cosines, s sines.
    """
    amplitudes = [math.sqrt(value) for value in gamma]
    cosines = [amplitude * np.cos(i * alpha) for i, amplitude in enumerate(amplitudes)]  # i = 0 is the constant
    sines = [amplitude * np.sin(i * alpha) for i, amplitude in enumerate(amplitudes) if i > 0]
    return np.stack(cosines + sines, -1)


def position_codes(system: str, place: Positions, gamma: Sequence[float]) -> np.ndarray:
    """f(first) (x) f(second) of each point, without the weight w_p [M11].

    Args:
        system: "cartesian" (first = x, second = y) or "polar" (first = rho, second = theta).
        place: coordinates of points, each (...).
        gamma: gamma_0 .. gamma_s of the kernel.

    Returns:
        (..., P), P = (2s + 1)^2, first factor slow.
    """
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
