"""Detect DoG keypoints of an image with OpenCV's SIFT detector."""

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.conventions import MAGNIFICATION, frames_from_opencv
from matchkernel.geometry.frames import Frames
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.settings import check_ranges, setting

# OpenCV's SIFT doubles the image and keeps eleven float32 images of that size: 180 bytes per pixel, 2.8 GB here.
SIFT_PIXELS = 16_000_000


@dataclass(frozen=True)
class Detection:
    """DoG keypoints of one image, strongest first."""

    frames: Frames
    scores: np.ndarray  # (K,) contrast


@dataclass(frozen=True)
class Detector:
    """How keypoints are found. Options of functions and verbs are derived from these fields."""

    keypoints: int = setting(4000, low=0, about="maximum number of keypoints per image, strongest first; 0 for all")
    contrast: float = setting(0.04, above=0, high=1000, about="contrast threshold of the detector")
    edge: float = setting(10.0, above=0, high=10**6, about="edge threshold of the detector")
    upright: bool = setting(False, about="ignore keypoint orientation: one upright region per position and size")
    magnification: float = setting(
        MAGNIFICATION, above=0, high=1000, about="half side of a region / sigma of its keypoint"
    )
    # Larger images are halved for detection: only the very smallest keypoints are lost, and memory stays below 180
    # bytes per pixel of this number.
    most_pixels: int = setting(SIFT_PIXELS, low=1, high=10**9)

    def __post_init__(self) -> None:
        check_ranges(self)

    def settings(self) -> dict[str, Any]:
        """What is recorded with features."""
        return {"detector": f"OpenCV {need_opencv().__version__} SIFT, precise upscale", **asdict(self)}

    def detect(self, gray: np.ndarray) -> Detection:
        """Keypoints of (H, W) uint8 gray, strongest first."""
        points = self.detect_points(gray)
        rows = np.array([(*p.pt, p.size, p.angle, p.response) for p in points], np.float64).reshape(-1, 5)
        return Detection(frames_from_opencv(rows[:, :4], self.magnification), rows[:, 4])

    def detect_points(self, gray: np.ndarray, mask: np.ndarray | None = None) -> list[Any]:
        """The same keypoints as cv2.KeyPoint objects; upright ones have angle -1.

        OpenCV's precise upscaling is on: without it, keypoints are a quarter of a pixel too far to the right and down.

        Args:
            gray: (H, W) uint8.
            mask: (H, W) uint8; only keypoints where it is not 0.
        """
        if gray.ndim != 2 or gray.dtype != np.uint8 or not gray.size:
            raise ArgumentError(f"an image must be (H, W) uint8 gray, got {gray.dtype} of shape {gray.shape}")
        gray, factor = halved(gray, self.most_pixels)
        mask = mask if mask is None else np.ascontiguousarray(mask[::factor, ::factor])
        sift = need_opencv().SIFT_create(
            contrastThreshold=self.contrast, edgeThreshold=self.edge, enable_precise_upscale=True
        )
        points = sift.detect(gray, mask)
        rows = np.array([(*p.pt, p.size, p.angle, p.response) for p in points], np.float64).reshape(-1, 5)
        # OpenCV's order depends on its threads; sorted by strength, then position, an image always gives the same list.
        order = np.lexsort((rows[:, 3], rows[:, 2], rows[:, 0], rows[:, 1], -rows[:, 4]))
        if self.upright:  # a position with several orientations is returned once for each
            order = order[np.sort(np.unique(rows[order, :3], axis=0, return_index=True)[1])]
        found = [_enlarged(points[index], factor) for index in order[: self.keypoints or None]]
        for point in found if self.upright else ():
            point.angle = -1
        return found


# COLMAP's limits on number and contrast: OpenCV divides its threshold by the three layers, COLMAP's is 0.0067.
COLMAP_LIKE = Detector(keypoints=8192, contrast=0.02)


def halved(image: np.ndarray, most_pixels: int = SIFT_PIXELS) -> tuple[np.ndarray, int]:
    """Halve (H, W) gray until it has at most `most_pixels`; also the factor from its coordinates to the image's."""
    cv2, factor = need_opencv(), 1
    while image.size > most_pixels and image.size > 1:
        image, factor = cv2.pyrDown(image), 2 * factor  # pixel (i, j) lies at (2 i, 2 j)
    return image, factor


def _enlarged(point: Any, factor: int) -> Any:
    """Convert a keypoint of a halved image to one of the original image."""
    if factor == 1:
        return point
    octave = ((point.octave & 255) + factor.bit_length() - 1) & 255  # the lowest byte, signed
    (x, y), rest = point.pt, point.octave & ~255
    return need_opencv().KeyPoint(
        x * factor, y * factor, point.size * factor, point.angle, point.response, rest | octave, point.class_id
    )
