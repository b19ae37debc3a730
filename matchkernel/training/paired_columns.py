"""A convolution of few channels whose weight's gradient is computed from pairs of columns.

For 32 channels cuDNN computes this gradient much more slowly than for 64. Two columns of a channels-last map are,
without a copy, one column of twice the channels; half of the products are not needed, and it is faster all the same.
"""

import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.model.precision import widened


class PairedColumns(torch.autograd.Function):
    """conv2d(x, weight, padding=1) of x (B, C, N, N), N even, and weight (D, C, 3, 3)."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """As conv2d."""
        ctx.save_for_backward(x, weight)
        return nnf.conv2d(x, weight, padding=1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        """The library's gradient of x; that of the weight from the one of pairs."""
        x, weight = ctx.saved_tensors
        gradient = gradient.contiguous(memory_format=torch.channels_last)
        D, C = weight.shape[:2]
        pairs = _convolution_gradient(_paired(gradient), _paired(x), weight.new_empty(2 * D, 2 * C, 3, 3), of=1)
        # Output column 2u + i and input column 2(u + q) + j are 2q + j - i apart: -1, 0 or 1 in the weight.
        left, middle, right = widened(pairs).view(2, D, 2, C, 3, 3).unbind(-1)
        columns = (
            left[0, :, 1] + middle[1, :, 0],
            middle[0, :, 0] + middle[1, :, 1],
            middle[0, :, 1] + right[1, :, 0],
        )
        return _convolution_gradient(gradient, x, weight, of=0), torch.stack(columns, -1).to(weight.dtype)


def _paired(x: Tensor) -> Tensor:
    """(B, C, N, N), channels last -> (B, 2 C, N, N / 2), the same memory: channels of column 2u, then of 2u + 1."""
    B, C, rows, columns = x.shape
    return x.permute(0, 2, 3, 1).reshape(B, rows, columns // 2, 2 * C).permute(0, 3, 1, 2)


def _convolution_gradient(gradient: Tensor, x: Tensor, weight: Tensor, *, of: int) -> Tensor:
    """Of x (0) or of the weight (1)."""
    ones, wanted = [1, 1], [of == 0, of == 1, False]
    found: Tensor = torch.ops.aten.convolution_backward(
        gradient, x, weight, None, ones, ones, ones, False, [0, 0], 1, wanted
    )[of]
    return found
