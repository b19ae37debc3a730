"""Render photos of a street corner with exact cameras: façades that repeat, crates, posters, ground, other light each.

    python experiments/photos/render_scene.py OUT --seed 0

OUT becomes a scene for `matchkernel evaluate photos`: images/*.png, cameras.txt and pairs.txt. Pairs are those whose
photos truly share at least a tenth of what they show. Another seed is another street. Textures are procedural or
come from scikit-image's photos.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import cv2
import numpy as np
from rendering import Hits, Plane, View, hits, sub_pixels, turn
from skimage import data

from matchkernel.cli.console import run_script
from matchkernel.data.synthetic import random_texture, sample_linear
from matchkernel.storage.files import check_new_folder, replacing
from matchkernel.storage.images import write_png

WIDTH, HEIGHT = 880, 660
PER_METRE = 96  # pixels of a texture
RAYS = 2  # along each side of a pixel
TARGET = np.array([0.0, -2.2, 11.0])  # what the cameras look at; y points down, the ground is at y = 0
LEAST_OVERLAP = 0.1
POSTERS = ("astronaut", "coffee", "chelsea", "rocket", "immunohistochemistry", "camera", "clock", "hubble_deep_field")
SAME_DEPTH, GRID = 0.05, 40  # points per side by which overlap is measured
BLOCK = 60_000  # rays at a time

Cover = Callable[[float, float, np.random.Generator], np.ndarray]  # metres -> a texture


@dataclass(frozen=True)
class Light:
    """The light of one photo."""

    sun: np.ndarray  # (3,) direction towards it
    ambient: float
    tint: np.ndarray  # (3,)
    shadows: np.ndarray  # (planes, 3) a line on each plane, beyond which it is in shadow


def main() -> None:
    """Render a scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--views", type=int, default=14)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the photos; 1 for 880 x 660 pixels")
    options = parser.parse_args()
    check_new_folder(options.out)
    pairs = render_scene(options.out, options.seed, options.views, options.scale)
    print(f"{options.out}: {options.views} photos, {pairs} pairs")


def render_scene(folder: Path, seed: int, views: int = 14, scale: float = 1.0) -> int:
    """Write a scene, and return its number of pairs."""
    random = np.random.default_rng(seed)
    planes = list(street(random))
    cameras = [camera(number, views, scale, random) for number in range(views)]
    names = [f"{number:02}.png" for number in range(views)]
    (folder / "images").mkdir(parents=True)
    for name, view in zip(names, cameras, strict=True):
        write_png(folder / "images" / name, photograph(planes, view, light_of(planes, random), random))
    lines = ["# name fx fy cx cy, R by rows, t: x_camera = R X + t; the centre of the first pixel is (0, 0)"]
    for name, view in zip(names, cameras, strict=True):
        values = [view.focal, view.focal, *view.middle, *view.R.ravel(), *view.t]
        lines.append(f"{name} {' '.join(repr(float(value)) for value in values)}")
    pairs = [
        f"{names[i]} {names[j]}"
        for i, j in combinations(range(views), 2)
        if min(overlap(planes, cameras[i], cameras[j]), overlap(planes, cameras[j], cameras[i])) >= LEAST_OVERLAP
    ]
    for name, text in (("cameras.txt", lines), ("pairs.txt", pairs)):
        with replacing(folder / name) as part:
            part.write_text("\n".join(text) + "\n", encoding="ascii")
    return len(pairs)


def street(random: np.random.Generator) -> Iterator[Plane]:
    """Ground, houses, crates and posters on stands."""
    ground = random_texture(2048, random)[..., None] * random.uniform(0.8, 1, 3)
    gravel = tiled(np.dstack(3 * [data.gravel()]), 2048, 2048)
    yield Plane(np.array([-16.0, 0, -2]), np.array([32.0, 0, 0]), np.array([0, 0, 30.0]), 0.25 * ground + 0.6 * gravel)
    for x, z in ((-6.5, 14.0), (0.0, 17.0), (6.8, 13.5), (-1.5, 24.0)):
        yield from house(x + random.uniform(-0.7, 0.7), z + random.uniform(-0.7, 0.7), random)
    for x, z in ((-3.2, 8.5), (1.0, 9.5), (4.0, 8.0), (-0.8, 6.8)):
        side = random.uniform(0.7, 1.5)
        yield from box(x + random.uniform(-0.6, 0.6), z, (side, side, side), random, crate)
    for x, z in ((-4.8, 10.0), (2.8, 11.5), (-1.0, 12.0)):
        yield from stand(x + random.uniform(-0.5, 0.5), z, random)


