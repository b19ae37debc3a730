"""Nearest neighbours are those of brute force in float64: of any rows, in any tiles, by numpy and by torch."""

import numpy as np
import pytest
import torch

from matchkernel.photos.nearest import COLUMNS, TILE, Distances, find_nearest

SCALES = {"ties": 0.3, "whole": 1.0, "tiny": 1e-20, "bytes": 1 / 256, "nearly": 100.0, "float64": 1 / 3}
EXACT = ("whole", "bytes", "bits", "duplicates", "small", "huge")  # equal distances are equal in any order of the sum


def rows_of(kind, count, random):
    """(count, 8) rows, among which most kinds have ties, or nearly."""
    if kind == "bits":
        return random.integers(0, 2, (count, 8)).astype(np.float32)
    if kind in ("small", "huge"):
        return ((1e-12 if kind == "small" else 1e10) * random.normal(size=(count, 8))).astype(np.float32)
    if kind == "duplicates":
        return np.repeat(random.normal(size=(5, 8)).astype(np.float32), count, 0)[random.permutation(5 * count)[:count]]
    few = random.integers(-2, 3, (count, 8)).astype(np.float64 if kind == "float64" else np.float32)
    rows = few * few.dtype.type(SCALES[kind])
    if kind == "nearly":
        up = random.random(rows.shape) < 0.5
        rows[up] = np.nextafter(rows[up], np.float32(np.inf))
    return rows


@pytest.mark.parametrize("kind", [*SCALES, "bits", "duplicates", "small", "huge"])
@pytest.mark.parametrize("distance", ["l2", "l1", "hamming"])
@pytest.mark.parametrize("wants_second", [True, False])
def test_neighbours_are_those_of_brute_force(kind, distance, wants_second):
    """Also the way of a GPU, on tensors of a CPU, which have the same functions as its own."""
    if distance == "hamming" and kind != "bits":
        return
    random = np.random.default_rng(0)
    for sizes, tiles in {(1, 1): 1, (7, 2): 3, (60, 90): 2}.items():
        a, b = (rows_of(kind, count, random) for count in sizes)
        differences = np.abs(a[:, None].astype(np.float64) - b)
        table = differences.sum(-1) if distance == "l1" else (differences**2).sum(-1)
        is_nearest = table <= table.min(1, keepdims=True) * (1 + 1e-12)
        for tile in ((TILE, COLUMNS), (100, 23), (1, 1))[:tiles]:
            settings = {"wants_second": wants_second, "tile": tile}
            here, there = (find_nearest(a, b, distance, device=place, **settings) for place in ("cpu", "cpu:0"))
            for name in ("index", "first", "second"):
                assert np.array_equal(getattr(here, name), getattr(there, name)), name
                assert isinstance(getattr(there, name), np.ndarray)
            assert is_nearest[np.arange(len(a)), here.index].all()
            assert np.array_equal(here.index, is_nearest.argmax(1)) or kind not in EXACT
            assert here.first == pytest.approx(table.min(1), rel=1e-12, abs=0)
            assert np.array_equal(here.is_only, is_nearest.sum(1) == 1)
            if wants_second:
                second = np.partition(table, 1)[:, 1] if len(b) > 1 else np.full(len(a), np.inf)
                assert here.second == pytest.approx(second, rel=1e-12, abs=0)


def test_nearest_is_exact_where_a_product_is_not():
    """Two neighbours that differ in the last bit of float32, far from the origin: a product cannot tell them apart."""
    b = np.repeat((100 + np.random.default_rng(1).normal(size=(50, 32))).astype(np.float32), 2, 0)
    b[1::2, 0] = np.nextafter(b[1::2, 0], np.float32(np.inf))
    for rows in (b, b.astype(np.float64)):
        found = find_nearest(rows, rows)
        assert np.array_equal(found.index, np.arange(100))
        assert not found.first.any()
        assert found.is_only.all()


def test_a_program_that_allows_coarse_products_gets_exact_neighbours():
    a, b = np.random.default_rng(4).normal(size=(2, 300, 64)).astype(np.float32)
    torch.set_float32_matmul_precision("medium")
    try:
        found, wanted = find_nearest(a, b, device="cpu:0"), find_nearest(a, b)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    for name in ("index", "first", "second"):
        assert np.array_equal(getattr(found, name), getattr(wanted, name))


@pytest.mark.parametrize("distance", ["l2", "l1"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_a_tile_is_within_its_error(distance, dtype, offset):
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(count, 24, generator=generator, dtype=torch.float64) + offset for count in (17, 29))
    rows, columns = (grid.flatten() for grid in torch.meshgrid(torch.arange(17), torch.arange(29), indexing="ij"))
    between = Distances(a, b, distance, dtype)
    exact = between.exact(rows, columns).reshape(17, 29)
    difference = (a[:, None] - b[None]).abs()
    assert torch.allclose(exact, difference.sum(2) if distance == "l1" else difference.square().sum(2), rtol=1e-14)
    largest = float((between.tile(slice(None)) - exact).abs().max())
    assert 0 < largest < between.error or distance == "l1"
    assert torch.equal(between.tile(torch.tensor([3, 5]), slice(4, 9)), between.tile(slice(3, 6, 2))[:, 4:9])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_whole_numbers_and_fractions_of_256_have_no_error(dtype):
    generator = torch.Generator().manual_seed(0)
    for step in (1, 8):
        a, b = (torch.randn(count, 24, generator=generator).mul(8).round() / step for count in (9, 11))
        between = Distances(a, b, "l2", dtype)
        assert between.error == 0 or (dtype, step) == ("float32", 8)
        rows, columns = (grid.flatten() for grid in torch.meshgrid(torch.arange(9), torch.arange(11), indexing="ij"))
        assert torch.equal(between.tile(slice(None)).double().flatten(), between.exact(rows, columns))
        assert Distances(a + 1e6, b, "l2", "float32").error > 0
        assert Distances(a + 0.1, b, "l2", dtype).error > 0
