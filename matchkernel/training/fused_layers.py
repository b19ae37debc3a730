"""A descriptor in training on a GPU: each convolution with its BatchNorm and ReLU, and the head, by kernels of ours."""

import torch
from torch import Tensor, nn

from matchkernel.model.encoding import SpatialEncoding
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.training import first_layer
from matchkernel.training.convolution_kernels import (
    NARROW,
    convolution_with_sums,
    first_gradient,
    fits,
    weight_gradient,
)
from matchkernel.training.first_layer import CHANNELS, TAPS, WIDTH
from matchkernel.training.grouped_norm import GroupedBatchNorm2d, track
from matchkernel.training.head_kernels import MOST_CODES, Encode
from matchkernel.training.norm_kernels import norm_relu, norm_relu_gradient, norm_relu_sums


def have_kernels(config: DescriptorConfig) -> bool:
    """Whether the kernels are written for the first two convolutions, as for the paper's."""
    first, second = config.convolutions[:2]
    return first == (1, CHANNELS, 1) and second[2] == 1 and fits(second[1])


def can_encode(encoding: SpatialEncoding, channels: int) -> bool:
    """Whether the kernels take an encoding of maps of so many channels."""
    return not encoding.unit_norm and fits(channels) and encoding.F.shape[1] <= MOST_CODES


class FusedLayers(nn.Sequential):
    """The layers of a backbone; in training they are computed by `_Convolutions`, as far as it takes their channels."""

    def forward(self, x: Tensor) -> Tensor:
        """The map Phi of normalised patches."""
        if not self.training:
            for layer in self:
                x = layer(x)
            return x
        convolutions = [layer for layer in self if isinstance(layer, nn.Conv2d)]
        takes = [fits(layer.out_channels) for layer in convolutions]
        count = takes.index(False) if False in takes else len(takes)
        convolutions, rest = convolutions[:count], list(self)[3 * count :]
        norms = [layer for layer in self if isinstance(layer, GroupedBatchNorm2d)][:count]
        x, weights = x.to(torch.bfloat16).contiguous(), [layer.weight for layer in convolutions]
        strides = tuple(layer.stride[0] for layer in convolutions)
        phi, *statistics = _Convolutions.apply(x, strides, norms[0].groups, norms[0].eps, *weights)  # type: ignore[no-untyped-call]
        sides = [x.shape[-1]]
        for stride in strides:
            sides.append((sides[-1] - 1) // stride + 1)
        counts = [len(x) // norms[0].groups * side**2 for side in sides[1:]]
        track(norms, statistics[::2], statistics[1::2], counts)
        for layer in rest:
            phi = layer(phi)
        return phi


class FusedEncoding(nn.Module):
    """A position encoding that in training takes maps of bfloat16; its result is float32 all the same."""

    takes_half = True

    def __init__(self, encoding: SpatialEncoding) -> None:
        super().__init__()
        self.encoding = encoding

    def forward(self, phi: Tensor) -> Tensor:
        """See SpatialEncoding."""
        if not self.training or phi.dtype != torch.bfloat16:
            return self.encoding(phi)
        return Encode.apply(phi, self.encoding.F * (64 / self.encoding.n**2))  # type: ignore[no-untyped-call]


class _Convolutions(torch.autograd.Function):
    """relu(batch_norm(conv(x, weight, padding=1))) for each weight in turn, by group.

    BatchNorm is z = scale y + shift. Backward, with dz the gradient before ReLU and means over a group, the gradient
    before BatchNorm is dy = scale (dz - mean dz - z mean(dz z)).
    """

    @staticmethod
    def forward(ctx, x: Tensor, strides: tuple[int, ...], groups: int, eps: float, *weights: Tensor):  # type: ignore[no-untyped-def]
        """x (B, 1, N, N), weights (D, C, 3, 3) -> (B, D, n, n), then mean and variance (groups, D) of each layer."""
        halves = [weight.to(x.dtype) for weight in weights]  # as autocast rounds them
        moments = first_layer.tap_moments(x, groups).sum(1) / (x.numel() // groups)
        w = halves[0].flatten(1)
        first = nn.functional.pad(w, (0, WIDTH - TAPS))
        mean, variance = first_layer.mean_and_variance(moments, w.float())
        statistics = [mean, variance]
        scale = torch.rsqrt(variance + eps)
        shift = -mean * scale
        a = first_layer.first_layer_apply(x, first, scale, shift)
        saved = [x, first, moments, mean, scale, shift]
        for w, stride in zip(halves[1:], strides[1:], strict=True):
            y, sums = convolution_with_sums(a, _taps_first(w), stride, groups)
            mean, square = (sums.sum(1) / (y.numel() // (groups * len(w)))).unbind(1)
            variance = (square - mean.square()).clamp_min(0)
            scale = torch.rsqrt(variance + eps)
            shift = -mean * scale
            saved += [a, w, y, scale, shift]
            statistics += [mean, variance]
            a = norm_relu(y, scale, shift)
        ctx.save_for_backward(*saved)
        ctx.strides = strides
        ctx.mark_non_differentiable(*statistics)
        return a, *statistics

    @staticmethod
    def backward(ctx, gradient: Tensor, *_: Tensor):  # type: ignore[no-untyped-def]
        """Of the weights."""
        x, first, moments, first_mean, first_scale, first_shift, *saved = ctx.saved_tensors
        layers = [saved[k : k + 5] for k in range(0, len(saved), 5)]
        found: list[Tensor] = []
        da = gradient.contiguous(memory_format=torch.channels_last)
        sums = norm_relu_sums(da, *layers[-1][2:])
        for number in reversed(range(len(layers))):
            (a, w, y, scale, shift), stride = layers[number], ctx.strides[number + 1]
            dy = norm_relu_gradient(da, y, scale, shift, sums.sum(1) / (y.numel() // scale.numel()))
            is_narrow = stride == 1 and max(a.shape[1], y.shape[1]) <= NARROW and a.shape[-1] % 2 == 0
            if number or not is_narrow:
                steps, ones, wanted = [stride] * 2, [1, 1], [number > 0, not is_narrow, False]
                backward = torch.ops.aten.convolution_backward
                da, dw, _none = backward(dy, a, w, None, steps, ones, ones, False, [0, 0], 1, wanted)
            found.insert(0, weight_gradient(a, dy) if is_narrow else dw.float())
            if number:
                sums = norm_relu_sums(da, *layers[number - 1][2:])
        turned = _taps_first(w.flip(2, 3).transpose(0, 1))
        products = first_gradient(dy, turned, x, first, first_scale, first_shift).sum(1)
        count = x.numel() // len(first_scale)
        w = first[:, :TAPS].float()
        dw = first_layer.weight_gradient(products / count, moments, w, first_mean, first_scale).sum(0) * count
        return None, None, None, None, dw.view(-1, 1, 3, 3), *found


def _taps_first(w: Tensor) -> Tensor:
    """(D, C, 3, 3) -> (9 C, D)."""
    return w.permute(2, 3, 1, 0).reshape(-1, len(w)).contiguous()