def house(x: float, z: float, random: np.random.Generator) -> Iterator[Plane]:
    """Four walls with the same windows over and over."""
    size = (random.uniform(4.2, 6), random.uniform(4.5, 8), random.uniform(3.5, 5))
    style = style_of(random)
    yield from box(x, z, size, random, lambda width, height, chance: facade(width, height, style, chance))


def box(
    x: float, z: float, size: tuple[float, float, float], random: np.random.Generator, cover: Cover
) -> Iterator[Plane]:
    """Walls and top of a box on the ground, turned about the vertical."""
    width, height, depth = size
    R = turn(1, random.uniform(-0.6, 0.6))
    right, back, up = R @ [width, 0, 0], R @ [0, 0, depth], np.array([0, -height, 0])
    near = np.array([x, 0, z]) - right / 2 - back / 2
    for corner, along, metres in (
        (near, right, width),
        (near + right, back, depth),
        (near + right + back, -right, width),
        (near + back, -back, depth),
    ):
        yield Plane(corner + up, along, -up, cover(metres, height, random))
    yield Plane(near + up, right, back, cover(width, depth, random))


def stand(x: float, z: float, random: np.random.Generator) -> Iterator[Plane]:
    """A poster on both sides of a board."""
    picture = poster(random)
    width, height = random.uniform(1.6, 2.4), random.uniform(1.4, 2.0)
    along = turn(1, random.uniform(-0.8, 0.8)) @ [width, 0, 0]
    yield Plane(np.array([x, -height - 0.2, z]) - along / 2, along, np.array([0, height, 0]), picture)


