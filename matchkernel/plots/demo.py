"""Two matched pairs with known ground truth: a stereo pair, and its left image with a rotated, smaller copy."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.photos.extract import extract, open_describer
from matchkernel.photos.pipeline import match_features
from matchkernel.photos.verify import transfer_errors
from matchkernel.plots.matches import save_picture
from matchkernel.runtime.config import ONNX, PHOTO_MODEL
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import check_folder
from matchkernel.storage.images import write_png

DEGREES, SCALE = 30.0, 0.7  # of the copy
PIXELS = 3.0  # a match this close to the truth is correct
MODELS: dict[str, dict[str, Any]] = {PHOTO_MODEL: {"engine": ONNX, "device": "cpu"}, "rootsift": {}}  # exact: float32


@dataclass(frozen=True)
class DemoRow:
    """One pair matched by one descriptor."""

    pair: str  # "stereo" or "rotated copy"
    model: str
    matches: int
    inliers: int  # matches that agree on one geometry
    known: int  # matches for which the truth is known
    correct: int  # those of them within 3 px of the truth
    picture: Path

    @property
    def share(self) -> float:
        """Share of correct matches among those for which the truth is known."""
        return self.correct / self.known if self.known else math.nan


def run_demo(out: str | Path) -> list[DemoRow]:
    """Match Middlebury's motorcycle pair, which comes with the package, and its left image with a rotated copy."""
    out = Path(out)
    check_folder(out)
    left, right, disparity = load_motorcycle()
    copy, H = rotated_copy(left)
    pairs: dict[str, tuple[Any, ...]] = {
        "stereo": (right, lambda a, b: stereo_errors(a, b, disparity)),
        "rotated copy": (copy, lambda a, b: transfer_errors(H, a, b)),
    }
    for name, photo in {"left.png": left, "right.png": right}.items():
        write_png(out / name, photo)
    rows, describers = [], [open_describer(name, **options) for name, options in MODELS.items()]
    features = [extract(left, describer) for describer in describers]
    for pair, (other, errors) in pairs.items():
        for describer, of_left in zip(describers, features, strict=True):
            found = match_features(of_left, extract(other, describer))
            picture = out / f"{pair} {describer.name}.png".replace(", ", "-").replace(" ", "-")
            save_picture(found, left, other, picture, f"{pair}, {describer.name}")
            pixels = errors(*found.points)
            counts = len(found.matches), int(found.inliers.sum()), int((~np.isnan(pixels)).sum())
            rows.append(DemoRow(pair, describer.name, *counts, int((pixels <= PIXELS).sum()), picture))
    return rows


def rotated_copy(image: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The image rotated by 30 degrees and scaled by 0.7, on black; (3, 3) homography from the image to the copy."""
    cv2 = need_opencv()
    height, width = image.shape[:2]
    cosine, sine = SCALE * math.cos(math.radians(DEGREES)), SCALE * math.sin(math.radians(DEGREES))
    rotation = np.array([[cosine, -sine], [sine, cosine]])
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]]) @ rotation.T
    size = np.ceil(corners.max(0) - corners.min(0)).astype(int) + 1
    matrix = np.column_stack([rotation, -corners.min(0)])
    # Blurred as by a camera, so that the smaller copy has no aliasing.
    sharpness = 0.5 * math.sqrt(1 / SCALE**2 - 1)
    copy = cv2.warpAffine(cv2.GaussianBlur(image, (0, 0), sharpness), matrix, size.tolist(), flags=cv2.INTER_LINEAR)
    return copy, np.vstack([matrix, [0, 0, 1]])


def stereo_errors(points_a: np.ndarray, points_b: np.ndarray, disparity: np.ndarray) -> np.ndarray:
    """(M,) distance in the right image from the true position (x - disparity, y); NaN where it is unknown."""
    height, width = disparity.shape
    column, row = np.round(points_a).astype(int).T
    inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
    shift = np.full(len(points_a), np.nan)
    shift[inside] = disparity[row[inside], column[inside]]
    shift[~np.isfinite(shift)] = np.nan
    return np.linalg.norm(points_a - np.column_stack([shift, np.zeros(len(shift))]) - points_b, axis=1)
