"""Cut patches at frames from an image that lies on a GPU, as frames.extract_patches does on the CPU."""

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.geometry.frames import Frames, check_cut, pyramid_levels, sampling_matrices

SAMPLES_AT_A_TIME = 2**23  # about 500 MB


def extract_patches_on(image: Tensor, frames: Frames, size: int = 64) -> Tensor:
    """Cut the region of every frame, as extract_patches does; here and there a gray value differs by 1.

    (By more with an OpenCV before version 5, which rounds positions to 1/32 of a pixel.)

    Args:
        image: (H, W) uint8 gray, on the device to compute on.
        frames: K regions.
        size: side of the patches.

    Returns:
        (K, size, size) uint8 on the same device.
    """
    check_cut(tuple(image.shape), image.dtype == torch.uint8, str(image.dtype), frames, size)
    levels = pyramid_levels(frames.half_widths * 2 / size, min(image.shape))
    pixels, places = _flat_pyramid(image, int(levels.max(initial=0)))
    # (K, 4) offset, width, height of the level, and (K, 2, 3) maps from patch pixels to its pixels
    tables = torch.from_numpy(places[levels]).to(image.device)
    matrices = torch.from_numpy(sampling_matrices(frames, levels, size).astype(np.float32)).to(image.device)
    patches = torch.empty(len(frames), size, size, dtype=torch.uint8, device=image.device)
    step = max(1, SAMPLES_AT_A_TIME // size**2)
    for start in range(0, len(frames), step):
        part = slice(start, start + step)
        patches[part] = _interpolated(pixels, tables[part], matrices[part], size)
    return patches


def _flat_pyramid(image: Tensor, highest: int) -> tuple[Tensor, np.ndarray]:
    """The pixels of all levels, one after the other, and (levels, 3) offset, width and height."""
    steps = torch.tensor([1.0, 4.0, 6.0, 4.0, 1.0], device=image.device)
    kernel = (steps[:, None] * steps)[None, None]  # sums of whole numbers, exact in every precision
    levels = [image]
    for _ in range(highest):
        padded = nnf.pad(levels[-1][None, None].float(), (2, 2, 2, 2), mode="reflect")
        levels.append(((nnf.conv2d(padded, kernel, stride=2)[0, 0] + 128) / 256).floor().to(torch.uint8))
    ends = np.cumsum([level.numel() for level in levels])
    places = [(end - level.numel(), level.shape[1], level.shape[0]) for end, level in zip(ends, levels, strict=True)]
    return torch.cat([level.flatten() for level in levels]), np.array(places, np.int64)


def _interpolated(pixels: Tensor, tables: Tensor, matrices: Tensor, size: int) -> Tensor:
    """(k, size, size) uint8: linear interpolation, the border repeated outside."""
    steps = torch.arange(size, device=pixels.device, dtype=torch.float32)
    offset, width, height = (column[:, None, None] for column in tables.unbind(1))
    x, y = (
        (matrices[:, axis, 0, None, None] * steps + matrices[:, axis, 2, None, None])
        + matrices[:, axis, 1, None, None] * steps[:, None]
        for axis in (0, 1)
    )
    left, top = x.floor(), y.floor()
    (x0, x1), (y0, y1) = (
        tuple(torch.minimum((low + one).long().clamp_min_(0), side - 1) for one in (0, 1))
        for low, side in ((left, width), (top, height))
    )
    right_share, bottom_share = x - left, y - top
    row0, row1 = offset + y0 * width, offset + y1 * width
    upper, lower = (torch.lerp(pixels[row + x0].float(), pixels[row + x1].float(), right_share) for row in (row0, row1))
    return torch.lerp(upper, lower, bottom_share).round_().to(torch.uint8)
