"""From an image to features: keypoints, regions, descriptors."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.detect import Detection, detect_dog
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.opencv import load_opencv
from matchkernel.photos.describers import SIFT_PIXELS, Describer, Model, open_describer, reduced, scaled
from matchkernel.photos.features import Features
from matchkernel.storage.images import read_gray

KEYPOINTS, CONTRAST, EDGE = 4000, 0.04, 10.0
LIMITS: dict[str, float] = {"contrast": 1e3, "edge": 1e6, "magnification": 1e3, "most_pixels": 10**9}
FARTHEST = 1e6  # pixels; beyond, OpenCV's fixed-point sampling overflows

Image = np.ndarray | str | Path


@dataclass(frozen=True)
class Detector:
    """DoG keypoints of OpenCV's SIFT.

    Attributes:
        keypoints: the strongest so many; 0 for all.
        contrast: threshold on contrast.
        edge: threshold on edges.
        upright: do not turn regions with the gradient; one region at each place and size.
        magnification: half side of a region / sigma.
        most_pixels: an image of more is halved for detection, which loses its very smallest keypoints only and keeps
            memory below 180 bytes for each of these pixels.
    """

    keypoints: int = KEYPOINTS
    contrast: float = CONTRAST
    edge: float = EDGE
    upright: bool = False
    magnification: float = MAGNIFICATION
    most_pixels: int = SIFT_PIXELS

    def __post_init__(self) -> None:
        if not isinstance(self.keypoints, int | np.integer) or self.keypoints < 0:
            raise ArgumentError(f"keypoints must be a whole number, 0 (all) or more, got {self.keypoints!r}")
        object.__setattr__(self, "keypoints", int(self.keypoints))  # numpy's numbers are none of JSON's
        for name, most in LIMITS.items():
            value = getattr(self, name)
            if not isinstance(value, Real) or not 0 < float(value) <= most:
                raise ArgumentError(f"{name} must be above 0 and at most {most:,.0f}, got {value!r}")
            object.__setattr__(self, name, type(most)(value))

    def settings(self) -> dict[str, Any]:
        """What is recorded with features."""
        return {"detector": f"OpenCV {load_opencv().__version__} SIFT, precise upscale", **asdict(self)}

    def detect(self, gray: np.ndarray) -> Detection:
        """Keypoints of (H, W) uint8 gray, strongest first."""
        gray, factor = reduced(gray, self.most_pixels)
        found = detect_dog(gray, 0 if self.upright else self.keypoints, self.contrast, self.edge, self.magnification)
        found = Detection(scaled(found.frames, factor), found.scores)
        if not self.upright:
            return found
        half_widths = found.frames.half_widths
        # A place with several orientations comes out once for each: upright they are the same region.
        places = np.column_stack([found.frames.centers, half_widths.astype(np.float32)])
        first = np.sort(np.unique(places, axis=0, return_index=True)[1])[: self.keypoints or None]
        frames = Frames.turned_squares(found.frames.centers[first], half_widths[first], np.zeros(len(first)))
        return Detection(frames, found.scores[first])


def extract(
    image: Image,
    model: Model,
    *,
    keypoints: int = KEYPOINTS,
    contrast: float = CONTRAST,
    edge: float = EDGE,
    upright: bool = False,
    frames: Frames | None = None,
    magnification: float = MAGNIFICATION,
    device: str | torch.device | None = None,
) -> Features:
    """Find keypoints in an image and describe the regions around them.

    Args:
        image: a file, or (H, W) gray or (H, W, 3) RGB pixels, uint8 or uint16.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift" (see open_describer).
        keypoints: the strongest so many; 0 for all.
        contrast: threshold of the detector on contrast.
        edge: threshold of the detector on edges.
        upright: do not turn regions with the gradient; one region at each place and size.
        frames: regions to describe instead of detecting any (the four arguments above are then not used).
        magnification: half side of a region / sigma of the keypoint.
        device: where to run the network (default: where the model is).

    Returns:
        K features, strongest first, or in the order of the frames given. K = 0 gives (0, D) descriptors. A region
        without content (of one gray value, or outside the image) keeps its place, with a row of zeros that nothing
        matches.
    """
    detector = Detector(keypoints, contrast, edge, upright, magnification)
    describer = open_describer(model, device=device)
    gray = as_gray(image)
    if frames is None:
        return extract_with(gray, describer, detector)
    check_frames(frames)
    rows = describer.compute(gray, frames, magnification)
    rows[~_touch(frames, gray)] = 0
    scores = np.ones(len(frames), np.float32)
    settings = {"detector": "frames given", "magnification": detector.magnification, **describer.settings}
    return Features(frames, rows, scores, (gray.shape[1], gray.shape[0]), describer.name, settings)


def extract_with(
    gray: np.ndarray, describer: Describer, detector: Detector, seconds: dict[str, float] | None = None
) -> Features:
    """Features of (H, W) uint8 gray; the time of "detect" and "describe" is added to `seconds`."""
    seconds = {} if seconds is None else seconds
    with timed("detect", seconds):
        found = detector.detect(gray)
    with timed("describe", seconds):
        rows = describer.compute(gray, found.frames, detector.magnification)
    size = (gray.shape[1], gray.shape[0])
    settings = recorded_settings(describer, detector)
    return Features(found.frames, rows, found.scores.astype(np.float32), size, describer.name, settings)


def recorded_settings(describer: Describer, detector: Detector) -> dict[str, Any]:
    """The settings of features that these two make."""
    return {**detector.settings(), **describer.settings}


@contextmanager
def timed(stage: str, seconds: dict[str, float]) -> Iterator[None]:
    """Add the time the block takes to seconds[stage]."""
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[stage] = seconds.get(stage, 0.0) + time.perf_counter() - start


def as_gray(image: Image) -> np.ndarray:
    """(H, W) uint8 gray of a file or of pixels; colours are weighted as Pillow does, 16 bits lose their lower byte."""
    if isinstance(image, str | Path):
        return read_gray(image)
    if not isinstance(image, np.ndarray):
        raise ArgumentTypeError(f"an image is a file or a numpy array, got {type(image).__name__}")
    if image.dtype not in (np.uint8, np.uint16):
        raise ArgumentTypeError(f"pixels must be uint8 or uint16, got {image.dtype}; bring yours to 0..255 first")
    if not image.size or (image.ndim != 2 and (image.ndim != 3 or image.shape[2] not in (3, 4))):
        raise ArgumentError(f"an image is (H, W) gray or (H, W, 3) RGB and not empty, got shape {image.shape}")
    pixels = (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else image
    if pixels.ndim == 3:
        weights = np.array([19595, 38470, 7471], np.uint32)  # of 2^16: ITU-R 601-2
        pixels = ((pixels[..., :3] @ weights + 2**15) >> 16).astype(np.uint8)
    return np.ascontiguousarray(pixels)


def check_frames(frames: Frames) -> None:
    """Refuse frames that are not finite or absurdly far away, naming the first by its index."""
    if not isinstance(frames, Frames):
        raise ArgumentTypeError(f"frames must be Frames (see geometry.conventions), got {type(frames).__name__}")
    numbers = np.concatenate([frames.centers, frames.shapes.reshape(-1, 4)], 1)
    for is_bad, reason in (
        (~np.isfinite(numbers).all(1), "holds a number that is not finite"),
        (np.abs(np.nan_to_num(numbers)).max(1, initial=0) > FARTHEST, f"lies or reaches beyond {FARTHEST:,.0f} pixels"),
    ):
        if is_bad.any():
            first = int(is_bad.argmax())
            raise ArgumentError(f"keypoint {first} {reason} ({int(is_bad.sum())} of {len(frames)} do); leave it out")


def _touch(frames: Frames, gray: np.ndarray) -> np.ndarray:
    """(K,) whether a region's bounding box reaches the image; beyond its edge patches repeat the last pixels."""
    corners, size = frames.corners(), np.array(gray.shape[::-1])
    return np.asarray((corners.max(1) > -0.5).all(1) & (corners.min(1) < size - 0.5).all(1))
