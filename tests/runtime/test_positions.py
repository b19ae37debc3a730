import json
import math

import numpy as np
import pytest
import scipy.special
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.runtime.positions import (
    coordinates,
    feature_map,
    fourier_coefficients,
    kernel,
    positions,
    truncated_kernel,
)


def wrapped(angle):
    """Angles brought to [-pi, pi)."""
    return (angle + math.pi) % (2 * math.pi) - math.pi


def test_cells_stand_where_the_definition_says():
    place = positions(8)
    for j in range(8):
        for i in range(8):
            u, v = (i + 1 - 4.5) / 4, (j + 1 - 4.5) / 4
            r = math.sqrt(u * u + v * v) / math.sqrt(2)
            assert place.x[j, i] == pytest.approx(u * math.pi / 2, abs=1e-15)
            assert place.y[j, i] == pytest.approx(v * math.pi / 2, abs=1e-15)
            assert place.rho[j, i] == pytest.approx(math.pi * r, abs=1e-15)
            assert place.theta[j, i] == pytest.approx(math.atan2(v, u), abs=1e-15)
            assert place.weight[j, i] == pytest.approx(math.exp(-r * r), abs=1e-15)


def test_x_is_the_column_and_y_the_row_and_theta_turns_from_x_to_y():
    place = positions(4)
    assert (np.diff(place.x, axis=1) > 0).all()
    assert (np.diff(place.x, axis=0) == 0).all()
    assert (np.diff(place.y, axis=0) > 0).all()
    assert 0 < place.theta[3, 3] < math.pi / 2  # right and below


@pytest.mark.parametrize("n", range(2, 18))
@pytest.mark.parametrize("grid", ["cells", "endpoints"])
def test_a_quarter_turn_of_the_map_moves_theta_only(n, grid):
    place = positions(n, grid)
    turned = [np.rot90(values) for values in place]
    assert np.array_equal(turned[2], place.rho)
    assert np.array_equal(turned[4], place.weight)
    change = wrapped(turned[3] - place.theta)
    if n % 2:
        change[n // 2, n // 2] = math.pi / 2  # the centre cell has theta = 0 by convention
    assert np.abs(change - math.pi / 2).max() < 1e-15
    assert np.abs(turned[0] - place.x).max() > 0.1
    assert np.abs(turned[1] - place.y).max() > 0.1


@pytest.mark.parametrize("n", [2, 8, 16])
def test_fields_grid_stands_where_the_receptive_fields_are_centred(n):
    pixels = np.arange(n) * 4.0  # of the centres; the centre of the patch is at (4 n - 1) / 2
    wanted = (pixels - (4 * n - 1) / 2) / (2 * n) * (math.pi / 2)
    place = positions(n, "fields")
    assert np.abs(place.x - wanted[None, :]).max() < 1e-15
    assert np.abs(place.y - wanted[:, None]).max() < 1e-15


def test_ends_of_the_ranges():
    border = coordinates(np.array([-1.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0]))
    assert border.x.tolist() == pytest.approx([-math.pi / 2, math.pi / 2, 0])
    assert border.rho.tolist() == pytest.approx([math.pi, math.pi, 0])
    assert border.weight.tolist() == pytest.approx([math.exp(-1), math.exp(-1), 1])
    assert border.theta[2] == 0


@pytest.mark.parametrize("n", [8, 16])
def test_endpoints_grid_is_the_first_authors(n, golden):
    recorded = np.load(golden / "spatial_encoding.npz")
    place = positions(n, "endpoints")
    rho = place.rho / math.pi  # all recorded with float32 precision
    assert np.abs(place.x / (math.pi / 2) - recorded[f"grid{n}/x"]).max() < 1e-6
    assert np.abs(place.y / (math.pi / 2) - recorded[f"grid{n}/y"]).max() < 1e-6
    assert np.abs(rho / rho.max() - recorded[f"grid{n}/rho"] / recorded[f"grid{n}/rho"].max()).max() < 1e-6
    assert np.abs(place.theta - recorded[f"grid{n}/phi"]).max() < 1e-6
    assert np.abs(place.weight - recorded[f"gmask{n}"]).max() < 1e-6


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
