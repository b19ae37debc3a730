"""How often geometric positives are wrong, measured on a rendered scene whose truth is known."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.model import NO_POINT
from matchkernel.data.positives import Tolerances, find_geometric_positives, pixels_per_unit
from matchkernel.data.scene import Photo, Scene, read_scene
from matchkernel.geometry.conventions import SET_MAGNIFICATION

WRONG = 0.25  # half widths between the true places of two patches that may not be called the same point


@dataclass(frozen=True)
class LabelNoise:
    """What was found and how true it is."""

    found: int
    wrong_share: float  # of those found: true place off by more than a quarter of the half width
    median_offset: float  # half widths between the true place and the point
    recall: float  # right ones / points that some free keypoint of a photo truly shows, whatever its size and direction


def measure_label_noise(folder: str | Path, tolerances: Tolerances | None = None) -> LabelNoise:
    """Compare the geometric positives of a rendered scene (see render_scene) with its truth."""
    folder = Path(folder)
    scene = read_scene(folder / "images", folder / "sparse", folder / "database.db")
    keypoints = read_database_keypoints(folder / "database.db")
    found = find_geometric_positives(scene, tolerances)
    offsets, possible = [], 0
    for photo, points in zip(scene.photos, found, strict=True):
        places = _true_places(folder, photo, keypoints[photo.name])
        sizes = photo.frames.half_widths * _depths(photo, places) / pixels_per_unit(photo)
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
    ratio = photo.frames.shapes.reshape(-1, 4) / SET_MAGNIFICATION / photo.scale.mean()
    keys = zip(photo.frames.centers.round(3), ratio.round(3), strict=True)
    return np.array([truth[rows[(*center, *shape)]] for center, shape in keys]).reshape(-1, 3)


def _depths(photo: Photo, places: np.ndarray) -> np.ndarray:
    return (places @ photo.pose.R.T + photo.pose.t)[:, 2]


def _possible(scene: Scene, photo: Photo, places: np.ndarray, sizes: np.ndarray) -> int:
    """Points the photo does not track that some free keypoint truly shows."""
    free = np.flatnonzero(photo.points == NO_POINT)
    tracked = set(photo.points.tolist())
    shown = 0
    for point, place in enumerate(scene.points):
        near = np.linalg.norm(places[free] - place, axis=1) < WRONG * sizes[free]
        shown += point not in tracked and bool(near.any())
    return shown
