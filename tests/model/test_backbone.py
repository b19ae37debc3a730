import pytest
import torch

from matchkernel.model.backbone import RECEPTIVE_FIELD, STRIDE, Backbone, normalize_patches


def test_normalisation_is_hardnets():
    patches = torch.rand(5, 1, 32, 32, dtype=torch.float64) * 200
    expected = torch.stack([(patch - patch.mean()) / (patch.std(unbiased=True) + 1e-7) for patch in patches])
    assert (normalize_patches(patches) - expected).abs().max() < 1e-12


def test_statistics_are_constants_to_the_gradient():
    patches = torch.rand(2, 1, 8, 8, dtype=torch.float64, requires_grad=True)
    normalize_patches(patches).sum().backward()
    slope = 1 / (patches.detach().std((1, 2, 3), keepdim=True) + 1e-7)
    assert (patches.grad - slope).abs().max() < 1e-12
    constant = torch.ones(1, 1, 8, 8, requires_grad=True)
    normalize_patches(constant).sum().backward()
    assert constant.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_normalised_in_float32(dtype):
    patches = (torch.rand(2, 1, 32, 32) * 255).round()
    assert (normalize_patches(patches.to(torch.float16)) - normalize_patches(patches)).abs().max() < 1e-6
    assert normalize_patches(patches.to(dtype)).dtype == torch.float32


@pytest.mark.parametrize("size", [8, 12, 32, 64])
def test_map_is_a_quarter_of_the_patch(size):
    assert Backbone(16)(torch.randn(2, 1, size, size)).shape == (2, 16, size // 4, size // 4)


def test_receptive_field_of_a_cell():
    """23 x 23 pixels centred on pixel 4 i, seen from where the gradient reaches."""
    backbone = Backbone(8).double().eval()
    for convolution in backbone.layers[::3]:
        convolution.weight.data.abs_()  # so that nothing cancels
    patch = torch.ones(1, 1, 96, 96, dtype=torch.float64, requires_grad=True)
    row, column = 12, 10
    backbone(patch)[0, :, row, column].sum().backward()
    seen = patch.grad[0, 0].nonzero()
    half = RECEPTIVE_FIELD // 2
    assert seen.amin(0).tolist() == [STRIDE * row - half, STRIDE * column - half]
    assert seen.amax(0).tolist() == [STRIDE * row + half, STRIDE * column + half]
