"""Augmentation: the changes of each patch of a batch are drawn on the host and applied on the device."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as nnf

from matchkernel.storage.settings import check_ranges, setting

# From output pixel (u, v) to the source position: signed permutations of the axes. HardNet's script uses only the first
# four (identity, mirror, transposition, quarter turn clockwise); the others complete the symmetries of the square.
SQUARE = np.array(
    [
        [[1, 0], [0, 1]], [[-1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, 1], [-1, 0]],
        [[1, 0], [0, -1]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]], [[0, -1], [-1, 0]],
    ],
    np.float64,
)  # fmt: skip
FLIPS = {"none": 1, "hardnet4": 4, "dihedral8": 8}
PHOTOMETRIC_COLUMNS = ("gamma", "contrast", "slope_x", "slope_y", "blur", "noise", "noise_seed")
CROPS = 10  # draws until a random window fits
BLUR_RADIUS = 9  # three standard deviations of the strongest blur


@dataclass(frozen=True)
class Augmentation:
    """How much patches are changed. The patches of a pair share flip and zoom; the rest is drawn for each separately.

    Attributes:
        flips: "dihedral8" (all flips and quarter turns), "hardnet4" or "none".
        rotation_degrees: uniform in +- this.
        scale_octaves: side times 2^x, x uniform in +- this.
        aspect_octaves: width over height times 2^x, x uniform in +- this, with the same area.
        shift: of the centre, uniform in +- this fraction of half the side, in x and y.
        zoom_octaves: the inner 2^-x of the side fills the patch, x uniform from 0 to this: as if the set had been cut
            at all magnifications from 2^-zoom_octaves of its own to its own.
        crop: a random window of the rotated patch fills the patch: area 1 - this to 1, width over height 1 - this to
            1 + this, both as torchvision's RandomResizedCrop draws them.
        gamma: exponent e^x, x uniform in +- this.
        contrast: deviations from the mean times e^x, x uniform in +- this, then clipped to black and white.
        light_gradient: brightness changes linearly from the centre to the border by up to +- this fraction, in x and y.
        blur: Gaussian of standard deviation uniform from 0 to this, in pixels of the network's input.
        noise: Gaussian of standard deviation uniform from 0 to this, in gray levels.
    """

    flips: str = setting("dihedral8", choices=FLIPS)
    rotation_degrees: float = setting(8.0, low=0, high=180)
    scale_octaves: float = setting(0.12, low=0, high=2)
    aspect_octaves: float = setting(0.0, low=0, high=2)
    shift: float = setting(0.05, low=0, high=1)
    zoom_octaves: float = setting(0.0, low=0, high=2)
    gamma: float = setting(0.0, low=0, high=3)
    contrast: float = setting(0.0, low=0, high=3)
    light_gradient: float = setting(0.0, low=0, high=0.5)
    blur: float = setting(0.0, low=0, high=3)
    noise: float = setting(0.0, low=0, high=255)
    crop: float = setting(0.0, low=0, high=0.5, omit_default=True)

    def __post_init__(self) -> None:
        check_ranges(self, "augmentation")

    @property
    def is_photometric(self) -> bool:
        """Whether gray values are changed, not only the geometry."""
        return any((self.gamma, self.contrast, self.light_gradient, self.blur, self.noise))


def draw_warps(settings: Augmentation, random: np.random.Generator, pairs: int) -> np.ndarray:
    """Where each patch is sampled: (2, pairs, 2, 3) float32, output (u, v, 1) -> source, in half sides [M23].

    The patch is first zoomed, rotated, stretched and shifted, then flipped: the flip acts on the jittered patch.
    """
    flip = SQUARE[random.integers(FLIPS[settings.flips], size=pairs)]
    t, scale, aspect, dx, dy = random.uniform(-1, 1, (5, 2, pairs))
    zoom = 2 ** (-settings.zoom_octaves * random.uniform(0, 1, (pairs, 1, 1)))
    t = t * math.radians(settings.rotation_degrees)
    scale, aspect = 2 ** (scale * settings.scale_octaves), 2 ** (aspect * settings.aspect_octaves / 2)
    turn = np.stack([np.stack([np.cos(t), -np.sin(t)], -1), np.stack([np.sin(t), np.cos(t)], -1)], -2)
    stretch = np.stack([scale * aspect, scale / aspect], -1)
    shift = np.stack([dx, dy], -1)[..., None] * settings.shift
    if settings.crop:
        sides, middle = _draw_windows(settings.crop, random, (2, pairs))
        stretch, shift = stretch * sides, shift + turn @ middle[..., None]
    linear = (turn * stretch[..., None, :]) @ flip
    return (zoom * np.concatenate([linear, shift], -1)).astype(np.float32)


def _draw_windows(crop: float, random: np.random.Generator, shape: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """Windows of a square: (..., 2) sides as shares of its own, and (..., 2) centres in half sides from its centre.

    torchvision's RandomResizedCrop: area uniform, ratio uniform in its logarithm, the first of ten draws that fits into
    the square, or all of it; then any place, here not rounded to pixels.
    """
    area = random.uniform(1 - crop, 1, (CROPS, *shape))
    ratio = np.exp(random.uniform(math.log(1 - crop), math.log(1 + crop), (CROPS, *shape)))
    sides = np.sqrt(np.stack([area * ratio, area / ratio], -1))
    fits = sides.max(-1) <= 1
    first = np.take_along_axis(sides, fits.argmax(0)[None, ..., None], 0)[0]
    sides = np.where(fits.any(0)[..., None], first, 1.0)
    return sides, random.uniform(-1, 1, (*shape, 2)) * (1 - sides)


def draw_photometric(settings: Augmentation, random: np.random.Generator, pairs: int) -> np.ndarray:
    """The photometric change of each patch: (2, pairs, 7) float32, see PHOTOMETRIC_COLUMNS."""
    gamma, contrast, slope_x, slope_y = random.uniform(-1, 1, (4, 2, pairs))
    blur, noise, _ = random.uniform(0, 1, (3, 2, pairs))  # the third was a JPEG quality: seeds keep their meaning
    columns = [
        np.exp(gamma * settings.gamma),
        np.exp(contrast * settings.contrast),
        slope_x * settings.light_gradient,
        slope_y * settings.light_gradient,
        blur * settings.blur,
        noise * settings.noise,
        random.integers(2**23, size=(2, pairs)),  # exact in float32
    ]
    return np.stack(columns, -1).astype(np.float32)


def augmented(
    source: Tensor, index: Tensor, warps: Tensor, drawn: Tensor | None, size: int, settings: Augmentation
) -> Tensor:
    """Patches (B, 1, N, N) as the network sees them: sample_patches, then change_photometric with the drawn values."""
    patches = sample_patches(source, index, warps, size)
    return patches if drawn is None else change_photometric(patches, drawn, settings)


def sample_patches(source: Tensor, index: Tensor, warps: Tensor, size: int) -> Tensor:
    """Cut warped patches directly from the set: one interpolation, no copy of the source patches [M23].

    Interpolation is linear; if the source has more than twice the pixels, several samples per pixel are averaged to
    prevent aliasing. Without a warp, halving the side is the exact mean of 2 x 2 pixels, as in testing. Beyond the
    border the outermost pixels are repeated. Written with plain indexing, which the compiler turns into one kernel.

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
    """Convert half sides to pixel indices, clamped to the patch."""
    return ((half_sides + 1) * (S / 2) - 0.5).clamp(0, S - 1)


