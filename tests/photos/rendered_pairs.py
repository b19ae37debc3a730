"""Pairs of rendered photos whose geometry is known: flat scene, camera that only turned, scenes in depth."""

from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from rendering import Plane, View, intersect, photograph, turn

WIDTH, HEIGHT, FOCAL = 400, 300, 380.0


@dataclass(frozen=True)
class Pair:
    """Two photos of a scene."""

    planes: list[Plane]
    views: tuple[View, View]
    photos: tuple[np.ndarray, np.ndarray]

    def errors(self, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
        """(M,) distance in B of each match from the true place; infinite where the truth is hidden in B."""
        a, b = self.views
        places, _ = intersect(self.planes, a.centre, a.rays(points_a))
        true, _ = b.project(places)
        again, _ = intersect(self.planes, b.centre, places - b.centre)
        seen = np.linalg.norm(again - places, axis=1) < 0.01
        return np.where(seen, np.linalg.norm(true - points_b, axis=1), np.inf)


@cache  # only to be read
def rendered_pair(kind: str, seed: int = 0, repeats: int = 1) -> Pair:
    """Two photos of a scene with known geometry.

    Args:
        kind: "flat", "turned", "depth" (walls, floor, a board) or "facade" (a wall at an angle with pillars).
        seed: of the textures and cameras.
        repeats: how often a pattern nearly repeats along a wall.
    """
    random = np.random.default_rng(seed)
    planes = [Plane(*np.array(shape, float), wall_paper(random, repeats)) for shape in SHAPES[kind]]
    move = np.zeros(3) if kind == "turned" else np.array([0.9, random.uniform(-0.2, 0.2), random.uniform(-0.2, 0.2)])
    R = turn(2, random.normal(0, 0.1)) @ turn(0, random.normal(0, 0.03)) @ turn(1, random.uniform(0.08, 0.15))
    first = View(np.eye(3), np.zeros(3), FOCAL, WIDTH, HEIGHT)
    second = View(R, -R @ move, FOCAL, WIDTH, HEIGHT)
    return Pair(planes, (first, second), (photograph(planes, first, random), photograph(planes, second, random)))


def wall_paper(random: np.random.Generator, repeats: int, side: int = 512) -> np.ndarray:
    """(side, side) float32 noise with structure of several sizes."""
    noise = random.uniform(-1, 1, (side, side)).astype(np.float32)
    if repeats > 1:
        tile = random.uniform(-1, 1, (side // repeats, side // repeats)).astype(np.float32)
        noise = 0.12 * noise + np.tile(tile, (repeats, repeats))
    layers = [cv2.GaussianBlur(noise, (0, 0), sigma) for sigma in (1.5, 3, 6, 12)]
    return np.clip(128 + 30 * sum(layer / layer.std() for layer in layers), 0, 255)


ROOM = [
    [(-5, -4, 8), (10, 0, 0), (0, 8, 0)],
    [(-5, 1.6, 2), (10, 0, 0), (0, 0, 6)],
    [(-2.6, -4, 2), (0, 0, 6), (0, 8, 0)],
    [(0.3, -1.0, 4.5), (1.4, 0, 0.4), (0, 1.6, 0)],
]
SHAPES = {
    "flat": [[(-6, -5, 5.5), (12, 0, 1.0), (0, 10, 0)]],
    "turned": ROOM,
    "depth": ROOM,
    "facade": [  # pillars stand before a wall
        [(-4, -4, 4.5), (10, 0, 5), (0, 8, 0)],
        [(-1.6, -3, 4.4), (0.9, 0, 0.45), (0, 6, 0)],
        [(0.0, -3, 4.9), (0.9, 0, 0.45), (0, 6, 0)],
        [(1.8, -3, 5.6), (0.9, 0, 0.45), (0, 6, 0)],
    ],
}
