"""Synthetic patch sets with exact labels: points on random textures, under random affine and photometric changes."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from matchkernel.data.patch_set import LARGEST_PATCH, PatchSet, create_patch_set, open_patch_set
from matchkernel.data.phototourism import PATCH
from matchkernel.geometry.frames import SAMPLER, Frames, extract_patches
from matchkernel.geometry.jitter import Jitter, jittered
from matchkernel.storage.settings import Checked, setting
from matchkernel.storage.work import Progress

TEXTURE_SIDE, POINTS_PER_TEXTURE = 512, 50


@dataclass(frozen=True)
class SyntheticSettings(Checked):
    """The size of a set, and how much the patches of a point differ."""

    points: int = setting(1000, low=1, about="number of points")
    patches: int = setting(4, low=1, about="patches per point")
    size: int = setting(PATCH, low=8, high=LARGEST_PATCH, about="side of a patch in pixels")
    seed: int = setting(0, low=0, about="random seed")
    jitter: Jitter = field(default_factory=lambda: Jitter(shift=0.08, octaves=0.2, degrees=12.0, stretch=0.15))
    light: float = setting(1.0, low=0)  # strength of gain, offset, gradient, gamma and noise; 0: none


def build_synthetic(
    target: str | Path,
    settings: SyntheticSettings | None = None,
    progress: Progress | None = None,
) -> PatchSet:
    """Render a patch set. The same settings give the same bytes, whether or not the build was interrupted.

    Args:
        target: folder to create.
        settings: size of the set, and how much the patches of a point differ.
        progress: called with the number of points done and their total.

    Example:
        >>> from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
        >>> patches = build_synthetic("set", SyntheticSettings(points=3, patches=2, size=8))
        >>> len(patches), patches.groups().sizes.tolist()
        (6, [2, 2, 2])
    """
    settings = settings or SyntheticSettings()
    count = settings.points * settings.patches
    textures = map(str, range(-(-settings.points // POINTS_PER_TEXTURE)))
    with create_patch_set(target, count, settings.size, {"settings": asdict(settings), "sampler": SAMPLER}) as build:
        for number in build.steps(textures):
            first = number * POINTS_PER_TEXTURE
            last = min(first + POINTS_PER_TEXTURE, settings.points)
            random = np.random.default_rng((settings.seed, number))  # so that textures are independent of each other
            rows = range(first * settings.patches, last * settings.patches)
            build.store(rows, _patches_of_texture(last - first, settings, random))
            if progress is not None:
                progress(last, settings.points)
        labels = np.repeat(np.arange(settings.points), settings.patches)
        origin = {"kind": "synthetic", "settings": asdict(settings), "sampler": SAMPLER}
        build.finish(labels, {}, {}, {"source": origin})
    return open_patch_set(target)


def random_texture(side: int, random: np.random.Generator) -> np.ndarray:
    """(side, side) float32 from 0 to 255."""
    texture = np.zeros((side, side), np.float32)
    cells = 4
    while cells <= side // 2:
        texture += _smooth_noise(side, cells, random) / np.float32(np.sqrt(cells))
        cells *= 2
    texture = (texture - texture.min()) / np.ptp(texture) * 160
    rows, columns = np.mgrid[:side, :side].astype(np.float32)
    for _ in range(side // 2):
        _add_blob(texture, rows, columns, random)
    return np.clip(texture, 0, 255)


def sample_linear(texture: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Bilinear interpolation with the border repeated; x and y of any shape."""
    height, width = texture.shape
    x, y = np.clip(x, 0, width - 1.001), np.clip(y, 0, height - 1.001)
    left, top = x.astype(np.int64), y.astype(np.int64)
    fx, fy = (x - left).astype(np.float32), (y - top).astype(np.float32)
    upper = texture[top, left] * (1 - fx) + texture[top, left + 1] * fx
    lower = texture[top + 1, left] * (1 - fx) + texture[top + 1, left + 1] * fx
    return upper * (1 - fy) + lower * fy


def _patches_of_texture(points: int, settings: SyntheticSettings, random: np.random.Generator) -> np.ndarray:
    texture = random_texture(TEXTURE_SIDE, random)
    half = np.exp(random.uniform(np.log(20), np.log(60), points))
    margin = 1.8 * half
    centers = random.uniform(margin[:, None], TEXTURE_SIDE - 1 - margin[:, None], (points, 2))
    base = Frames.turned_squares(centers, half, random.uniform(-np.pi, np.pi, points))
    seen = jittered(base[np.repeat(np.arange(points), settings.patches)], settings.jitter, random)
    patches = extract_patches(texture, seen, settings.size)
    return _relit(patches, settings.light, random)


def _relit(patches: np.ndarray, light: float, random: np.random.Generator) -> np.ndarray:
    """Gamma, gain, offset, a gradient of light across the patch, and noise; then bytes."""
    k, side = len(patches), patches.shape[-1]
    values = patches.astype(np.float64) / 255

    def amount(low: float, high: float) -> np.ndarray:
        return random.uniform(low, high, (k, 1, 1)) * light

    values = np.clip(values, 0, 1) ** np.exp(amount(-0.4, 0.4))
    axis = np.linspace(-1, 1, side)
    slope = 1 + amount(-0.25, 0.25) * axis[None, None, :] + amount(-0.25, 0.25) * axis[None, :, None]
    values = values * slope * np.exp(amount(-0.3, 0.3)) + amount(-0.1, 0.1)
    values = values + random.standard_normal(values.shape) * np.abs(amount(0.0, 0.02))
    return np.clip(np.round(values * 255), 0, 255).astype(np.uint8)


def _smooth_noise(side: int, cells: int, random: np.random.Generator) -> np.ndarray:
    knots = random.standard_normal((cells + 1, cells + 1)).astype(np.float32)
    axis = np.linspace(0, cells, side, endpoint=False)
    x, y = np.meshgrid(axis, axis)
    return sample_linear(knots, x, y)


def _add_blob(texture: np.ndarray, rows: np.ndarray, columns: np.ndarray, random: np.random.Generator) -> None:
    """Draw an ellipse or a rectangle of random size, position and gray value over the texture."""
    side = len(texture)
    cx, cy = random.uniform(0, side, 2)
    long, short = np.sort(np.exp(random.uniform(np.log(2), np.log(side / 20), 2)))[::-1]
    angle = random.uniform(0, np.pi)
    top, bottom = int(max(0, cy - 1.5 * long)), int(min(side, cy + 1.5 * long)) + 1
    left, right = int(max(0, cx - 1.5 * long)), int(min(side, cx + 1.5 * long)) + 1
    dx, dy = columns[top:bottom, left:right] - cx, rows[top:bottom, left:right] - cy
    u = (dx * np.cos(angle) + dy * np.sin(angle)) / long
    v = (dy * np.cos(angle) - dx * np.sin(angle)) / short
    distance = np.maximum(np.abs(u), np.abs(v)) if random.random() < 0.4 else np.hypot(u, v)
    cover = np.clip((1 - distance) * short, 0, 1)  # an edge one pixel soft
    part = texture[top:bottom, left:right]
    part += cover * (random.uniform(0, 255) - part) * random.uniform(0.4, 1)
