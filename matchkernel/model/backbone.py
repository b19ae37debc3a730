"""HardNet's convolutional part: a gray patch becomes an n x n map of d-vectors [M1]."""

import itertools

import torch
from torch import Tensor, nn

from matchkernel.model.precision import exact_type, widened
from matchkernel.runtime.config import DescriptorConfig


def normalize_patches(patches: Tensor) -> Tensor:
    """Give every patch mean 0 and standard deviation 1: (x - mean) / (std + 1e-7), std with the n - 1 denominator [M0].

    As in HardNet's code, no gradient flows through mean and std. Half precision is computed in float32:
    the squares of gray values do not fit float16.

    Args:
        patches: (B, 1, N, N) floats of any range.
    """
    wide = widened(patches)
    pixels = wide.shape[-1] * wide.shape[-2]
    centred = wide - wide.detach().mean((-3, -2, -1), keepdim=True)
    # Written out, because torch.std warns about an empty batch.
    std = (centred.detach().square().sum((-3, -2, -1), keepdim=True) / (pixels - 1)).sqrt()
    return centred / (std + 1e-7)


class Backbone(nn.Module):
    """3 x 3 convolutions without bias (six in the paper), each with BatchNorm (no affine part) and ReLU.

    Shape: (B, 1, N, N) -> (B, d, N/4, N/4).
    """

    def __init__(self, config: DescriptorConfig) -> None:
        super().__init__()
        layers = [_convolution(inputs, outputs, stride) for inputs, outputs, stride in config.convolutions]
        self.layers = nn.Sequential(*itertools.chain.from_iterable(layers))

    def forward(self, patches: Tensor) -> Tensor:
        """The map Phi of normalised patches."""
        phi: Tensor = self.layers(patches)
        return phi

    def fold(self, dtype: torch.dtype) -> None:
        """Fold every BatchNorm into the preceding convolution, in place, with weights of this precision."""
        layers = list(self.layers)
        for k in range(0, len(layers), 3):
            convolution, norm = layers[k], layers[k + 1]
            assert isinstance(convolution, nn.Conv2d)
            assert isinstance(norm, nn.BatchNorm2d)
            fold_into(convolution, norm, dtype)
            layers[k + 1] = nn.Identity()
        self.layers = nn.Sequential(*layers)


def _convolution(inputs: int, outputs: int, stride: int) -> tuple[nn.Module, ...]:
    return (
        nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False),
        nn.BatchNorm2d(outputs, affine=False),
        nn.ReLU(),
    )


@torch.no_grad()
def fold_into(layer: nn.Conv2d | nn.Linear, norm: nn.BatchNorm1d | nn.BatchNorm2d, dtype: torch.dtype) -> None:
    """Fold `norm` (without affine part) into the layer before it, for inference, in place [M21].

    Computed in float64, so that folding adds only one rounding, to `dtype`.
    """
    assert norm.running_mean is not None
    assert norm.running_var is not None
    exact = exact_type(layer.weight.device)
    scale = (norm.running_var.to(exact) + norm.eps).rsqrt()
    bias = torch.zeros_like(scale) if layer.bias is None else layer.bias.to(exact)
    weight = layer.weight.to(exact) * scale.reshape(-1, *[1] * (layer.weight.ndim - 1))
    layer.weight = nn.Parameter(weight.to(dtype))
    layer.bias = nn.Parameter(((bias - norm.running_mean.to(exact)) * scale).to(dtype))
