import numpy as np
import pytest
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.storage.arrays import rows_as_bytes, rows_from_bytes


def unit_rows(K, D, seed=0):
    rows = np.random.default_rng(seed).standard_normal((K, D)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.mark.parametrize("D", [1, 2, 64, 128, 512])
def test_there_and_back(D):
    """Each value is off by at most half a step, 1/254 of the largest, and a little from the new length."""
    rows = unit_rows(200, D)
    stored = rows_as_bytes(rows)
    back = rows_from_bytes(stored)
    assert stored.dtype == np.int8
    assert stored.shape == rows.shape
    assert (np.abs(stored.astype(int)).max(1) == 127).all()
    assert np.linalg.norm(back, axis=1) == pytest.approx(1, abs=1e-6)
    steps = np.abs(rows).max(1, keepdims=True) / 127
    assert (np.abs(back - rows) <= 0.75 * steps).all()
    assert (rows_as_bytes(back) == stored).all()


def test_distances_hardly_change():
    """Unrelated and nearly equal rows: squared distances within 1 % or 0.0005."""
    a = unit_rows(300, 128)
    b = a + 0.02 * unit_rows(300, 128, seed=1)
    b = np.concatenate([b / np.linalg.norm(b, axis=1, keepdims=True), unit_rows(300, 128, seed=2)])

    def squares(x, y):
        return np.square(np.concatenate([x, x]) - y).sum(1)

    before, after = squares(a, b), squares(rows_from_bytes(rows_as_bytes(a)), rows_from_bytes(rows_as_bytes(b)))
    assert np.abs(after - before).max() < 5e-4 + 0.01 * before.max()
    assert np.abs(after - before)[:300].max() < 5e-4


def test_rows_without_content_stay_zero():
    rows = unit_rows(3, 8)
    rows[1] = 0
    assert not rows_as_bytes(rows)[1].any()
    assert not rows_from_bytes(rows_as_bytes(rows))[1].any()
    assert rows_as_bytes(np.empty((0, 128), np.float32)).shape == (0, 128)
    assert rows_from_bytes(np.empty((0, 128), np.int8)).shape == (0, 128)


def test_what_is_refused():
    rows = unit_rows(3, 8)
    for wrong in (rows * 2, np.where(np.arange(3)[:, None] == 2, np.nan, rows), rows[0]):
        with refuses(ArgumentError):
            rows_as_bytes(wrong)
    with refuses(ArgumentError):
        rows_from_bytes(rows)
