"""Convolutions 2 and later, each with its BatchNorm and ReLU, on a GPU: four passes over memory fewer than apart."""

import torch
from torch import Tensor

from matchkernel.training.convolution_kernels import NARROW, convolution, convolution_with_sums, weight_gradient
from matchkernel.training.norm_kernels import norm_relu, norm_relu_gradient, norm_relu_sums


class LaterLayer(torch.autograd.Function):
    """relu(batch_norm(conv(x, weight, padding=1))) by group, and the statistics."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, stride: int, groups: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[no-untyped-def]
        """x (B, C, N, N), weight (D, C, 3, 3) -> (B, D, n, n), mean and variance (groups, D)."""
        w = weight.to(x.dtype)  # as autocast rounds it
        y, sums = convolution_with_sums(x, _taps_first(w), stride, groups)
        mean, square = (sums.sum(1) / (y.numel() // (groups * len(weight)))).unbind(1)
        variance = (square - mean.square()).clamp_min(0)
        scale = torch.rsqrt(variance + eps)
        shift = -mean * scale
        ctx.save_for_backward(x, w, y, scale, shift)
        ctx.stride = stride
        ctx.mark_non_differentiable(mean, variance)
        return norm_relu(y, scale, shift), mean, variance

    @staticmethod
    def backward(ctx, gradient: Tensor, *_: Tensor) -> tuple[Tensor, Tensor, None, None, None]:  # type: ignore[no-untyped-def]
        """Of x and of the weight."""
        x, w, y, scale, shift = ctx.saved_tensors
        count = y.numel() // scale.numel()
        means = norm_relu_sums(gradient, y, scale, shift).sum(1) / count
        dy = norm_relu_gradient(gradient, y, scale, shift, means)
        (D, C), N = w.shape[:2], x.shape[-1]
        if ctx.stride == 1 and max(C, D) <= NARROW and N % 2 == 0:
            turned = w.flip(2, 3).transpose(0, 1)
            return convolution(dy, _taps_first(turned), 1), weight_gradient(x, dy), None, None, None
        steps, ones = [ctx.stride] * 2, [1, 1]
        dx, dw, _none = torch.ops.aten.convolution_backward(
            dy, x, w, None, steps, ones, ones, False, [0, 0], 1, [True, True, False]
        )
        return dx, dw.float(), None, None, None


def _taps_first(w: Tensor) -> Tensor:
    """(D, C, 3, 3) -> (9 C, D)."""
    return w.permute(2, 3, 1, 0).reshape(-1, len(w)).contiguous()
