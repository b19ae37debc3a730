import pytest
import torch

from matchkernel.model.folding import folded


@pytest.mark.parametrize("bias", [True, False])
def test_layer_and_norm_become_one_layer(bias):
    norm = torch.nn.BatchNorm1d(5, affine=False).double().eval()
    norm.running_mean.normal_(), norm.running_var.uniform_(0.1, 3)
    layer = torch.nn.Linear(7, 5, bias=bias).double()
    x = torch.randn(4, 7, dtype=torch.float64)
    assert (folded(layer, norm)(x) - norm(layer(x))).abs().max() < 1e-12


def test_convolution_keeps_its_settings():
    norm = torch.nn.BatchNorm2d(5, affine=False).eval()
    norm.running_mean.normal_(), norm.running_var.uniform_(0.1, 3)
    layer = torch.nn.Conv2d(2, 5, 3, stride=2, padding=1, bias=False)
    before = layer.weight.clone()
    x = torch.randn(4, 2, 9, 9)
    assert (folded(layer, norm)(x) - norm(layer(x))).abs().max() < 1e-5
    assert torch.equal(layer.weight, before)
    assert layer.bias is None
