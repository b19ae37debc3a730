"""A rendered scene with exact truth: textured planes photographed by pinhole cameras, written as a COLMAP workspace.

Keypoints are detected in the rendered photos; where each of them lies on a plane is known exactly. Tracks are made from
the truth, but each keypoint is left out of its track with some probability: these are the positives that a matcher
missed and geometry should find.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from rendering import Plane, View, intersect, photograph, quaternion, turn

from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.model import NO_POINT
from matchkernel.colmap.scene import Photo, Scene, read_scene
from matchkernel.data.positives import Tolerances, find_geometric_positives
from matchkernel.data.synthetic import random_texture
from matchkernel.geometry.conventions import MAGNIFICATION, frames_to_colmap
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.storage.images import write_png

TEXTURE = 1024
WRONG = 0.25  # half widths between the true places of two patches that may not be called the same point
# Corner, u and v of a back wall, a floor, a side wall, and a board in front that hides some of them.
PLANES = np.array(
    [
        [(-4, -3, 8), (8, 0, 0), (0, 6, 0)],
        [(-4, 3, 2), (8, 0, 0), (0, 0, 6)],
        [(-4, -3, 2), (0, 0, 6), (0, 6, 0)],
        [(0.5, -0.5, 5.5), (1.6, 0, 0.4), (0, 2, 0)],
    ]
)


@dataclass(frozen=True)
class LabelNoise:
    """What was found and how true it is."""

    found: int
    wrong_share: float  # of those found: true place off by more than a quarter of the half width
    median_offset: float  # half widths between the true place and the point
    recall: float  # right ones / points that some free keypoint of a photo truly shows, whatever its size and direction


def render_scene(
    folder: str | Path,
    photos: int = 8,
    seed: int = 0,
    missed: float = 0.4,
    width: int = 640,
    height: int = 480,
    texture: int = TEXTURE,
) -> None:
    """Write images/, sparse/ (text), database.db and truth/<photo>.npy, (K, 3) the scene point under each keypoint.

    Args:
        folder: where to; made if it is not there.
        photos: how many.
        seed: of everything random.
        missed: probability that a keypoint is left out of its track.
        width: of the photos.
        height: of the photos.
        texture: pixels along each side of a plane.
    """
    random = np.random.default_rng(seed)
    folder = Path(folder)
    for part in ("images", "sparse", "truth"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    planes = [Plane(corner, u, v, random_texture(texture, random)) for corner, u, v in PLANES]
    views = [_view(k, photos, width, height, random) for k in range(photos)]
    frames, truths = [], []
    for number, view in enumerate(views):
        photo = photograph(planes, view, random)
        write_png(folder / "images" / f"{number:03}.png", photo)
        detected = Detector(keypoints=0, contrast=0.04).detect(photo).frames  # fewer than by default: a quick scene
        place, _ = intersect(planes, view.centre, view.rays(detected.centers))
        seen = np.isfinite(place).all(1)
        frames.append(detected[seen])
        truths.append(place[seen])
        np.save(folder / "truth" / f"{number:03}.npy", truths[-1])
    tracks = _tracks(views, frames, truths, missed, random)
    _write_model(folder / "sparse", views, frames, truths, tracks)
    _write_database(folder / "database.db", frames)


def _view(number: int, count: int, width: int, height: int, random: np.random.Generator) -> View:
    """Cameras on an arc before the scene, turned a little about all axes."""
    side = -1.6 + 3.2 * number / max(1, count - 1)
    centre = np.array([side, random.uniform(-0.8, 0.5), random.uniform(-0.5, 1.2)])
    yaw = np.arctan2(-0.6 * side, 6) + random.normal(0, 0.03)
    pitch, roll = random.normal(0, 0.04), random.normal(0, 0.25)
    R = turn(2, roll) @ turn(0, pitch) @ turn(1, -yaw)
    return View(R, -R @ centre, 0.9 * width * random.uniform(0.85, 1.2), width, height)


def _tracks(
    views: list[View], frames: list[Frames], truths: list[np.ndarray], missed: float, random: np.random.Generator
) -> list[list[tuple[int, int]]]:
    """Keypoints of one spot, one size and one direction in the scene, at most one a photo; some left out."""
    groups: list[list[tuple[int, int]]] = []
    places, sizes, directions = np.empty((0, 3)), np.empty(0), np.empty((0, 3))
    for number, view in enumerate(views):
        depth = (truths[number] @ view.R.T + view.t)[:, 2]
        size = frames[number].half_widths * depth / view.focal
        angle = frames[number].angles
        direction = np.column_stack([np.cos(angle), np.sin(angle), np.zeros(len(angle))]) @ view.R
        fresh = []
        for k in range(len(size)):
            fits = (np.linalg.norm(places - truths[number][k], axis=1) < 0.08 * size[k]) & (
                np.abs(np.log2(sizes / size[k])) < 0.3
            )
            fits &= directions @ direction[k] > np.cos(np.deg2rad(20))
            chosen = next((g for g in np.flatnonzero(fits) if groups[g][-1][0] != number), None)
            if chosen is None:
                fresh.append(k)
            else:
                groups[chosen].append((number, k))
        groups += [[(number, k)] for k in fresh]
        places, sizes = np.concatenate([places, truths[number][fresh]]), np.concatenate([sizes, size[fresh]])
        directions = np.concatenate([directions, direction[fresh]])
    kept = [[member for member in group if random.random() >= missed] for group in groups]
    return [group for group in kept if len(group) > 1]


def _write_model(
    folder: Path, views: list[View], frames: list[Frames], truths: list[np.ndarray], tracks: list[list[tuple[int, int]]]
) -> None:
    point_of = [np.full(len(f), -1) for f in frames]
    lines = []
    for number, track in enumerate(tracks, 1):
        place = np.mean([truths[photo][k] for photo, k in track], axis=0)
        for photo, k in track:
            point_of[photo][k] = number
        seen = " ".join(f"{photo + 1} {k}" for photo, k in track)
        lines.append(f"{number} {place[0]:.9f} {place[1]:.9f} {place[2]:.9f} 128 128 128 0.1 {seen}")
    (folder / "points3D.txt").write_text("\n".join(lines) + "\n", encoding="ascii")
    # COLMAP's principal point has its own origin: half a pixel more than ours.
    cameras = (
        f"{n} PINHOLE {v.width} {v.height} {v.focal} {v.focal} {v.width / 2} {v.height / 2}"
        for n, v in enumerate(views, 1)
    )
    (folder / "cameras.txt").write_text("\n".join(cameras) + "\n", encoding="ascii")
    images = []
    for number, view in enumerate(views):
        wxyz = " ".join(f"{value:.12f}" for value in quaternion(view.R))
        images.append(
            f"{number + 1} {wxyz} {' '.join(f'{value:.12f}' for value in view.t)} {number + 1} {number:03}.png"
        )
        keypoints = frames_to_colmap(frames[number], MAGNIFICATION)
        images.append(
            " ".join(f"{x:.6f} {y:.6f} {p}" for (x, y), p in zip(keypoints[:, :2], point_of[number], strict=True))
        )
    (folder / "images.txt").write_text("\n".join(images) + "\n", encoding="ascii")


def _write_database(path: Path, frames: list[Frames]) -> None:
    path.unlink(missing_ok=True)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE images (image_id INTEGER PRIMARY KEY, name TEXT, camera_id INTEGER)")
        connection.execute(
            "CREATE TABLE keypoints (image_id INTEGER PRIMARY KEY, rows INTEGER, cols INTEGER, data BLOB)"
        )
        for number, detected in enumerate(frames, 1):
            rows = frames_to_colmap(detected, MAGNIFICATION)
            connection.execute("INSERT INTO images VALUES (?, ?, ?)", (number, f"{number - 1:03}.png", number))
            connection.execute("INSERT INTO keypoints VALUES (?, ?, 6, ?)", (number, len(rows), rows.tobytes()))


def measure_label_noise(folder: str | Path, tolerances: Tolerances | None = None) -> LabelNoise:
    """Compare the geometric positives of a rendered scene (see render_scene) with its truth."""
    folder = Path(folder)
    scene = read_scene(folder / "images", folder / "sparse", folder / "database.db")
    keypoints = read_database_keypoints(folder / "database.db")
    found = find_geometric_positives(scene, tolerances)
    offsets, possible = [], 0
    for photo, points in zip(scene.photos, found, strict=True):
        places = _true_places(folder, photo, keypoints[photo.name])
        sizes = photo.frames.half_widths * photo.depths(places) / photo.pixels_per_unit
        chosen = np.flatnonzero(points != NO_POINT)
        offsets.append(np.linalg.norm(places[chosen] - scene.points[points[chosen]], axis=1) / sizes[chosen])
        possible += _possible(scene, photo, places, sizes)
    every = np.concatenate(offsets)
    if not len(every):
        return LabelNoise(0, 0.0, 0.0, 0.0)
    right = int((every < WRONG).sum())
    return LabelNoise(len(every), 1 - right / len(every), float(np.median(every)), right / max(possible, 1))


def _true_places(folder: Path, photo: Photo, keypoints: np.ndarray) -> np.ndarray:
    """(K, 3) scene point under each frame of a photo; frames are the keypoints less those at the border."""
    truth = np.load(folder / "truth" / f"{Path(photo.name).stem}.npy")
    centers = photo.to_file_pixels(keypoints[:, :2].astype(np.float64))
    shapes = keypoints[:, 2:].astype(np.float64)
    rows = {
        (*center, *shape): k for k, (center, shape) in enumerate(zip(centers.round(3), shapes.round(3), strict=True))
    }
    ratio = photo.frames.shapes.reshape(-1, 4) / MAGNIFICATION / photo.scale.mean()
    keys = zip(photo.frames.centers.round(3), ratio.round(3), strict=True)
    return np.array([truth[rows[(*center, *shape)]] for center, shape in keys]).reshape(-1, 3)


def _possible(scene: Scene, photo: Photo, places: np.ndarray, sizes: np.ndarray) -> int:
    """Points the photo does not track that some free keypoint truly shows."""
    free = np.flatnonzero(photo.points == NO_POINT)
    tracked = set(photo.points.tolist())
    shown = 0
    for point, place in enumerate(scene.points):
        near = np.linalg.norm(places[free] - place, axis=1) < WRONG * sizes[free]
        shown += point not in tracked and bool(near.any())
    return shown
