"""Photos to train a matcher on: keypoints with rows, the depths that a COLMAP model gives them, and warped copies."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matchkernel.colmap.model import NO_POINT, Reconstruction, RegisteredImage, read_reconstruction
from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera, read_scene
from matchkernel.geometry.conventions import COLMAP_ORIGIN
from matchkernel.geometry.detect import Detection, Detector
from matchkernel.geometry.warps import warped_copy
from matchkernel.model.context import Keypoints
from matchkernel.photos.extract import Describer, describe_detection
from matchkernel.photos.features import Features
from matchkernel.storage.images import read_gray
from matchkernel.storage.work import Progress, in_threads, progress_counter, spare_threads
from matchkernel.training.matcher.config import MatcherConfig

NEIGHBOURS, FEWEST_NEIGHBOURS, FEWEST_POINTS = 8, 6, 12  # of a local plane, of those within reach, and of a photo
OWN_POINT = 1.5  # pixels within which a point of the model is the keypoint's own
NEAREST, REACH = 0.025, 0.05  # maximum distance of the nearest point, and of the points of a plane, in longer sides
# Of a plane, relative to the inverse depth that it gives: median and maximum residual, maximum change over its points.
MEDIAN_RESIDUAL, MAX_RESIDUAL, MAX_CHANGE = 0.01, 0.04, 0.3


@dataclass(frozen=True)
class MatcherScene:
    """A scene to train on: photos, cameras and pairs, and the model, for depths."""

    scene: EvaluationScene
    model: Reconstruction

    @property
    def name(self) -> str:
        """Of its folder."""
        return self.scene.name


@dataclass(frozen=True)
class MatcherPhoto:
    """A photo or a warped copy of one, on the device.

    Attributes:
        scene: name.
        name: of the file.
        keypoints: (1, K), the largest first.
        pixels: half the longer side: pixels per unit of places.
        H: (3, 3) from places in the photo to places in this copy; the identity for the photo itself.
        camera: of the photo; None for a copy, as are the rays and depths.
        rays: (K, 2) x / z and y / z, NaN where the camera has none.
        depths: (K,) NaN where not known.
        focal: in pixels.
        middle: the median of the depths.
    """

    scene: str
    name: str
    keypoints: Keypoints
    pixels: float
    H: np.ndarray
    camera: PoseCamera | None = None
    rays: Tensor | None = None
    depths: Tensor | None = None
    focal: float = 0.0
    middle: float = 1.0


def read_matcher_scenes(folders: Sequence[str | Path], shared_points: int) -> list[MatcherScene]:
    """Read scenes of photos with a COLMAP model: images/ and sparse/."""
    found: list[MatcherScene] = []
    if not folders:
        raise ArgumentError("give at least one scene to train on")
    for folder in map(Path, folders):
        if not folder.is_dir():
            raise FileError(f"{folder}: no such folder")
        if not (folder / "sparse").is_dir():
            raise FileError(f"{folder}: no COLMAP model; a scene to train on has images/ and sparse/")
        scene = read_scene(folder, shared_points=shared_points)
        if scene.name in [other.name for other in found]:
            raise ArgumentError(f"two scenes are called {scene.name}; rename a folder")
        found.append(MatcherScene(scene, read_reconstruction(folder / "sparse")))
    return found


def read_photos(
    scenes: Sequence[MatcherScene],
    describer: Describer,
    config: MatcherConfig,
    device: torch.device,
    progress: Progress | None = None,
) -> dict[tuple[str, str], list[MatcherPhoto]]:
    """By scene and name, each photo and its warped copies; keypoints are detected in threads."""
    detector = Detector(keypoints=config.keypoints)
    tasks = [
        (scene, name, None if copy == 0 else [config.seed, number, copy])
        for number, (scene, name) in enumerate((scene, name) for scene in scenes for name in scene.scene.images)
        for copy in range(config.warps + 1)
    ]
    add = progress_counter(progress, len(tasks))
    photos: dict[tuple[str, str], list[MatcherPhoto]] = {}

    def detect(task: tuple[MatcherScene, str, list[int] | None]) -> tuple[np.ndarray, Detection, np.ndarray | None]:
        scene, name, seed = task
        gray, H, mask = read_gray(scene.scene.images[name]), None, None
        if seed is not None:
            gray, H, mask = warped_copy(gray, np.random.default_rng(seed))
        return gray, detector.detect(gray, mask), H

    for (scene, name, _), (gray, found, H) in zip(tasks, in_threads(detect, tasks, spare_threads()), strict=True):
        features = describe_detection(gray, found, describer, detector)
        photos.setdefault((scene.name, name), []).append(_photo(scene, name, features, H, device))
        add(1)
    return photos


def keypoints_of(features: Features, device: torch.device | str = "cpu") -> Keypoints:
    """The keypoints of a photo as the network sees them; the rows take half the memory of float32."""
    arrays = (features.keypoints, features.orientations, features.scales, features.descriptors.astype(np.float16))
    centers, angles, scales, rows = (torch.from_numpy(np.ascontiguousarray(array)).to(device) for array in arrays)
    return Keypoints.of(centers, angles, scales, rows, features.image_size)


def _photo(
    scene: MatcherScene, name: str, features: Features, H: np.ndarray | None, device: torch.device
) -> MatcherPhoto:
    features = features[np.argsort(-features.scales, kind="stable")]
    keypoints, size = keypoints_of(features, device), features.image_size
    pixels = max(size) / 2
    if H is not None:
        to_places = np.array([[1, 0, (1 - size[0]) / 2], [0, 1, (1 - size[1]) / 2], [0, 0, pixels]]) / pixels
        inner = to_places @ H @ np.linalg.inv(to_places)
        return MatcherPhoto(scene.name, name, keypoints, pixels, inner / np.cbrt(np.linalg.det(inner)))
    camera = scene.scene.cameras[name]
    rays = camera.rays(features.keypoints, size)
    image = next(image for image in scene.model.images.values() if image.name == name)
    depths = depths_of(features.keypoints, rays, *seen_points(image, camera, scene.model, size), max(size))
    on_rays, on_depths = (torch.from_numpy(array).float().to(device) for array in (rays, depths))
    middle = float(np.nanmedian(depths)) if np.isfinite(depths).any() else 1.0
    geometry = (camera, on_rays, on_depths, camera.focal(size), middle)
    return MatcherPhoto(scene.name, name, keypoints, pixels, np.eye(3), *geometry)


def seen_points(
    image: RegisteredImage, camera: PoseCamera, model: Reconstruction, size: tuple[int, int]
) -> tuple[np.ndarray, np.ndarray]:
    """(M, 2) pixels and (M, 3) camera coordinates of the model's points in front of a photo."""
    tracked = np.array([point in model.points for point in image.points.tolist()], bool) & (image.points != NO_POINT)
    X = np.array([model.points[point] for point in image.points[tracked].tolist()]).reshape(-1, 3)
    in_camera, scale = X @ camera.R.T + camera.t, np.array(size) / np.array(camera.size or size)
    in_front = in_camera[:, 2] > 0
    return (image.places[tracked] * scale - COLMAP_ORIGIN)[in_front], in_camera[in_front]


