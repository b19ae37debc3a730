"""Detect keypoints of an image with DoG (OpenCV's SIFT detector) or Key.Net, choose among them, and orient them."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.choose import choose
from matchkernel.geometry.conventions import MAGNIFICATION, frames_from_opencv
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.orientation import dominant_angles
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.settings import check_ranges, setting, short_repr

# OpenCV's SIFT doubles the image and keeps eleven float32 images of that size: 180 bytes per pixel, 2.8 GB here.
SIFT_PIXELS = 16_000_000
# Key.Net takes about 510 bytes per pixel: images for it are smaller by this factor, and take 2 GB.
KEYNET_SHARE = 4
MAX_POOLED = 16
NETWORKS: tuple[Literal["keynet", "affnet", "orinet"], ...] = ("keynet", "affnet", "orinet")  # fields: weight files


@dataclass(frozen=True)
class Detection:
    """Keypoints of one image, strongest first."""

    frames: Frames
    scores: np.ndarray  # (K,) contrast, or Key.Net's response


@dataclass(frozen=True)
class Detector:
    """How keypoints are detected. Options of functions and commands are derived from these fields.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.detect import Detector
        >>> y, x = np.mgrid[:80, :100]
        >>> blob = 40 + 180 * np.exp(-((x - 60) ** 2 + (y - 30) ** 2) / 32)
        >>> found = Detector(keypoints=1).detect(blob.astype(np.uint8))
        >>> found.frames.centers.round().tolist()
        [[60.0, 30.0]]
    """

    keypoints: int = setting(4000, low=0, about="maximum number of keypoints per image; 0 for all")
    contrast: float = setting(0.01, above=0, high=1000, about="contrast threshold of the detector")
    edge: float = setting(10.0, above=0, high=10**6, about="edge threshold of the detector")
    upright: bool = setting(False, about="ignore keypoint orientation: one upright region per position and size")
    magnification: float = setting(
        MAGNIFICATION, above=0, high=1000, about="half side of a region / sigma of its keypoint"
    )
    choice: Literal["strongest", "largest", "spread", "cells"] = setting(
        "largest", about="which keypoints fill the budget: strongest, largest, spread over the image, best of cells"
    )
    orientations: Literal["all", "one"] = setting(
        "all", about="orientations per position: all the detector finds, or only the dominant one"
    )
    pooling: str = setting(
        "", about="average a keypoint's descriptors over regions of these half sides / sigma, such as 6,8,10"
    )
    keynet: str | None = setting(None, about="weight file of Key.Net, which then finds the keypoints instead of DoG")
    affnet: str | None = setting(None, about="weight file of AffNet, which then stretches the regions")
    orinet: str | None = setting(None, about="weight file of OriNet, for one orientation per position, from it")
    # Larger images are halved for detection: only the very smallest keypoints are lost, and memory stays below 180
    # bytes per pixel of this number.
    most_pixels: int = setting(SIFT_PIXELS, low=1, high=10**9)

    def __post_init__(self) -> None:
        for name in NETWORKS:
            path = getattr(self, name)
            object.__setattr__(self, name, str(path) if isinstance(path, Path) else path)
        if isinstance(self.pooling, (list, tuple)):
            object.__setattr__(self, "pooling", ",".join(map(str, self.pooling)))
        check_ranges(self)
        object.__setattr__(self, "pooling", ",".join(f"{number:.9g}" for number in self.pooled_magnifications))

    @property
    def pooled_magnifications(self) -> tuple[float, ...]:
        """The numbers of `pooling`; none without pooling."""
        try:
            found = tuple(float(part) for part in self.pooling.split(",")) if self.pooling else ()
        except ValueError:
            found = (0.0,)
        if not all(0 < number <= 1000 for number in found) or len(found) > MAX_POOLED:
            raise ArgumentError(
                f"pooling must be up to {MAX_POOLED} numbers above 0, such as 6,8,10, got {short_repr(self.pooling)}"
            )
        return found

    @property
    def has_networks(self) -> bool:
        """True if a network of kornia is used."""
        return any(getattr(self, name) is not None for name in NETWORKS)

    def settings(self) -> dict[str, Any]:
        """What is recorded with features; a weight file by its sha256. Files that cannot be used are refused here."""
        dog = f"OpenCV {need_opencv().__version__} SIFT, precise upscale"
        found = {"detector": dog if self.keynet is None else "Key.Net", **asdict(self)}
        for name in (name for name in NETWORKS if found[name] is not None):
            from matchkernel.geometry.frame_networks import library, open_network, weights_digest

            open_network(name, found[name])
            found[name] = weights_digest(found[name])
            found["networks"] = library()
        return found

    def detect(self, gray: np.ndarray, mask: np.ndarray | None = None, *, device: Any = None) -> Detection:
        """Keypoints of an image, strongest first.

        Args:
            gray: (H, W) uint8.
            mask: (H, W) uint8; only keypoints where it is not 0.
            device: where networks run (default: CPU).
        """
        rows, shapes = self._find(gray, mask, device)
        frames = frames_from_opencv(rows[:, :4], self.magnification)
        if shapes is not None:
            frames = Frames(frames.centers, frames.half_widths[:, None, None] * shapes)
        return Detection(frames, rows[:, 4])

    def detect_points(self, gray: np.ndarray, mask: np.ndarray | None = None, *, device: Any = None) -> list[Any]:
        """The same keypoints as cv2.KeyPoint objects; upright ones have angle -1.

        Args:
            gray: (H, W) uint8.
            mask: (H, W) uint8; only keypoints where it is not 0.
            device: where networks run (default: CPU).
        """
        if self.affnet is not None:
            raise ArgumentError("an OpenCV keypoint is a circle and cannot hold AffNet's shapes: leave affnet out")
        rows, _ = self._find(gray, mask, device)
        KeyPoint = need_opencv().KeyPoint
        return [KeyPoint(*row, int(octave)) for *row, octave in rows.tolist()]

    def _find(self, gray: np.ndarray, mask: np.ndarray | None, device: Any) -> tuple[np.ndarray, np.ndarray | None]:
        """(K, 6) x, y, size, angle, response, octave in OpenCV's terms, strongest first; AffNet's (K, 2, 2) shapes."""
        if gray.ndim != 2 or gray.dtype != np.uint8 or not gray.size:
            raise ArgumentError(f"an image must be (H, W) uint8 gray, got {gray.dtype} of shape {gray.shape}")
        limit = self.most_pixels if self.keynet is None else max(1, self.most_pixels // KEYNET_SHARE)
        gray, factor = halved(gray, limit)
        mask = mask if mask is None else np.ascontiguousarray(mask[::factor, ::factor])
        rows = self._dog_points(gray, mask) if self.keynet is None else self._keynet_points(gray, mask, device)
        # The order so far depends on threads; sorted by strength, then position, an image always gives the same list.
        rows = rows[np.lexsort((rows[:, 3], rows[:, 2], rows[:, 0], rows[:, 1], -rows[:, 4]))]
        one = self.upright or self.orientations == "one" or self.has_networks
        if one:  # a position with several orientations stands once for each, one after the other
            rows = rows[(np.diff(rows[:, [0, 1, 2, 4]], axis=0, prepend=np.nan) != 0).any(1)]
        rows = rows[self._chosen(rows)]
        shapes = self._measure(gray, rows, device) if one else None
        rows[:, :3] *= factor
        rows[:, 5] = [_octave(int(octave), factor) for octave in rows[:, 5]]
        return rows, shapes

    def _dog_points(self, gray: np.ndarray, mask: np.ndarray | None) -> np.ndarray:
        """Rows of DoG keypoints. Without OpenCV's precise upscaling they lie 0.25 pixels too far right and down."""
        sift = need_opencv().SIFT_create(
            contrastThreshold=self.contrast, edgeThreshold=self.edge, enable_precise_upscale=True
        )
        points = sift.detect(gray, mask)
        rows = [(*point.pt, point.size, point.angle, point.response, point.octave) for point in points]
        return np.array(rows, np.float64).reshape(-1, 6)

    def _keynet_points(self, gray: np.ndarray, mask: np.ndarray | None, device: Any) -> np.ndarray:
        from matchkernel.geometry.frame_networks import keynet_points, open_network

        assert self.keynet is not None
        x, y, sigmas, responses = keynet_points(gray, open_network("keynet", self.keynet, device)).T
        rows = np.column_stack([x, y, 2 * sigmas, -np.ones(len(x)), responses, np.zeros(len(x))])
        if mask is None:
            return rows
        return rows[mask[np.clip(y.round().astype(int), 0, len(mask) - 1), x.round().astype(int)] != 0]

    def _chosen(self, rows: np.ndarray) -> np.ndarray:
        """Ascending indices of the rows that fill the budget.

        Positions are chosen, and each comes with its orientations: several at one position neither suppress each other
        nor count as several.
        """
        if not self.keypoints or len(rows) <= self.keypoints:
            return np.arange(len(rows))
        is_new = (np.diff(rows[:, [0, 1, 2, 4]], axis=0, prepend=np.nan) != 0).any(1)
        places = rows[is_new]
        best = choose(places[:, :2], places[:, 2], places[:, 4], self.keypoints, self.choice)
        turn = np.full(len(places), len(rows))
        turn[best] = np.arange(len(best))
        order = np.argsort(turn[np.cumsum(is_new) - 1], kind="stable")
        return np.sort(order[: self.keypoints])

    def _measure(self, gray: np.ndarray, rows: np.ndarray, device: Any) -> np.ndarray | None:
        """Write one angle into each row, -1 for upright; returns the shapes of area 1 where AffNet stretches regions.

        OpenCV returns all peaks of at least 0.8 of the highest, sorted by angle and with one response, so the highest
        is measured again; in a stretched region the angle is measured in the patch.
        """
        centers, sigmas, shapes = rows[:, :2], rows[:, 2] / 2, None
        if self.affnet is not None:
            from matchkernel.geometry.frame_networks import affine_shapes, open_network

            shapes = affine_shapes(gray, centers, sigmas, open_network("affnet", self.affnet, device))
        rows[:, 3] = -1
        if self.upright:
            return shapes
        frames = Frames(centers, sigmas[:, None, None] * (np.eye(2) if shapes is None else shapes))
        if self.orinet is not None:
            from matchkernel.geometry.frame_networks import network_angles, open_network

            angles = network_angles(gray, frames, open_network("orinet", self.orinet, device))
        else:
            angles = dominant_angles(gray, frames)
        rows[:, 3] = np.rad2deg(angles) % 360
        turns = Frames.turned_squares(centers, np.ones(len(angles)), angles).shapes
        return None if shapes is None else shapes @ turns


# COLMAP's limits on number and contrast: OpenCV divides its threshold by the three layers, COLMAP's is 0.0067.
COLMAP_LIKE = Detector(keypoints=8192, contrast=0.02)


def halved(image: np.ndarray, max_pixels: int = SIFT_PIXELS) -> tuple[np.ndarray, int]:
    """Halve (H, W) gray until it has at most `max_pixels`; also the factor from its coordinates to the image's."""
    cv2, factor = need_opencv(), 1
    while image.size > max_pixels and image.size > 1:
        image, factor = cv2.pyrDown(image), 2 * factor  # pixel (i, j) lies at (2 i, 2 j)
    return image, factor


def _octave(octave: int, factor: int) -> int:
    """OpenCV's octave bits of a keypoint of an image that was reduced by this factor."""
    return (octave & ~255) | (((octave & 255) + factor.bit_length() - 1) & 255)  # the lowest byte, signed
