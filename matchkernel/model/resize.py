"""Bring patches to another side without aliasing."""

import torch
from torch import Tensor


def resize_patches(patches: Tensor, size: int) -> Tensor:
    """Resize square patches: the exact mean over the area a new pixel covers, or linear interpolation to enlarge.

    Pixels are unit squares and the borders of the patch stay where they are. Halving the side is the mean of 2 x 2
    pixels, as HardNet does from 64 to 32; a non-integer ratio weighs the pixels a new one covers in part (65 to 32).

    Args:
        patches: (B, 1, H, W) floats.
        size: new side.

    Returns:
        (B, 1, size, size).
    """
    rows = resize_weights(patches.shape[-2], size).to(patches)
    columns = resize_weights(patches.shape[-1], size).to(patches)
    return rows @ patches @ columns.T


def resize_weights(old: int, new: int) -> Tensor:
    """(new, old) float64 matrix that resizes one axis; every row sums to 1."""
    scale = old / new
    left = torch.arange(new, dtype=torch.float64)[:, None] * scale
    pixel = torch.arange(old, dtype=torch.float64)
    if new <= old:
        overlap = torch.minimum(left + scale, pixel + 1) - torch.maximum(left, pixel)
        return overlap.clamp_min(0) / scale
    centre = (left + scale / 2 - 0.5).clamp(0, old - 1)  # outside the outermost pixel centres: their value
    return (1 - (centre - pixel).abs()).clamp_min(0)
