import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.model.describe import resize_patches
from matchkernel.runtime.onnx import resize_weights


def test_area_mean_by_brute_force():
    """65 to 32: cut every pixel into 32 x 32 equal parts, of which each new pixel takes 65 x 65."""
    patch = torch.rand(1, 1, 65, 65, dtype=torch.float64)
    fine = patch.repeat_interleave(32, 2).repeat_interleave(32, 3)
    expected = fine.unfold(2, 65, 65).unfold(3, 65, 65).mean((-1, -2))
    assert (resize_patches(patch, 32) - expected).abs().max() < 1e-12


def test_enlarging_is_bilinear_between_pixel_centres():
    patch = torch.rand(1, 1, 16, 16)
    expected = torch.nn.functional.interpolate(patch, 40, mode="bilinear", align_corners=False)
    assert (resize_patches(patch, 40) - expected).abs().max() < 1e-6


@given(st.integers(1, 90), st.integers(1, 90))
def test_weights_keep_constants_and_do_not_turn_negative(old, new):
    weights = resize_weights(old, new)
    assert weights.shape == (new, old)
    assert np.abs(weights.sum(1) - 1).max() < 1e-12
    assert (weights >= 0).all()


@pytest.mark.parametrize("size", [1, 32, 33])
def test_same_size_is_the_identity(size):
    patches = torch.rand(2, 1, size, size)
    assert torch.equal(resize_patches(patches, size), patches)
