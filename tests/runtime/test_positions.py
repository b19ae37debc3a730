import math

import numpy as np
import pytest
import torch

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
    assert (place.x.diff(dim=1) > 0).all()
    assert (place.x.diff(dim=0) == 0).all()
    assert (place.y.diff(dim=0) > 0).all()
    assert 0 < place.theta[3, 3] < math.pi / 2  # right and below


@pytest.mark.parametrize("n", range(2, 18))
@pytest.mark.parametrize("grid", ["cells", "endpoints"])
def test_a_quarter_turn_of_the_map_moves_theta_only(n, grid):
    place = positions(n, grid)
    turned = [torch.rot90(values) for values in place]
    assert torch.equal(turned[2], place.rho)
    assert torch.equal(turned[4], place.weight)
    change = wrapped(turned[3] - place.theta)
    if n % 2:
        change[n // 2, n // 2] = math.pi / 2  # the centre cell has theta = 0 by convention
    assert (change - math.pi / 2).abs().max() < 1e-15
    assert (turned[0] - place.x).abs().max() > 0.1
    assert (turned[1] - place.y).abs().max() > 0.1


@pytest.mark.parametrize("n", [2, 8, 16])
def test_fields_grid_stands_where_the_receptive_fields_are_centred(n):
    pixels = torch.arange(n) * 4.0  # of the centres; the centre of the patch is at (4 n - 1) / 2
    wanted = (pixels.double() - (4 * n - 1) / 2) / (2 * n) * (math.pi / 2)
    place = positions(n, "fields")
    assert (place.x - wanted[None, :]).abs().max() < 1e-15
    assert (place.y - wanted[:, None]).abs().max() < 1e-15


def test_maps_of_twice_the_side_sample_the_same_square():
    coarse, fine = positions(8), positions(16)
    mean = fine.x.unfold(0, 2, 2).unfold(1, 2, 2).mean((-1, -2))
    assert (mean - coarse.x).abs().max() < 1e-15


def test_ends_of_the_ranges():
    border = coordinates(torch.tensor([-1.0, 1.0, 0.0]).double(), torch.tensor([1.0, 1.0, 0.0]).double())
    assert border.x.tolist() == pytest.approx([-math.pi / 2, math.pi / 2, 0])
    assert border.rho.tolist() == pytest.approx([math.pi, math.pi, 0])
    assert border.weight.tolist() == pytest.approx([math.exp(-1), math.exp(-1), 1])
    assert border.theta[2] == 0


@pytest.mark.parametrize("n", [8, 16])
def test_endpoints_grid_is_the_first_authors(n, golden):
    recorded = np.load(golden / "spatial_encoding.npz")
    place = positions(n, "endpoints")
    rho = place.rho.numpy() / math.pi  # all recorded with float32 precision
    assert np.abs(place.x.numpy() / (math.pi / 2) - recorded[f"grid{n}/x"]).max() < 1e-6
    assert np.abs(place.y.numpy() / (math.pi / 2) - recorded[f"grid{n}/y"]).max() < 1e-6
    assert np.abs(rho / rho.max() - recorded[f"grid{n}/rho"] / recorded[f"grid{n}/rho"].max()).max() < 1e-6
    assert np.abs(place.theta.numpy() - recorded[f"grid{n}/phi"]).max() < 1e-6
    assert np.abs(place.weight.numpy() - recorded[f"gmask{n}"]).max() < 1e-6


def test_what_is_refused():
    with pytest.raises(ArgumentError, match="at least 2 x 2"):
        positions(1)
    with pytest.raises(ArgumentError, match="cells, endpoints"):
        positions(8, "corners")
