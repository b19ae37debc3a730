import math

import numpy as np
import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.runtime.positions import coordinates, positions


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


def test_maps_of_twice_the_side_sample_the_same_square():
    coarse, fine = positions(8), positions(16)
    mean = fine.x.reshape(8, 2, 8, 2).mean((1, 3))
    assert np.abs(mean - coarse.x).max() < 1e-15


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


def test_what_is_refused():
    with refuses(ArgumentError):
        positions(1)
    with refuses(ArgumentError):
        positions(8, "corners")