def change_photometric(patches: Tensor, drawn: Tensor, settings: Augmentation) -> Tensor:
    """Apply the drawn changes; changes that the settings disable are not computed.

    Args:
        patches: (B, 1, N, N) gray levels 0 to 255.
        drawn: (B, 7) from draw_photometric.
        settings: which changes to compute.
    """
    column = {name: drawn[:, k, None, None, None] for k, name in enumerate(PHOTOMETRIC_COLUMNS)}
    values, N = patches, patches.shape[-1]
    if settings.blur:
        values = blurred(values, column["blur"].flatten())
    if settings.light_gradient:
        t = (torch.arange(N, device=patches.device) + 0.5) * (2 / N) - 1
        values = values * (1 + column["slope_x"] * t + column["slope_y"] * t[:, None])
    if settings.contrast:
        mean = values.mean((-2, -1), keepdim=True)
        values = mean + (values - mean) * column["contrast"]
    if settings.light_gradient or settings.contrast:
        values = values.clamp(0, 255)
    if settings.gamma:
        values = 255 * (values / 255) ** column["gamma"]
    if settings.noise:
        values = values + column["noise"] * _noise(values, column["noise_seed"].flatten())
    return values.clamp(0, 255)


def blurred(patches: Tensor, sigma: Tensor) -> Tensor:
    """Gaussian blur of each patch with its own sigma (B,), with repeated borders."""
    radius = torch.arange(-BLUR_RADIUS, BLUR_RADIUS + 1, device=patches.device)
    weights = torch.exp(-0.5 * (radius / sigma[:, None].clamp_min(1e-3)) ** 2)
    weights = weights / weights.sum(1, keepdim=True)
    padded = nnf.pad(patches, (BLUR_RADIUS,) * 4, mode="replicate")
    rows = (padded.unfold(3, 2 * BLUR_RADIUS + 1, 1) * weights[:, None, None, None]).sum(-1)
    return (rows.unfold(2, 2 * BLUR_RADIUS + 1, 1) * weights[:, None, None, None]).sum(-1)


def _noise(patches: Tensor, seeds: Tensor) -> Tensor:
    """Standard normal numbers that depend only on the seed of the patch and the pixel (Box-Muller)."""
    pixels = torch.arange(patches[0].numel(), device=patches.device)
    key = _hashed(seeds.long()[:, None] + 1)
    first, second = (_uniform(_hashed(key ^ _hashed(2 * pixels + k + 1))) for k in range(2))
    normal = torch.sqrt(-2 * torch.log(first)) * torch.cos(2 * math.pi * second)
    return normal.view(patches.shape)


def _hashed(numbers: Tensor) -> Tensor:
    """32 bits that depend on every bit of the number: murmur3's finalizer."""
    mask = 0xFFFFFFFF
    h = numbers & mask
    h = ((h ^ (h >> 16)) * 0x85EBCA6B) & mask
    h = ((h ^ (h >> 13)) * 0xC2B2AE35) & mask
    return h ^ (h >> 16)


def _uniform(bits: Tensor) -> Tensor:
    """Numbers in (0, 1) from 32 bits, of which 24 are kept."""
    return ((bits >> 8).float() + 0.5) / 2**24
