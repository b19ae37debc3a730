"""Detect DoG keypoints of an image with OpenCV's SIFT detector."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.choose import choose
from matchkernel.geometry.conventions import MAGNIFICATION, frames_from_opencv
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.orientation import direction_histograms, peak_heights
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

    keypoints: int = setting(4000, low=0, about="maximum number of keypoints per image; 0 for all")
    contrast: float = setting(0.04, above=0, high=1000, about="contrast threshold of the detector")
    edge: float = setting(10.0, above=0, high=10**6, about="edge threshold of the detector")
    upright: bool = setting(False, about="ignore keypoint orientation: one upright region per position and size")
    magnification: float = setting(
        MAGNIFICATION, above=0, high=1000, about="half side of a region / sigma of its keypoint"
    )
    choice: Literal["strongest", "largest", "spread", "cells"] = setting(
        "strongest", about="which keypoints fill the budget: strongest, largest, spread over the image, best of cells"
    )
    orientations: Literal["all", "one"] = setting(
        "all", about="orientations per position: all the detector finds, or only the dominant one"
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
        rows = self._find(gray, None)[1]
        return Detection(frames_from_opencv(rows[:, :4], self.magnification), rows[:, 4])

    def detect_points(self, gray: np.ndarray, mask: np.ndarray | None = None) -> list[Any]:
        """The same keypoints as cv2.KeyPoint objects; upright ones have angle -1.

        Args:
            gray: (H, W) uint8.
            mask: (H, W) uint8; only keypoints where it is not 0.
        """
        points, rows, factor = self._find(gray, mask)
        KeyPoint = need_opencv().KeyPoint
        return [
            KeyPoint(*row, _octave(point.octave, factor), point.class_id)
            for point, row in zip(points, rows.tolist(), strict=True)
        ]

    def _find(self, gray: np.ndarray, mask: np.ndarray | None) -> tuple[list[Any], np.ndarray, int]:
        """Keypoints as OpenCV found them, (K, 5) x, y, size, angle, response in the image, and how it was reduced.

        OpenCV's precise upscaling is on: without it, keypoints are a quarter of a pixel too far to the right and down.
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
        order = order[self._chosen(gray, rows[order])]
        rows = rows[order] * (factor, factor, factor, 1, 1)
        if self.upright:
            rows[:, 3] = -1
        return [points[index] for index in order], rows, factor

    def _chosen(self, gray: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Ascending indices of the keypoints that fill the budget.

        Positions are chosen, and each comes with its orientations: several at one position neither suppress each other
        nor count as several.
        """
        # A position with several orientations stands once for each in `rows`, one after the other.
        is_new = (np.diff(rows[:, [0, 1, 2, 4]], axis=0, prepend=np.nan) != 0).any(1)
        positions = np.cumsum(is_new) - 1
        kept = np.arange(len(rows))
        if self.upright:
            kept = np.flatnonzero(is_new)
        elif self.orientations == "one":
            kept = _dominant(gray, rows, positions)
        if not self.keypoints or len(kept) <= self.keypoints:
            return kept
        places = rows[is_new]
        best = choose(places[:, :2], places[:, 2], places[:, 4], self.keypoints, self.choice)
        turn = np.full(len(places), len(rows))
        turn[best] = np.arange(len(best))
        return np.sort(kept[np.argsort(turn[positions[kept]], kind="stable")[: self.keypoints]])


def _dominant(gray: np.ndarray, rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """Indices of the orientation with the highest peak of each position.

    OpenCV returns all peaks of at least 0.8 of the highest, sorted by angle and all with the same response, so the
    peaks are measured again where there are several. Equal ones go to the smaller angle.
    """
    several = np.flatnonzero(np.bincount(positions)[positions] > 1)
    _, firsts, owners = np.unique(positions[several], return_index=True, return_inverse=True)
    places = rows[several[firsts]]
    heights = np.ones(len(rows))
    histograms = direction_histograms(gray, places[:, :2], places[:, 2] / 2)
    heights[several] = peak_heights(histograms[owners], rows[several, 3])
    order = np.lexsort((-heights, positions))
    return order[np.diff(positions[order], prepend=-1) != 0]


# COLMAP's limits on number and contrast: OpenCV divides its threshold by the three layers, COLMAP's is 0.0067.
COLMAP_LIKE = Detector(keypoints=8192, contrast=0.02)


def halved(image: np.ndarray, most_pixels: int = SIFT_PIXELS) -> tuple[np.ndarray, int]:
    """Halve (H, W) gray until it has at most `most_pixels`; also the factor from its coordinates to the image's."""
    cv2, factor = need_opencv(), 1
    while image.size > most_pixels and image.size > 1:
        image, factor = cv2.pyrDown(image), 2 * factor  # pixel (i, j) lies at (2 i, 2 j)
    return image, factor


def _octave(octave: int, factor: int) -> int:
    """OpenCV's octave bits of a keypoint of an image that was reduced by this factor."""
    return (octave & ~255) | (((octave & 255) + factor.bit_length() - 1) & 255)  # the lowest byte, signed
