"""The Von Mises kernel on angles, its Fourier coefficients, and the feature map of its truncation [M7, M8, M9]."""

import math
from collections.abc import Sequence

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.runtime.config import MAX_KAPPA


def kernel(delta: np.ndarray, kappa: float) -> np.ndarray:
    """The exact kernel k(delta) = (exp(kappa cos delta) - exp(-kappa)) / (2 sinh kappa): 1 at 0, 0 at pi [M7].

    Args:
        delta: (...) differences of angles in radians.
        kappa: concentration, > 0; the kernel gets narrower as kappa grows.
    """
    _check_kappa(kappa)
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
    _check_kappa(kappa)
    if s < 0:
        raise ArgumentError(f"s must be 0 or more, got {s}")
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
    if not gamma or min(gamma) < 0:
        raise ArgumentError(f"gamma must be one or more values >= 0, got {list(gamma)}")
    amplitudes = [math.sqrt(value) for value in gamma]
    cosines = [amplitude * np.cos(i * alpha) for i, amplitude in enumerate(amplitudes)]  # i = 0 is the constant
    sines = [amplitude * np.sin(i * alpha) for i, amplitude in enumerate(amplitudes) if i > 0]
    return np.stack(cosines + sines, -1)


def _check_kappa(kappa: float) -> None:
    if not 0 < kappa <= MAX_KAPPA:
        raise ArgumentError(f"kappa must be above 0 and at most {MAX_KAPPA:g}, got {kappa}")
