"""A scene that COLMAP has reconstructed: its photos, with keypoints as frames and the 3-D points that they show."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from matchkernel.colmap.database import read_database_keypoints
from matchkernel.colmap.model import NO_POINT, Camera, RegisteredImage, read_reconstruction
from matchkernel.errors import FileError
from matchkernel.geometry.cameras import PANORAMA, focal_length
from matchkernel.geometry.conventions import COLMAP_ORIGIN, MAGNIFICATION, frames_from_colmap
from matchkernel.geometry.frames import Frames
from matchkernel.storage.images import read_gray


@dataclass(frozen=True)
class Photo:
    """One registered photo."""

    name: str
    path: Path
    camera: Camera
    pose: RegisteredImage
    scale: np.ndarray  # (2,) pixels of the file / pixels of the camera
    size: tuple[int, int]  # width, height of the file
    frames: Frames  # of all keypoints, in pixels of the file
    points: np.ndarray  # (K,) row in Scene.points, or NO_POINT

    def to_file_pixels(self, colmap_places: np.ndarray) -> np.ndarray:
        """Convert positions with COLMAP's origin, at the camera's size, to our pixel coordinates in the file."""
        return colmap_places * self.scale - COLMAP_ORIGIN

    def depths(self, points: np.ndarray) -> np.ndarray:
        """(K,) depths of scene points (K, 3) in this photo; in a panorama, their distances from the camera."""
        in_camera = points @ self.pose.R.T + self.pose.t
        return np.linalg.norm(in_camera, axis=1) if self.camera.model == PANORAMA else in_camera[:, 2]

    @property
    def pixels_per_unit(self) -> float:
        """Number of pixels of the file per unit of the scene at depth 1."""
        return focal_length(self.camera.model, self.camera.parameters) * float(self.scale.mean())


@dataclass(frozen=True)
class Scene:
    """Photos, 3-D points, and counts of what was left out."""

    photos: list[Photo]
    points: np.ndarray  # (P, 3)
    tracked: int  # keypoints of 3-D points in all registered photos of the model
    photos_left_out: Counter[str]  # reason -> number of photos
    tracked_left_out: Counter[str]  # reason -> number of tracked keypoints, including those of photos left out


def read_scene(
    images: str | Path,
    sparse: str | Path,
    database: str | Path,
    *,
    all_keypoints: str | Path | None = None,
    taken: Sequence[str] = (),
    magnification: float = MAGNIFICATION,
) -> Scene:
    """Read a sparse model with its database and photos. Photos that cannot be used are left out and counted.

    Args:
        images: folder of the photos.
        sparse: folder of the model.
        database: with the keypoints of the model's images.
        all_keypoints: another database with more keypoints of the same photos.
        taken: names of all photos that COLMAP was given; those without a pose are counted as left out.
        magnification: half side of a region / sigma.
    """
    model, keypoints = read_reconstruction(sparse), read_database_keypoints(database)
    more = {} if all_keypoints is None else read_database_keypoints(all_keypoints)
    if all_keypoints is not None and more.keys().isdisjoint(pose.name for pose in model.images.values()):
        raise FileError(f"{all_keypoints}: has none of the photos of {sparse}")
    ids = np.array(sorted(model.points), np.int64)
    photos_left_out: Counter[str] = Counter()
    tracked_left_out: Counter[str] = Counter()
    photos = []
    for _, pose in sorted(model.images.items()):
        photo = _photo(Path(images) / pose.name, model.cameras[pose.camera], pose)
        rows = keypoints.get(pose.name)
        reason = photo if isinstance(photo, str) else _why_keypoints_do_not_fit(rows, pose)
        if isinstance(photo, str) or rows is None or reason:
            photos_left_out[reason] += 1
            tracked_left_out["in a photo that is left out"] += int((pose.points != NO_POINT).sum())
        else:
            photos.append(_with_keypoints(photo, rows, more.get(pose.name), ids, tracked_left_out, magnification))
    placed = {pose.name for pose in model.images.values()}
    sizes = (_size(Path(images) / name) for name in taken if name not in placed)
    photos_left_out.update(size if isinstance(size, str) else "not in the model" for size in sizes)
    places = np.array([model.points[int(number)] for number in ids]).reshape(-1, 3)
    tracked = sum(int((pose.points != NO_POINT).sum()) for pose in model.images.values())
    return Scene(photos, places, tracked, photos_left_out, tracked_left_out)


def fits_camera(photo: tuple[int, int], camera: tuple[int, int]) -> bool:
    """True if a photo has the aspect ratio of its camera's intrinsics, with half a pixel of rounding at each size.

    Example:
        >>> fits_camera((320, 240), (1281, 960)), fits_camera((320, 320), (1281, 960))
        (True, False)
    """
    scales = photo[0] / camera[0], photo[1] / camera[1]
    return abs(scales[0] - scales[1]) * max(camera) <= 1.0 + max(scales)


def _size(path: Path) -> tuple[int, int] | str:
    """Width and height of a photo, or why it cannot be read."""
    try:
        height, width = read_gray(path).shape
    except FileError as error:
        return "missing" if "no such file" in str(error) else "cannot be read"
    return width, height


def _photo(path: Path, camera: Camera, pose: RegisteredImage) -> Photo | str:
    """The photo without keypoints, or why it cannot be used."""
    size = _size(path)
    if isinstance(size, str):
        return size
    if not fits_camera(size, (camera.width, camera.height)):
        return "of another shape than its camera"
    scale = np.array([size[0] / camera.width, size[1] / camera.height])
    no_frames = Frames(np.empty((0, 2)), np.empty((0, 2, 2)))
    return Photo(pose.name, path, camera, pose, scale, size, no_frames, np.empty(0, np.int64))


def _why_keypoints_do_not_fit(rows: np.ndarray | None, pose: RegisteredImage) -> str:
    if rows is None:
        return "without keypoints in the database"
    if rows.shape[1] == 2:
        return "with keypoints that have no scale (2 columns)"
    if len(rows) != len(pose.places) or (len(rows) and np.abs(rows[:, :2] - pose.places).max() > 0.01):
        return "with keypoints that are not the model's"
    return ""


def _with_keypoints(
    photo: Photo,
    rows: np.ndarray,
    more: np.ndarray | None,
    ids: np.ndarray,
    left_out: Counter[str],
    magnification: float,
) -> Photo:
    points = photo.pose.points.copy()
    if more is not None and more.shape[1] == rows.shape[1]:
        known = {row.tobytes() for row in rows}
        fresh = np.array([row.tobytes() not in known for row in more], bool)
        rows = np.concatenate([rows, more[fresh]])
        points = np.append(points, np.full(int(fresh.sum()), NO_POINT))
    index = np.searchsorted(ids, points).clip(0, max(len(ids) - 1, 0))
    present = (points != NO_POINT) & (ids[index] == points if len(ids) else False)
    left_out["of a 3-D point that is not in the model"] += int(((points != NO_POINT) & ~present).sum())
    finite = np.isfinite(rows).all(1)
    rows = np.where(finite[:, None], rows, 0)
    frames = frames_from_colmap(rows, magnification)
    frames = Frames(photo.to_file_pixels(frames.centers + COLMAP_ORIGIN), photo.scale.mean() * frames.shapes)
    has_region = finite & (frames.half_widths > 0)
    usable = has_region & frames.are_inside(*photo.size)
    left_out["without a region"] += int((present & ~has_region).sum())
    left_out["whose region leaves the photo"] += int((present & has_region & ~usable).sum())
    return replace(photo, frames=frames[usable], points=np.where(present, index, NO_POINT)[usable])
