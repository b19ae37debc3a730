"""Sample the patches of a batch from the set, once, at the place and size wanted."""

import torch
from torch import Tensor


def sample_patches(source: Tensor, index: Tensor, warps: Tensor, size: int) -> Tensor:
    """Cut warped patches straight from the set: one interpolation, no copy of the source patches [M23].

    Linear interpolation; where the source has more than twice the pixels, the mean of several samples per pixel, so
    that nothing aliases. Without a warp, halving the side is the exact mean of 2 x 2 pixels, as in testing. Beyond the
    border the outermost pixels are repeated. Written with plain indexing, which a compiler makes one kernel of.

    Args:
        source: (K, S, S) uint8 patches of the set.
        index: (B,) which of them.
        warps: (B, 2, 3) output (u, v, 1) -> source position, both in half sides from the centre.
        size: N, side of the result.

    Returns:
        (B, 1, N, N) float32, gray levels 0 to 255.
    """
    S = source.shape[-1]
    finer = max(1, -(-S // (2 * size)))  # samples per pixel and axis
    t = (torch.arange(size * finer, device=source.device, dtype=torch.float32) + 0.5) * (2 / (size * finer)) - 1
    u, v = t[None, None, :], t[None, :, None]
    warps = warps[..., None, None]
    x = _pixels(warps[:, 0, 0] * u + warps[:, 0, 1] * v + warps[:, 0, 2], S)
    y = _pixels(warps[:, 1, 0] * u + warps[:, 1, 1] * v + warps[:, 1, 2], S)
    left, top = x.floor().clamp(max=S - 2), y.floor().clamp(max=S - 2)
    fx, fy = x - left, y - top
    which, column, row = index[:, None, None], left.long(), top.long()
    upper = source[which, row, column] * (1 - fx) + source[which, row, column + 1] * fx
    lower = source[which, row + 1, column] * (1 - fx) + source[which, row + 1, column + 1] * fx
    values = upper * (1 - fy) + lower * fy
    if finer > 1:
        values = values.unflatten(2, (size, finer)).unflatten(1, (size, finer)).mean((2, 4))
    return values[:, None]


def _pixels(half_sides: Tensor, S: int) -> Tensor:
    """From half sides to pixel numbers, kept inside the patch."""
    return ((half_sides + 1) * (S / 2) - 0.5).clamp(0, S - 1)
