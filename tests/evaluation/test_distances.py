import numpy as np
import pytest
import torch

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.distances import (
    column_offsets,
    comparable_rows,
    count_closer,
    distance_tile,
    pair_distances,
    row_distances,
    tile_error,
)

generator = torch.Generator().manual_seed(0)


def random_rows(count, D=24, offset=0.0):
    return torch.randn(count, D, generator=generator, dtype=torch.float64) + offset


@pytest.mark.parametrize("distance", ["l2", "l1"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_tile_is_within_its_error(distance, offset):
    a, b = random_rows(17, offset=offset), random_rows(29, offset=offset)
    tile = distance_tile(a, b, column_offsets(b, distance), distance)
    rows, columns = (grid.flatten() for grid in torch.meshgrid(torch.arange(17), torch.arange(29), indexing="ij"))
    exact = pair_distances(a, b, rows, columns, distance).reshape(17, 29)
    difference = (a[:, None] - b[None]).abs()
    assert torch.allclose(exact, difference.sum(2) if distance == "l1" else difference.square().sum(2), rtol=1e-14)
    assert 0 < float((tile - exact).abs().max()) < tile_error(a, b, distance) or distance == "l1"


def test_whole_numbers_have_no_error():
    a, b = random_rows(9).mul(8).round() / 8, random_rows(11).mul(8).round() / 8
    assert tile_error(a, b, "l2") == 0
    rows, columns = (grid.flatten() for grid in torch.meshgrid(torch.arange(9), torch.arange(11), indexing="ij"))
    tile = distance_tile(a, b, column_offsets(b, "l2"), "l2")
    assert torch.equal(tile.flatten(), pair_distances(a, b, rows, columns, "l2"))
    assert tile_error(a + 1e9, b, "l2") > 0
    assert tile_error(a + 0.1, b, "l2") > 0


@pytest.mark.parametrize("threads", [1, 2])
def test_counts_are_exact_however_wrong_the_tile_is_within_its_error(threads):
    exact = torch.randint(0, 6, (40, 90), generator=generator).double()
    thresholds = torch.randint(0, 6, (40, 3), generator=generator).double()
    error = 0.01
    tile = exact + error * (2 * torch.rand(exact.shape, generator=generator, dtype=torch.float64) - 1)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        less, at_most = count_closer(tile, thresholds, error, lambda rows, columns: exact[rows, columns])
    finally:
        torch.set_num_threads(before)
    assert torch.equal(less, (exact[:, None] < thresholds[..., None]).sum(2))
    assert torch.equal(at_most, (exact[:, None] <= thresholds[..., None]).sum(2))


def test_a_row_left_out_is_never_close():
    a, b = random_rows(3), random_rows(5)
    for distance in ("l2", "l1"):
        offsets = column_offsets(b, distance)
        offsets[2] = torch.inf
        assert torch.isinf(distance_tile(a, b, offsets, distance)).sum(0).tolist() == [0, 0, 3, 0, 0]


def test_bits_are_unpacked_in_order():
    packed = np.array([[0b10000001, 0], [255, 0b00010000]], np.uint8)
    rows = comparable_rows(packed, "hamming")
    assert np.array_equal(rows.numpy(), np.unpackbits(packed, axis=1))
    assert torch.equal(comparable_rows(torch.from_numpy(packed), "hamming"), rows)
    assert row_distances(packed[:1], packed[1:], "hamming") == [7]


def test_rows_that_cannot_be_compared():
    for rows in (np.ones(3), np.ones((2, 0)), np.ones((2, 2, 2))):
        with pytest.raises(ArgumentError, match=r"shape \(K, D\)"):
            comparable_rows(rows, "l2")
    with pytest.raises(ArgumentError, match="mine: row 1 has"):
        comparable_rows(np.array([[0.0, 1], [2, 1e16]]), "l2", "mine")
    with pytest.raises(ArgumentTypeError, match="must be numbers"):
        comparable_rows(np.array([["a"]]), "l2")