def depths_of(centers: np.ndarray, rays: np.ndarray, seen: np.ndarray, points: np.ndarray, side: float) -> np.ndarray:
    """(K,) depths of keypoints: of the model's point at the keypoint, or of a local plane; NaN where neither is known.

    The inverse depth of a plane is linear in the ray. It is fitted to the nearest points of the model, and used only
    where these are close, lie on a plane (small residuals), and are not at very different depths.

    Args:
        centers: (K, 2) keypoints in pixels.
        rays: (K, 2) of them.
        seen: (M, 2) pixels of points of the model.
        points: (M, 3) these points in camera coordinates.
        side: the longer side of the photo in pixels.
    """
    depths = np.full(len(centers), np.nan)
    if len(seen) < FEWEST_POINTS or not len(centers):
        return depths
    d, near = torch.cdist(torch.from_numpy(centers), torch.from_numpy(seen)).topk(NEIGHBOURS, largest=False)
    distance, nearest = d.numpy(), near.numpy()
    y = 1 / points[nearest, 2]
    is_used = distance < REACH * side
    weights = np.where(is_used, 1 / (4 + distance), 0) ** 2
    u = points[nearest, :2] / points[nearest, 2:] - np.nan_to_num(rays)[:, None]
    A = np.concatenate([u, np.ones((*u.shape[:2], 1))], 2)
    normal = np.einsum("kna,kn,knb->kab", A, weights, A)
    normal += 1e-12 * np.trace(normal, axis1=1, axis2=2)[:, None, None] * np.eye(3) + 1e-300 * np.eye(3)
    plane = np.linalg.solve(normal, np.einsum("kna,kn,kn->ka", A, weights, y)[..., None])[..., 0]
    inverse = np.where(plane[:, 2] > 0, plane[:, 2], np.nan)
    residuals = np.where(is_used, np.abs(np.einsum("kna,ka->kn", A, plane) - y), np.nan) / inverse[:, None]
    changes = np.where(is_used, np.abs(y / inverse[:, None] - 1), 0)
    fits = (distance[:, 0] < NEAREST * side) & is_used[:, FEWEST_NEIGHBOURS - 1] & np.isfinite(inverse)
    fits[fits] &= np.nanmedian(residuals[fits], 1) < MEDIAN_RESIDUAL
    fits &= (np.nan_to_num(residuals).max(1) < MAX_RESIDUAL) & (changes.max(1) < MAX_CHANGE)
    depths[fits] = 1 / inverse[fits]
    own = distance[:, 0] < OWN_POINT
    depths[own] = points[nearest[own, 0], 2]
    return depths