def poster(random: np.random.Generator) -> np.ndarray:
    """A part of one of scikit-image's photos, (H, W, 3)."""
    picture = getattr(data, POSTERS[random.integers(len(POSTERS))])()
    picture = picture if picture.ndim == 3 else np.dstack(3 * [picture])
    height, width = picture.shape[:2]
    top, left = random.integers(0, height // 4), random.integers(0, width // 4)
    return picture[top : top + 3 * height // 4, left : left + 3 * width // 4].astype(np.float32)


def crate(width: float, height: float, random: np.random.Generator) -> np.ndarray:
    """Worn boards with a picture or printed text."""
    columns, rows = round(width * PER_METRE * 2), round(height * PER_METRE * 2)
    wood = tiled(np.dstack(3 * [data.grass()]), columns, rows) * [0.8, 0.65, 0.5]
    wood[:: max(1, rows // 6)] *= 0.4
    worn = cv2.resize(random_texture(256, random), (columns, rows))[..., None]
    wood = 0.6 * wood + 0.35 * worn
    picture = poster(random) if random.random() < 0.5 else np.dstack(3 * [data.text()]).astype(np.float32)
    paste(wood, picture, 0.25 + 0.2 * random.random(), 0.3, 0.45, 0.4)
    return wood.astype(np.float32)


@dataclass(frozen=True)
class Style:
    """What the walls of a house share."""

    wall: np.ndarray  # (3,) colour
    bricks: float
    window: np.ndarray  # (H, W, 3)
    spacing: tuple[float, float]  # metres


def style_of(random: np.random.Generator) -> Style:
    """Draw a style."""
    columns, rows = random.integers(60, 90), random.integers(90, 130)
    window = np.full((rows, columns, 3), random.uniform(30, 70), np.float32)
    window += cv2.resize(random_texture(64, random), (columns, rows))[..., None] * 0.25
    frame = random.uniform(150, 240)
    for y in np.linspace(0, rows - 5, random.integers(2, 5)).astype(int):
        window[y : y + 5] = frame
    for x in np.linspace(0, columns - 5, random.integers(2, 5)).astype(int):
        window[:, x : x + 5] = frame
    return Style(
        random.uniform(110, 210) * random.uniform(0.8, 1.1, 3),
        random.uniform(0.3, 0.9),
        window,
        (random.uniform(1.2, 1.6), random.uniform(1.6, 2.1)),
    )


def facade(width: float, height: float, style: Style, random: np.random.Generator) -> np.ndarray:
    """A wall of bricks and plaster, weathered, with rows of windows that differ a little, and a poster."""
    columns, rows = round(width * PER_METRE), round(height * PER_METRE)
    bricks = tiled(np.dstack(3 * [data.brick()]), columns, rows) - 128.0
    weather = cv2.resize(random_texture(512, random), (columns, rows))[..., None] - 128.0
    wall = style.wall + style.bricks * bricks + 0.18 * weather
    high, wide = style.window.shape[:2]
    for top in np.arange(0.5 * PER_METRE, rows - high, style.spacing[1] * PER_METRE).astype(int):
        for left in np.arange(0.4 * PER_METRE, columns - wide, style.spacing[0] * PER_METRE).astype(int):
            change = cv2.resize(random_texture(64, random), (wide, high))[..., None] - 128.0
            wall[top : top + high, left : left + wide] = style.window + random.uniform(0, 0.3) * change
    if random.random() < 0.4:
        paste(wall, poster(random), random.uniform(0.1, 0.6), random.uniform(0.5, 0.7), 0.25, 0.2)
    return wall.astype(np.float32)


def paste(wall: np.ndarray, picture: np.ndarray, left: float, top: float, width: float, height: float) -> None:
    """Put a picture on a wall; position and size in shares of the wall."""
    rows, columns = wall.shape[:2]
    x, y, w, h = round(left * columns), round(top * rows), round(width * columns), round(height * rows)
    w, h = min(w, columns - x), min(h, rows - y)
    wall[y : y + h, x : x + w] = cv2.resize(picture, (w, h), interpolation=cv2.INTER_AREA)


def tiled(tile: np.ndarray, columns: int, rows: int) -> np.ndarray:
    """A tile over and over, each second one mirrored so that edges fit."""
    both = np.concatenate([tile, tile[:, ::-1]], 1)
    both = np.concatenate([both, both[::-1]], 0)
    times = rows // both.shape[0] + 1, columns // both.shape[1] + 1, 1
    return np.tile(both, times)[:rows, :columns].astype(np.float32)


def camera(number: int, count: int, scale: float, random: np.random.Generator) -> View:
    """Cameras on an arc of 120 degrees at different distances, heights and focal lengths, some of them tilted."""
    around = np.deg2rad(np.linspace(-60, 60, count)[number] + random.uniform(-4, 4))
    distance = random.uniform(6.0, 12.0)
    centre = TARGET + distance * np.array([np.sin(around), 0, -np.cos(around)])
    centre[1] = random.uniform(-4.0, -1.2)
    ahead = TARGET + random.normal(0, [0.9, 0.5, 0.9]) - centre
    z = ahead / np.linalg.norm(ahead)
    x = np.cross([0, 1, 0], z)
    x /= np.linalg.norm(x)
    R = turn(2, random.normal(0, np.deg2rad(10))) @ np.stack([x, np.cross(z, x), z])
    width, height = round(WIDTH * scale), round(HEIGHT * scale)
    return View(R, -R @ centre, width * random.uniform(0.7, 1.5), width, height)


def light_of(planes: list[Plane], random: np.random.Generator) -> Light:
    """Draw the light of one photo."""
    side, high = random.uniform(-1.3, 1.3), random.uniform(0.3, 1.2)
    sun = np.array([np.sin(side) * np.cos(high), -np.sin(high), -np.cos(side) * np.cos(high)])
    lines = np.column_stack([random.normal(0, 1, (len(planes), 2)), random.uniform(-0.2, 0.9, len(planes))])
    return Light(sun, random.uniform(0.38, 0.8), random.uniform(0.88, 1.12, 3), lines)


def photograph(planes: list[Plane], view: View, light: Light, random: np.random.Generator) -> np.ndarray:
    """(H, W, 3) uint8: light on each plane, shadows, haze, sky, then a lens and a sensor."""
    pyramids = [list(pyramid(plane.texture)) for plane in planes]
    total = np.zeros((view.width * view.height, 3))
    clouds = cv2.resize(random_texture(128, random), (view.width, view.height)).reshape(-1, 1)
    for places in sub_pixels(view, RAYS):
        colour = 150 + 0.5 * clouds * [0.8, 0.9, 1.1]
        for start in range(0, len(places), BLOCK):
            part = colour[start : start + BLOCK]
            found = hits(planes, view.centre, view.rays(places[start : start + BLOCK]))
            for number in np.unique(found.planes[found.planes >= 0]):
                here = found.planes == number
                lit = light_on(planes[number], light.shadows[number], found.uv[here], view, light)
                part[here] = lit[:, None] * seen(planes[number], pyramids[number], found, here, view)
        total += colour / RAYS**2
    picture = (total * light.tint).reshape(view.height, view.width, 3)
    return developed(picture, random)


def seen(plane: Plane, levels: list[np.ndarray], found: Hits, here: np.ndarray, view: View) -> np.ndarray:
    """(K, 3) colours of the texture where the rays `here` meet the plane."""
    # How many pixels of the texture a ray stands for decides which of its smaller copies is used.
    footprint = found.depths[here] / view.focal / RAYS * plane.texture.shape[1] / np.linalg.norm(plane.u)
    level = np.clip(np.round(np.log2(np.maximum(footprint, 1e-6)) + 0.5), 0, len(levels) - 1).astype(int)
    colour = np.empty((len(level), 3))
    for k in np.unique(level):
        chosen, (height, width) = level == k, levels[k].shape[:2]
        x, y = (found.uv[here][chosen] * [width, height] - 0.5).T
        for channel in range(3):
            colour[chosen, channel] = sample_linear(levels[k][..., channel], x, y)
    return colour


def light_on(plane: Plane, shadow: np.ndarray, uv: np.ndarray, view: View, light: Light) -> np.ndarray:
    """(K,) how bright places of a plane are."""
    normal = plane.normal if plane.normal @ (plane.corner - view.centre) < 0 else -plane.normal
    direct = max(0.0, float(normal @ light.sun))
    in_sun = 1 / (1 + np.exp(-60 * (uv @ shadow[:2] / np.linalg.norm(shadow[:2]) + shadow[2])))  # a soft edge
    return light.ambient + (1.4 - light.ambient) * direct * in_sun


def pyramid(texture: np.ndarray) -> Iterator[np.ndarray]:
    """A texture and its halves."""
    texture = texture.astype(np.float32)
    while min(texture.shape[:2]) > 8:
        yield texture
        texture = cv2.resize(texture, (texture.shape[1] // 2, texture.shape[0] // 2), interpolation=cv2.INTER_AREA)


def developed(picture: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """A lens that is a little soft and darker in the corners; exposure, gamma, and noise of the sensor."""
    height, width = picture.shape[:2]
    y, x = np.mgrid[-1 : 1 : height * 1j, -1 : 1 : width * 1j]
    picture = cv2.GaussianBlur(picture, (0, 0), random.uniform(0.4, 1.2))
    picture = picture * (1 - random.uniform(0, 0.2) * (x**2 + y**2))[..., None] * random.uniform(0.7, 1.3)
    picture = 255 * np.clip(picture / 255, 0, 1) ** random.uniform(0.7, 1.35)
    picture = picture + random.normal(0, random.uniform(1.5, 5), picture.shape)
    return np.clip(np.round(picture), 0, 255).astype(np.uint8)


def overlap(planes: list[Plane], a: View, b: View) -> float:
    """The share of a grid of A's pixels whose scene points B sees too."""
    y, x = np.mgrid[0 : a.height - 1 : GRID * 1j, 0 : a.width - 1 : GRID * 1j]
    rays = a.rays(np.column_stack([x.ravel(), y.ravel()]))
    found = hits(planes, a.centre, rays)
    met = found.planes > 0  # on something that stands on the ground
    points = a.centre + rays[met] * found.depths[met][:, None]
    places, depths = b.project(points)
    inside = (depths > 0) & (places >= 0).all(1) & (places <= [b.width - 1, b.height - 1]).all(1)
    again = hits(planes, b.centre, b.rays(places[inside]))
    return float((np.abs(again.depths / depths[inside] - 1) < SAME_DEPTH).sum() / len(rays))


if __name__ == "__main__":
    run_script(main)
