import numpy as np
import pytest
import torch

from matchkernel.evaluation.hpatches.matching import nearest


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


def test_one_patch():
    index, distances, is_only = nearest(np.array([[3.0, 4]]), np.zeros((1, 2)), "l2")
    assert (index.tolist(), distances.tolist(), is_only.tolist()) == ([0], [5.0], [True])


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
