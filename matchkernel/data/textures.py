"""Random textures with structure at every scale: noise of many octaves under blots and edges."""

import numpy as np


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
        _add_blot(texture, rows, columns, random)
    return np.clip(texture, 0, 255)


def sample_linear(texture: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Values of a texture between its pixels, the border repeated; x and y of any shape."""
    height, width = texture.shape
    x, y = np.clip(x, 0, width - 1.001), np.clip(y, 0, height - 1.001)
    left, top = x.astype(np.int64), y.astype(np.int64)
    fx, fy = (x - left).astype(np.float32), (y - top).astype(np.float32)
    upper = texture[top, left] * (1 - fx) + texture[top, left + 1] * fx
    lower = texture[top + 1, left] * (1 - fx) + texture[top + 1, left + 1] * fx
    return upper * (1 - fy) + lower * fy


def _smooth_noise(side: int, cells: int, random: np.random.Generator) -> np.ndarray:
    knots = random.standard_normal((cells + 1, cells + 1)).astype(np.float32)
    axis = np.linspace(0, cells, side, endpoint=False)
    x, y = np.meshgrid(axis, axis)
    return sample_linear(knots, x, y)


def _add_blot(texture: np.ndarray, rows: np.ndarray, columns: np.ndarray, random: np.random.Generator) -> None:
    """An ellipse or a rectangle of random size, place and gray, laid over what is there."""
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
