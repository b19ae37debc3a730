"""A picture of a model: its points in their colours and its cameras, seen from above and behind the cameras."""

from pathlib import Path

import numpy as np

from matchkernel.colmap.model import Reconstruction, read_reconstruction
from matchkernel.colmap.points import point_cloud
from matchkernel.geometry.cameras import focal_length
from matchkernel.storage.extras import need_opencv

TILT = np.deg2rad(30)  # of the view, downwards from the direction of the cameras
SHOWN = (1.0, 99.0)  # percentiles of the places of points: the others may be far away
CAMERA, PAPER = (214, 76, 32), 255  # colour of the cameras, and of the background
OVERSAMPLED = 2
CAMERA_SIZE = 0.05  # depth of a camera's pyramid / diagonal of what is shown
MOST_POINTS = 500_000


def draw_model(sparse: str | Path, width: int = 1200, height: int = 800) -> np.ndarray:
    """Draw the points and cameras of a model: (height, width, 3) uint8 RGB.

    Args:
        sparse: folder of the model.
        width: pixels of the picture.
        height: pixels of the picture.

    Example:
        >>> from matchkernel.colmap.picture import draw_model
        >>> draw_model("workspace/sparse").shape  # doctest: +SKIP
        (800, 1200, 3)
    """
    model = read_reconstruction(sparse)
    places, colours = point_cloud(sparse)
    step = max(1, len(places) // MOST_POINTS)
    places, colours = places[::step], colours[::step]
    axes = _view(model)
    points, pyramids = places @ axes.T, _pyramids(model, places) @ axes.T
    low, high = _bounds(points, pyramids)
    size = OVERSAMPLED * np.array([width, height])
    scale = 0.92 * (size / (high - low)).min()
    offset = (size - scale * (low + high)) / 2
    canvas = np.full((size[1], size[0], 3), PAPER, np.uint8)
    pixels = np.round(scale * points[:, :2] + offset).astype(int)
    radius = 1 if len(points) > 50_000 else 2 if len(points) > 5_000 else 4
    _dots(canvas, pixels[np.argsort(-points[:, 2])], colours[np.argsort(-points[:, 2])], radius)
    cv2 = need_opencv()
    for corners in np.round(scale * pyramids[:, :, :2] + offset).astype(int).tolist():
        tip, *base = corners
        for a, b in [*((tip, corner) for corner in base), *zip(base, base[1:] + base[:1], strict=True)]:
            cv2.line(canvas, a, b, CAMERA, OVERSAMPLED, cv2.LINE_AA)
    return cv2.resize(canvas, (width, height), interpolation=cv2.INTER_AREA)


def _view(model: Reconstruction) -> np.ndarray:
    """Rows right, down and away of the view: that of the average camera, tilted down."""
    down, forward = (np.mean([image.R[row] for image in model.images.values()], axis=0) for row in (1, 2))
    if np.linalg.norm(down) < 0.1:  # photos from all sides, also upside down
        down = np.array([0.0, 1.0, 0.0])
    down = down / np.linalg.norm(down)
    forward = forward - (forward @ down) * down
    if np.linalg.norm(forward) < 0.1:  # cameras all around, or that look down
        forward = np.eye(3)[np.argmin(np.abs(down))]
        forward = forward - (forward @ down) * down
    forward = forward / np.linalg.norm(forward)
    right = np.cross(down, forward)
    away = np.cos(TILT) * forward + np.sin(TILT) * down
    return np.array([right, np.cross(away, right), away])


def _pyramids(model: Reconstruction, places: np.ndarray) -> np.ndarray:
    """(N, 5, 3) the centre of each camera and the corners of its photo, before it."""
    centres = np.array([-image.R.T @ image.t for image in model.images.values()])
    shown = np.percentile(places, SHOWN, axis=0) if len(places) else centres
    everything = np.concatenate([shown, centres])
    depth = CAMERA_SIZE * np.linalg.norm(np.ptp(everything, axis=0))
    found = []
    for image, centre in zip(model.images.values(), centres, strict=True):
        camera = model.cameras[image.camera]
        half = np.array([camera.width, camera.height]) / 2 / focal_length(camera.model, camera.parameters)
        half *= min(1.0, 1.5 / half.max())  # of a fisheye or panorama
        corners = [(x * half[0], y * half[1], 1.0) for x, y in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        found.append([centre, *(centre + depth * np.array(corners) @ image.R)])
    return np.array(found)


def _bounds(points: np.ndarray, pyramids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smallest and largest x and y to show."""
    shown = np.percentile(points[:, :2], SHOWN, axis=0) if len(points) else np.empty((0, 2))
    everything = np.concatenate([shown, pyramids[:, :, :2].reshape(-1, 2)])
    low, high = everything.min(0), everything.max(0)
    return low, np.maximum(high, low + 1e-9)


def _dots(canvas: np.ndarray, pixels: np.ndarray, colours: np.ndarray, radius: int) -> None:
    """Draw points, the later ones over the earlier ones; those outside are left out."""
    height, width = canvas.shape[:2]
    for dy in range(-radius, radius + 1):
        for dx in range(-radius, radius + 1):
            if dx * dx + dy * dy <= radius * radius + 1:
                x, y = pixels[:, 0] + dx, pixels[:, 1] + dy
                is_inside = (x >= 0) & (x < width) & (y >= 0) & (y < height)
                canvas[y[is_inside], x[is_inside]] = colours[is_inside]
