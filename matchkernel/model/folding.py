"""Fold a BatchNorm, linear at inference, into the layer before it [M21]."""

import copy
from typing import TypeVar

import torch
from torch import nn

Layer = TypeVar("Layer", nn.Conv2d, nn.Linear)


@torch.no_grad()
def folded(layer: Layer, norm: nn.BatchNorm1d | nn.BatchNorm2d) -> Layer:
    """A copy of `layer` with a bias that does what `layer` and then `norm` (without affine part) do at inference.

    Computed in float64, so that folding adds one rounding and no more.
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    bias = torch.zeros_like(scale) if layer.bias is None else layer.bias.double()
    weight = layer.weight.double() * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    result = copy.deepcopy(layer)
    result.weight = nn.Parameter(weight.to(layer.weight.dtype))
    result.bias = nn.Parameter(((bias - norm.running_mean.double()) * scale).to(layer.weight.dtype))
    return result
