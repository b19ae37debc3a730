import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

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


def test_pillows_box_filter_agrees_at_whole_ratios():
    """An independent implementation; at other ratios Pillow takes whole pixels only."""
    patch = np.random.default_rng(0).random((96, 96), dtype=np.float32)
    theirs = np.asarray(Image.fromarray(patch).resize((32, 32), Image.Resampling.BOX))
    assert np.abs(resize_patches(torch.from_numpy(patch)[None, None], 32)[0, 0].numpy() - theirs).max() < 1e-6


@given(st.integers(1, 90), st.integers(1, 90))
def test_weights_keep_constants_and_do_not_turn_negative(old, new):
    weights = resize_weights(old, new)
    assert weights.shape == (new, old)
    assert np.abs(weights.sum(1) - 1).max() < 1e-12
    assert (weights >= 0).all()


@given(st.integers(2, 60), st.integers(2, 60))
def test_a_ramp_keeps_its_slope_inside(old, new):
    """Pixel centres of both grids lie where they should: value = position, away from the outermost half pixel."""
    ramp = np.arange(old) + 0.5
    resized = resize_weights(old, new) @ ramp
    expected = (np.arange(new) + 0.5) * old / new
    if new <= old:
        # a pixel is constant over its square, so a part of it stands for its centre: off by less than half a pixel
        assert np.abs(resized - expected).max() < 0.5
        if old % new == 0:
            assert np.abs(resized - expected).max() < 1e-9
    else:
        inside = (expected > 0.5) & (expected < old - 0.5)
        assert np.abs(resized - expected)[inside].max() < 1e-9


@pytest.mark.parametrize("size", [1, 32, 33])
def test_same_size_is_the_identity(size):
    patches = torch.rand(2, 1, size, size)
    assert torch.equal(resize_patches(patches, size), patches)
