import numpy as np
import pytest
import torch

from matchkernel.photos.nearest import COLUMNS, TILE, Distances, find_nearest


def nearest(a, b, distance, tile_size=TILE):
    """Index, distance and whether it is the only one; the same with and without the second nearest."""
    found = find_nearest(a, b, distance, wants_second=False, tile=(tile_size, COLUMNS))
    full = find_nearest(a, b, distance, tile=(tile_size, COLUMNS))
    for name in ("index", "first", "is_only"):
        assert np.array_equal(getattr(found, name), getattr(full, name)), name
    return found.index, found.first if distance == "l1" else np.sqrt(found.first), found.is_only


def all_distances(a, b, distance):
    difference = a[:, None].astype(np.float64) - b[None]
    return np.abs(difference).sum(-1) if distance == "l1" else np.sqrt((difference**2).sum(-1))


def test_nearest_is_exact_where_a_product_is_not():
    """Two neighbours that differ in the last bit of float32, far from the origin: a product cannot tell them apart."""
    random = np.random.default_rng(1)
    b = np.repeat((100 + random.normal(size=(50, 32))).astype(np.float32), 2, 0)
    b[1::2, 0] = np.nextafter(b[1::2, 0], np.float32(np.inf))
    for a in (b.copy(), b.astype(np.float64)):
        index, distances, is_only = nearest(a, b.astype(a.dtype), "l2")
        assert np.array_equal(index, np.arange(100))
        assert np.all(distances == 0)
        assert is_only.all()
    b[1::2] = b[::2]
    index, _, is_only = nearest(b, b, "l2")
    assert np.array_equal(index, np.arange(100) // 2 * 2)
    assert not is_only.any()


@pytest.mark.parametrize("distance", ["l2", "l1"])
@pytest.mark.parametrize("scale", [1e-12, 1.0, 1e10])
def test_nearest_by_all_differences_in_any_tiling(distance, scale):
    random = np.random.default_rng(2)
    a = (scale * random.normal(size=(41, 7))).astype(np.float32)
    b = (scale * random.normal(size=(23, 7))).astype(np.float32)
    matrix = all_distances(a, b, distance)
    for tile in (1, 60, 2**22):
        index, distances, is_only = nearest(a, b, distance, tile_size=tile)
        assert np.array_equal(index, matrix.argmin(1))
        assert distances == pytest.approx(matrix.min(1), rel=1e-12)
        assert is_only.all()


@pytest.mark.parametrize("distance", ["l2", "l1"])
@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_copies_and_ties(distance, scale):
    """Few values and few numbers: copies of rows, and different rows at the same distance."""
    random = np.random.default_rng(3)
    for _ in range(20):
        a, b = (scale * random.integers(-1, 2, (n, 3)).astype(np.float32) for n in (30, 40))
        b[::5] = -b[::5] * 0  # zeros of both signs
        matrix = all_distances(a, b, distance)
        index, distances, is_only = nearest(a, b, distance)
        is_tied = matrix <= matrix.min(1, keepdims=True) + 1e-9
        assert np.array_equal(index, is_tied.argmax(1))
        assert distances == pytest.approx(matrix.min(1))
        assert np.array_equal(is_only, is_tied.sum(1) == 1)


def test_a_program_that_allows_coarse_products_gets_exact_neighbours():
    random = np.random.default_rng(4)
    a, b = (random.normal(size=(300, 64)).astype(np.float32) for _ in range(2))
    wanted = nearest(a, b, "l2")
    torch.set_float32_matmul_precision("medium")
    try:
        found = nearest(a, b, "l2")
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    for one, other in zip(found, wanted, strict=True):
        assert np.array_equal(one, other)


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


def rows_of(kind, count, random):
    """(count, 8) rows among which there are ties, or nearly."""
    if kind == "hamming":
        return random.integers(0, 2, (count, 8)).astype(np.float32)
    few = random.integers(-2, 3, (count, 8)).astype(np.float32)
    scale = {"ties": 0.3, "duplicates": 1.0, "tiny": 1e-20, "bytes": 1 / 256, "nearly": 100.0, "float64": 1 / 3}[kind]
    rows = few * np.float32(scale) if kind != "float64" else few * scale
    if kind == "duplicates":
        return np.repeat(random.normal(size=(5, 8)).astype(np.float32), count, 0)[random.permutation(5 * count)[:count]]
    if kind == "nearly":
        up = random.random(rows.shape) < 0.5
        rows[up] = np.nextafter(rows[up], np.float32(np.inf))
    return rows


@pytest.mark.parametrize("kind", ["ties", "duplicates", "tiny", "bytes", "nearly", "float64", "hamming"])
@pytest.mark.parametrize("wants_second", [True, False])
def test_numpy_and_torch_find_the_same(kind, wants_second):
    """The way of a GPU on tensors of a CPU, which have the same functions as its own."""
    random, distance = np.random.default_rng(0), "hamming" if kind == "hamming" else "l2"
    for sizes, tiles in {(1, 1): 1, (7, 2): 3, (60, 90): 2}.items():
        a, b = (rows_of(kind, count, random) for count in sizes)
        squares = ((a[:, None].astype(np.float64) - b[None]) ** 2).sum(-1)
        for tile in ((TILE, COLUMNS), (100, 23), (1, 1))[:tiles]:
            settings = {"wants_second": wants_second, "tile": tile}
            here, there = (find_nearest(a, b, distance, device=place, **settings) for place in ("cpu", "cpu:0"))
            for name in ("index", "first", "second"):
                assert np.array_equal(getattr(here, name), getattr(there, name)), name
                assert isinstance(getattr(there, name), np.ndarray)
            assert here.first == pytest.approx(squares.min(1), rel=1e-12, abs=0)
            if wants_second:
                second = np.partition(squares, 1)[:, 1] if len(b) > 1 else np.full(len(a), np.inf)
                assert here.second == pytest.approx(second, rel=1e-12, abs=0)
