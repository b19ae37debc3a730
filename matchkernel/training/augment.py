"""Augmentation: what is drawn for each patch of a batch, as a few numbers."""

import math
from dataclasses import dataclass, fields

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.storage.settings import short_repr
from matchkernel.training.randomness import LIGHT, WARPS, generator_at

# Where an output pixel (u, v) looks in the source: signed permutations of the axes. HardNet's script makes the first
# four only (identity, mirror, transposition, quarter turn clockwise); the others complete the square's symmetries.
SQUARE = np.array(
    [
        [[1, 0], [0, 1]], [[-1, 0], [0, 1]], [[0, 1], [1, 0]], [[0, 1], [-1, 0]],
        [[1, 0], [0, -1]], [[-1, 0], [0, -1]], [[0, -1], [1, 0]], [[0, -1], [-1, 0]],
    ],
    np.float64,
)  # fmt: skip
FLIPS = {"none": 1, "hardnet4": 4, "dihedral8": 8}
LIGHT_COLUMNS = ("gamma", "contrast", "slope_x", "slope_y", "blur", "noise", "quality", "noise_seed")


@dataclass(frozen=True)
class Augmentation:
    """Amounts of change. Flips and zooms are shared by a pair; everything else is drawn for each patch by itself.

    Attributes:
        flips: "dihedral8", all flips and quarter turns, "hardnet4", or "none".
        rotation_degrees: uniform in +- this.
        scale_octaves: side times 2^x, x uniform in +- this.
        aspect_octaves: width over height 2^x, x uniform in +- this, the area kept.
        shift: of the centre, uniform in +- this share of half the side, in x and y.
        zoom_octaves: the inner 2^-x of the side fills the patch, x uniform from 0 to this: as if the set had been cut
            at all magnifications from 2^-zoom_octaves of its own to its own.
        gamma: exponent e^x, x uniform in +- this.
        contrast: deviations from the mean times e^x, x uniform in +- this, then cut to black and white.
        light_gradient: light changes linearly by +- up to this share from the centre to the border, in x and y.
        blur: Gaussian of standard deviation uniform from 0 to this, in pixels of the network's input.
        noise: Gaussian of standard deviation uniform from 0 to this, in gray levels.
        jpeg: the lowest JPEG quality, uniform from it to 100; 0 for no JPEG.
    """

    flips: str = "dihedral8"
    rotation_degrees: float = 8.0
    scale_octaves: float = 0.12
    aspect_octaves: float = 0.0
    shift: float = 0.05
    zoom_octaves: float = 0.0
    gamma: float = 0.0
    contrast: float = 0.0
    light_gradient: float = 0.0
    blur: float = 0.0
    noise: float = 0.0
    jpeg: int = 0

    def __post_init__(self) -> None:
        if self.flips not in FLIPS:
            raise ArgumentError(f"augmentation.flips must be one of {', '.join(FLIPS)}, got {short_repr(self.flips)}")
        limits: dict[str, float] = {
            "rotation_degrees": 180,
            "scale_octaves": 2,
            "aspect_octaves": 2,
            "shift": 1,
            "zoom_octaves": 2,
        }
        limits |= {"gamma": 3, "contrast": 3, "light_gradient": 0.5, "blur": 3, "noise": 255, "jpeg": 100}
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name in limits and not 0 <= value <= limits[field.name]:
                raise ArgumentError(
                    f"augmentation.{field.name} must be from 0 to {limits[field.name]}, got {short_repr(value)}"
                )

    @property
    def has_light(self) -> bool:
        """Whether anything but the geometry changes."""
        return any((self.gamma, self.contrast, self.light_gradient, self.blur, self.noise, self.jpeg))


def draw_warps(settings: Augmentation, seed: int, step: int, pairs: int) -> np.ndarray:
    """Where each patch is sampled: (2, pairs, 2, 3) float32, output (u, v, 1) -> source, in half sides [M23].

    The patch is zoomed, turned, stretched and shifted first, then flipped: the flip acts on the jittered patch.
    """
    random = generator_at(seed, step, WARPS)
    flip = SQUARE[random.integers(FLIPS[settings.flips], size=pairs)]
    t, scale, aspect, dx, dy = random.uniform(-1, 1, (5, 2, pairs))
    zoom = 2 ** (-settings.zoom_octaves * random.uniform(0, 1, (pairs, 1, 1)))
    t = t * math.radians(settings.rotation_degrees)
    scale, aspect = 2 ** (scale * settings.scale_octaves), 2 ** (aspect * settings.aspect_octaves / 2)
    turn = np.stack([np.stack([np.cos(t), -np.sin(t)], -1), np.stack([np.sin(t), np.cos(t)], -1)], -2)
    stretch = np.stack([scale * aspect, scale / aspect], -1)
    linear = (turn * stretch[..., None, :]) @ flip
    shift = np.stack([dx, dy], -1)[..., None] * settings.shift
    return (zoom * np.concatenate([linear, shift], -1)).astype(np.float32)


def draw_light(settings: Augmentation, seed: int, step: int, pairs: int) -> np.ndarray:
    """What happens to the light of each patch: (2, pairs, 8) float32, see LIGHT_COLUMNS."""
    random = generator_at(seed, step, LIGHT)
    gamma, contrast, slope_x, slope_y = random.uniform(-1, 1, (4, 2, pairs))
    blur, noise, quality = random.uniform(0, 1, (3, 2, pairs))
    columns = [
        np.exp(gamma * settings.gamma),
        np.exp(contrast * settings.contrast),
        slope_x * settings.light_gradient,
        slope_y * settings.light_gradient,
        blur * settings.blur,
        noise * settings.noise,
        settings.jpeg + quality * (100 - settings.jpeg),
        random.integers(2**23, size=(2, pairs)),  # exact in float32
    ]
    return np.stack(columns, -1).astype(np.float32)
