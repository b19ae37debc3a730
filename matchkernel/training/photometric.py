"""Photometric changes of a batch of patches on the device: blur, light gradient, contrast, gamma, noise, JPEG."""

import math

import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.training.augment import LIGHT_COLUMNS, Augmentation

BLUR_RADIUS = 9  # three standard deviations of the strongest blur
LUMINANCE = (
    (16, 11, 10, 16, 24, 40, 51, 61), (12, 12, 14, 19, 26, 58, 60, 55), (14, 13, 16, 24, 40, 57, 69, 56),
    (14, 17, 22, 29, 51, 87, 80, 62), (18, 22, 37, 56, 68, 109, 103, 77), (24, 35, 55, 64, 81, 104, 113, 92),
    (49, 64, 78, 87, 103, 121, 120, 101), (72, 92, 95, 98, 112, 100, 103, 99),
)  # quantisation of the JPEG standard (annex K), quality 50  # fmt: skip


def change_light(patches: Tensor, light: Tensor, settings: Augmentation) -> Tensor:
    """Apply drawn changes; what the settings leave out is not computed.

    Args:
        patches: (B, 1, N, N) gray levels 0 to 255.
        light: (B, 8) from draw_light.
        settings: which changes there are.
    """
    column = {name: light[:, k, None, None, None] for k, name in enumerate(LIGHT_COLUMNS)}
    values = patches
    if settings.blur:
        values = blurred(values, light[:, LIGHT_COLUMNS.index("blur")])
    if settings.light_gradient:
        t = _axis(values)
        values = values * (1 + column["slope_x"] * t + column["slope_y"] * t[:, None])
    if settings.contrast:
        mean = values.mean((-2, -1), keepdim=True)
        values = mean + (values - mean) * column["contrast"]
    if settings.light_gradient or settings.contrast:
        values = values.clamp(0, 255)
    if settings.gamma:
        values = 255 * (values / 255) ** column["gamma"]
    if settings.noise:
        values = values + column["noise"] * _noise(values, light[:, LIGHT_COLUMNS.index("noise_seed")])
    if settings.jpeg:
        values = jpeg(values.clamp(0, 255), light[:, LIGHT_COLUMNS.index("quality")])
    return values.clamp(0, 255)


def blurred(patches: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of each patch by its own sigma (B,), borders repeated."""
    radius = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, device=patches.device)
    weights = torch.exp(-0.5 * (radius / sigma[:, None].clamp_min(1e-3)) ** 2)
    weights = weights / weights.sum(1, keepdim=True)
    padded = nnf.pad(patches, (BLUR_RADIUS,) * 4, mode="replicate")
    rows = (padded.unfold(3, 2 * BLUR_RADIUS + 1, 1) * weights[:, None, None, None]).sum(-1)
    return (rows.unfold(2, 2 * BLUR_RADIUS + 1, 1) * weights[:, None, None, None]).sum(-1)


def jpeg(patches: Tensor, quality: Tensor) -> Tensor:
    """What compression and decompression leave of patches (B, 1, N, N), each at its own quality 1 to 100 (B,)."""
    N = patches.shape[-1]
    extra = -N % 8
    padded = nnf.pad(patches, (0, extra, 0, extra), mode="replicate") - 128
    blocks = padded.unflatten(3, (-1, 8)).unflatten(2, (-1, 8)).transpose(3, 4)  # (B, 1, rows, columns, 8, 8)
    basis = _cosines(patches.device)
    quality = quality.floor().clamp(1, 100)
    percent = torch.where(quality < 50, (5000 / quality).floor(), 200 - 2 * quality)[:, None, None]  # as libjpeg
    table = ((torch.tensor(LUMINANCE, device=patches.device) * percent + 50) / 100).floor().clamp(1, 255)
    table = table[:, None, None, None]
    kept = torch.round(basis @ blocks @ basis.t() / table) * table
    decoded = torch.round(basis.t() @ kept @ basis) + 128
    return decoded.transpose(3, 4).flatten(4, 5).flatten(2, 3)[..., :N, :N].clamp(0, 255)


def _axis(patches: Tensor) -> Tensor:
    N = patches.shape[-1]
    return (torch.arange(N, device=patches.device) + 0.5) * (2 / N) - 1


def _cosines(device: torch.device) -> Tensor:
    """The orthonormal cosine transform of 8 numbers, (8, 8)."""
    k = torch.arange(8, device=device, dtype=torch.float32)
    basis = torch.cos((2 * k + 1) * k[:, None] * (math.pi / 16)) / 2
    return torch.cat([basis[:1] / math.sqrt(2), basis[1:]])


def _noise(patches: Tensor, seeds: Tensor) -> Tensor:
    """Standard normal numbers that depend on the seed of the patch and the pixel alone (Box-Muller)."""
    pixels = torch.arange(patches[0].numel(), device=patches.device)
    key = _mixed(seeds.long()[:, None] + 1)
    first, second = (_uniform(_mixed(key ^ _mixed(2 * pixels + k + 1))) for k in range(2))
    normal = torch.sqrt(-2 * torch.log(first)) * torch.cos(2 * math.pi * second)
    return normal.view(patches.shape)


def _mixed(numbers: Tensor) -> Tensor:
    """32 bits in which every bit of the number counts: murmur3's finalizer."""
    mask = 0xFFFFFFFF
    h = numbers & mask
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & mask
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & mask
    return h ^ (h >> 16)


def _uniform(bits: Tensor) -> Tensor:
    """Numbers in (0, 1) from 32 bits, of which 24 are kept."""
    return ((bits >> 8).float() + 0.5) / 2**24
