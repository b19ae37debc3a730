import copy

import pytest
import torch

from matchkernel.model.backbone import Backbone, fold_into, normalize_patches
from matchkernel.runtime.config import STRIDE, DescriptorConfig


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


@pytest.mark.parametrize(("config", "side"), [
    (DescriptorConfig(d=8), 23),
    (DescriptorConfig(d=8, widths=(4, 6, 6), halvings=(1, 2)), 23),
    (DescriptorConfig(d=8, widths=(4, 4), halvings=(1, 3)), 11),
])  # fmt: skip
def test_receptive_field_of_a_cell(config, side):
    """A square centred on pixel 4 i, seen from where the gradient reaches."""
    backbone = Backbone(config).double().eval()
    for convolution in backbone.layers[::3]:
        convolution.weight.data.abs_()  # so that nothing cancels
    patch = torch.ones(1, 1, 96, 96, dtype=torch.float64, requires_grad=True)
    row, column = 12, 10
    backbone(patch)[0, :, row, column].sum().backward()
    seen = patch.grad[0, 0].nonzero()
    assert config.receptive_side == side
    half = side // 2
    assert seen.amin(0).tolist() == [STRIDE * row - half, STRIDE * column - half]
    assert seen.amax(0).tolist() == [STRIDE * row + half, STRIDE * column + half]


@pytest.mark.parametrize(("layer", "shape"), [
    (torch.nn.Linear(7, 5), (4, 7)),
    (torch.nn.Linear(7, 5, bias=False), (4, 7)),
    (torch.nn.Conv2d(2, 5, 3, stride=2, padding=1, bias=False), (4, 2, 9, 9)),
])  # fmt: skip
def test_layer_and_norm_become_one_layer(layer, shape):
    kind = torch.nn.BatchNorm1d if len(shape) == 2 else torch.nn.BatchNorm2d
    norm, layer = kind(5, affine=False).double().eval(), copy.deepcopy(layer).double()
    norm.running_mean.normal_(), norm.running_var.uniform_(0.1, 3)
    x = torch.randn(*shape, dtype=torch.float64)
    expected = norm(layer(x))
    fold_into(layer, norm, torch.float64)
    assert (layer(x) - expected).abs().max() < 1e-12
    fold_into(layer, norm, torch.float32)
    assert layer.weight.dtype == layer.bias.dtype == torch.float32
