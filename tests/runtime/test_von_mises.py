import json
import math

import numpy as np
import pytest
import scipy.special
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError
from matchkernel.runtime.von_mises import feature_map, fourier_coefficients, kernel, truncated_kernel

kappas = st.floats(-3, 3).map(lambda exponent: 10.0**exponent)
angles = st.floats(-10, 10)


def closed_form(kappa, s):
    """gamma by SciPy's scaled Bessel functions."""
    sinh = -math.expm1(-2 * kappa)
    first = (scipy.special.ive(0, kappa) - math.exp(-2 * kappa)) / sinh
    return [first] + [2 * scipy.special.ive(i, kappa) / sinh for i in range(1, s + 1)]


@given(kappas, st.integers(0, 12))
def test_coefficients_equal_the_closed_form(kappa, s):
    gamma = fourier_coefficients(kappa, s)
    assert len(gamma) == s + 1
    assert gamma == pytest.approx(closed_form(kappa, s), abs=1e-12)
    assert all(math.isfinite(value) and value >= 0 for value in gamma)


@pytest.mark.parametrize("kappa", [1e-3, 0.5, 1, 2, 8, 20, 1e3])
def test_coefficients_keep_their_relative_precision(kappa):
    """Also where they are tiny: gamma_8 of kappa = 1e-3 is about 1e-29."""
    ours, exact = np.array(fourier_coefficients(kappa, 8)[1:]), np.array(closed_form(kappa, 8)[1:])
    assert np.abs(ours / exact - 1).max() < 1e-12


def test_coefficients_equal_the_recorded_ones(golden):
    recorded = json.loads((golden / "von_mises.json").read_text())["kappa"]
    assert len(recorded) == 5
    for kappa, entry in recorded.items():
        exact = [float(digits) for digits in entry["gamma_40_digits"]]
        assert fourier_coefficients(float(kappa), 5) == pytest.approx(exact, abs=1e-15)
        t = np.array(entry["t"])
        assert kernel(t, float(kappa)).tolist() == pytest.approx(entry["k_exact"], abs=1e-14)
        for s, values in entry["k_truncated"].items():
            gamma = fourier_coefficients(float(kappa), int(s.removeprefix("s=")))
            assert truncated_kernel(t, gamma).tolist() == pytest.approx(values, abs=1e-14)


@pytest.mark.parametrize("kappa", [1e-12, 1e-3, 1e3, 1e6])
def test_ends_of_the_range(kappa):
    gamma = fourier_coefficients(kappa, 3)
    assert all(math.isfinite(value) for value in gamma)
    if kappa < 1e-2:
        assert gamma[:2] == pytest.approx((0.5, 0.5), abs=kappa)
        assert gamma[2:] == pytest.approx((0, 0), abs=kappa)


@given(angles, angles, kappas, st.integers(0, 8))
def test_inner_products_of_the_map_are_the_truncated_kernel(alpha, beta, kappa, s):
    gamma = fourier_coefficients(kappa, s)
    a, b = (feature_map(np.array(angle), gamma) for angle in (alpha, beta))
    assert a.shape == (2 * s + 1,)
    expected = sum(value * math.cos(i * (alpha - beta)) for i, value in enumerate(gamma))
    assert float(a @ b) == pytest.approx(expected, abs=1e-12)


@given(angles, st.floats(0.05, 20))
def test_the_truncated_kernel_tends_to_the_exact_one(delta, kappa):
    delta = np.array(delta)
    exact = (math.exp(kappa * math.cos(delta)) - math.exp(-kappa)) / (2 * math.sinh(kappa))
    assert float(kernel(delta, kappa)) == pytest.approx(exact, abs=1e-12)
    assert float(truncated_kernel(delta, fourier_coefficients(kappa, 60))) == pytest.approx(exact, abs=1e-12)


def test_order_of_the_map():
    gamma = fourier_coefficients(8, 2)
    alpha = np.array(0.7)
    root = [math.sqrt(value) for value in gamma]
    expected = [
        root[0],
        root[1] * math.cos(0.7),
        root[2] * math.cos(1.4),
        root[1] * math.sin(0.7),
        root[2] * math.sin(1.4),
    ]
    assert feature_map(alpha, gamma).tolist() == pytest.approx(expected, abs=1e-15)


def test_kernel_is_one_at_zero_and_zero_at_pi():
    delta = np.array([0.0, math.pi])
    for kappa in (1e-3, 1.0, 8.0, 1e3):
        assert kernel(delta, kappa).tolist() == pytest.approx([1, 0], abs=1e-12)


def test_truncation_is_not_monotone_and_we_do_not_claim_it():
    delta = np.deg2rad([0, 108, 180])
    assert truncated_kernel(delta, fourier_coefficients(8, 2)).tolist() == pytest.approx(
        [0.632, -0.117, 0.095], abs=1e-3
    )


@pytest.mark.parametrize("kappa", [0, -1, float("nan"), float("inf"), 1e9])
def test_kappa_that_is_refused(kappa):
    with refuses(ArgumentError):
        fourier_coefficients(kappa, 2)
    with refuses(ArgumentError):
        kernel(np.zeros(1), kappa)


def test_other_arguments_that_are_refused():
    with refuses(ArgumentError):
        fourier_coefficients(1, -1)
    with refuses(ArgumentError):
        feature_map(np.zeros(1), [])
    with refuses(ArgumentError):
        feature_map(np.zeros(1), [0.5, -0.1])
