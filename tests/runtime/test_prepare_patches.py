"""What a CPU makes of patches by numpy is what a GPU makes of them by torch."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.model import describe as on_torch
from matchkernel.runtime.onnx import describe_patches, has_content, prepare_patches

ODD = {
    "constant": lambda patch: np.full_like(patch, 7),
    "checkerboard": lambda patch: (np.indices(patch.shape[1:]).sum(0)[None] % 2 * 200).astype(patch.dtype),
    "columns": lambda patch: np.broadcast_to(np.arange(patch.shape[-1]) % 2 * 3, patch.shape).astype(patch.dtype),
    "one pixel": lambda patch: (np.arange(patch.size) == 5).reshape(patch.shape).astype(patch.dtype),
    "darkest": np.zeros_like,
}
ODD_FLOATS = {
    "NaN": lambda patch: np.where(patch == patch.max(), np.nan, patch).astype(patch.dtype),
    "infinite": lambda patch: np.where(patch == patch.max(), np.inf, patch).astype(patch.dtype),
    "-infinite": lambda patch: np.full_like(patch, -np.inf),
    "too large": lambda patch: patch * patch.dtype.type(np.finfo(patch.dtype).max / 1e5),
    "tiny": lambda patch: patch * patch.dtype.type(1e-30),
    "faint": lambda patch: np.float64(1e4) + patch * np.finfo(patch.dtype).eps,
    "negative": np.negative,
}


def patches_of(dtype, size):
    plain = np.random.default_rng(size).integers(0, 256, (1, size, size)).astype(dtype)
    odd = ODD if dtype == np.uint8 else ODD | ODD_FLOATS
    with np.errstate(over="ignore"):
        return np.stack([plain, *(change(plain).astype(dtype) for change in odd.values())])


@pytest.mark.parametrize(("size", "wanted"), [(32, 32), (64, 32), (65, 32), (48, 32), (16, 32), (128, 32)])
@pytest.mark.parametrize(("kind", "dtype"), [("uint8", "float32"), ("uint8", "float64"), ("float32", "float32"),
                                             ("float64", "float64")])  # fmt: skip
def test_patches_are_prepared_as_on_a_gpu(kind, dtype, size, wanted):
    patches = patches_of(np.dtype(kind), size)
    before = patches.copy()
    values, good = prepare_patches(patches, wanted, dtype)
    expected, valid = on_torch._prepared(torch.from_numpy(patches), wanted, getattr(torch, dtype))
    assert good.tolist() == valid.tolist()
    assert good[0]
    assert not good[1]
    assert (values.dtype, values.shape) == (np.dtype(dtype), (len(patches), 1, wanted, wanted))
    assert np.isfinite(values).all()
    largest = np.abs(patches[good]).max(initial=1, axis=(1, 2, 3), keepdims=True).astype(np.float64)
    difference = np.abs(values[good] - expected.numpy()[good].astype(np.float64))
    assert (difference / largest).max() < 8 * np.finfo(dtype).eps
    if kind == "uint8" and size in (32, 64, 128):  # sums of bytes are exact
        assert np.array_equal(values, expected.numpy())
    assert np.array_equal(patches, before, equal_nan=kind != "uint8")


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
@given(relative=st.sampled_from([0.0, 2e-6, 1e-3]), seed=st.integers(0, 999), power=st.integers(-40, 40))
def test_content_is_judged_as_on_a_gpu(dtype, relative, seed, power):
    random = np.random.default_rng(seed)
    patches = random.integers(0, 3, (40, 1, 2, 2)).astype(dtype)
    if dtype != "uint8":
        with np.errstate(over="ignore"):
            patches = (1 + patches * 10.0 ** random.integers(-9, 3)) * np.float64(10.0) ** power
            patches = patches.astype(dtype)
        patches[random.random(patches.shape) < 0.02] = random.choice([np.nan, np.inf, -np.inf, 0])
    assert (
        has_content(patches, relative).tolist() == on_torch._has_content(torch.from_numpy(patches), relative).tolist()
    )


@pytest.mark.parametrize("bad", [0.0, np.nan, np.inf, 1e30])
def test_a_row_that_cannot_be_used_becomes_zeros_and_invalid(bad):
    patches = patches_of(np.dtype("uint8"), 8)[:1].repeat(3, 0)
    rows = np.eye(3, 5, dtype=np.float32)
    rows[1] = bad
    found, good = describe_patches(patches, 8, "float32", lambda values: rows)
    assert good.tolist() == [True, False, True]
    assert np.array_equal(found, np.eye(3, 5) * good[:, None])
