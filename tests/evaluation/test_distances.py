import numpy as np
import pytest
import torch
from helpers import refuses

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.distances import comparable_rows, count_closer, row_distances

generator = torch.Generator().manual_seed(0)


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


def test_bits_are_unpacked_in_order():
    packed = np.array([[0b10000001, 0], [255, 0b00010000]], np.uint8)
    rows = comparable_rows(packed, "hamming")
    assert np.array_equal(rows.numpy(), np.unpackbits(packed, axis=1))
    assert torch.equal(comparable_rows(torch.from_numpy(packed), "hamming"), rows)
    assert row_distances(packed[:1], packed[1:], "hamming") == [7]


def test_rows_that_cannot_be_compared_are_refused():
    for rows in (np.ones(3), np.ones((2, 0)), np.ones((2, 2, 2)), np.array([[0.0, 1], [2, 1e16]])):
        with refuses(ArgumentError):
            comparable_rows(rows, "l2")
    with refuses(ArgumentTypeError):
        comparable_rows(np.array([["a"]]), "l2")
