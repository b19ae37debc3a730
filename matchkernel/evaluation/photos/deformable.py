"""Deformable convolution in plain PyTorch, for machines without a torchvision that works."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as nnf


def deform_conv2d(
    input: Tensor,  # noqa: A002 (the names are torchvision's)
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    padding: int | Sequence[int] = 0,
    mask: Tensor | None = None,
) -> Tensor:
    """A convolution whose taps are moved at every pixel (Dai et al. 2017), and weighted (Zhu et al. 2019).

    Stride and dilation are 1. Values between pixels are interpolated linearly, outside the image they are 0.

    Args:
        input: (B, C, H, W).
        offset: (B, 2 * G * h * w, H', W'): for each of the G groups of channels and each tap, row by row, how far it is
            moved down and to the right.
        weight: (D, C, h, w).
        bias: (D,).
        padding: pixels of zeros around the input, of both sides or of height and width.
        mask: (B, G * h * w, H', W'): factors of the taps; all 1 by default.

    Returns:
        (B, D, H', W') with H' = H + 2 * padding - h + 1.
    """
    B, C, H, W = input.shape
    _, _, h, w = weight.shape
    rows, columns = offset.shape[2:]
    groups = offset.shape[1] // (2 * h * w)
    pad_y, pad_x = (padding, padding) if isinstance(padding, int) else padding
    moved = offset.reshape(B * groups, h * w, 2, rows, columns)
    ys, xs = (torch.arange(count, device=input.device, dtype=input.dtype) for count in (rows, columns))
    image = input.reshape(B * groups, C // groups, H, W)
    taps = []
    for tap in range(h * w):
        y = ys[:, None] + (tap // w - pad_y) + moved[:, tap, 0]
        x = xs[None, :] + (tap % w - pad_x) + moved[:, tap, 1]
        places = torch.stack([(2 * x + 1) / W - 1, (2 * y + 1) / H - 1], -1)
        taps.append(nnf.grid_sample(image, places, mode="bilinear", padding_mode="zeros", align_corners=False))
    samples = torch.stack(taps, 2)  # (B G, C / G, h w, H', W')
    if mask is not None:
        samples = samples * mask.reshape(B * groups, 1, h * w, rows, columns)
    out = torch.einsum("bckyx,dck->bdyx", samples.reshape(B, C, h * w, rows, columns), weight.flatten(2))
    return out if bias is None else out + bias[:, None, None]
