"""Extract features from an image: keypoints, the regions around them, descriptors."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.detect import Detection, Detector
from matchkernel.geometry.frames import Frames
from matchkernel.photos.describers import Describer, Model, open_describer
from matchkernel.photos.features import IMAGE_HASH, RATIO, STORE, THRESHOLD, Features, Store
from matchkernel.runtime.onnx import ENGINE, TORCH
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.images import read_gray
from matchkernel.storage.settings import describe_differences, with_options
from matchkernel.storage.work import Progress, Say, stage

if TYPE_CHECKING:
    import torch

FARTHEST = 1e6  # pixels; OpenCV's fixed-point sampling overflows beyond this

Image = np.ndarray | str | Path


def extract(
    image: Image,
    model: Model,
    detector: Detector | None = None,
    *,
    frames: Frames | None = None,
    device: "str | torch.device | None" = None,
    engine: str = "auto",
    **options: Any,
) -> Features:
    """Find keypoints in an image and describe the regions around them.

    Args:
        image: a file, or (H, W) gray or (H, W, 3) RGB pixels, uint8 or uint16.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift" (see open_describer).
        detector: how keypoints are found (default: Detector()).
        frames: regions to describe instead of detected ones; only the detector's `magnification` and `pooling` are then
            used.
        device: where to run the network (default: the model's device).
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        options: fields of Detector, such as keypoints=1000, instead of `detector`.

    Returns:
        K features, strongest first, or in the order of the given frames. K = 0 gives (0, D) descriptors. A region
        without content (of one gray value, or outside the image) keeps its place, with a row of zeros that matches
        nothing.

    Example:
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> from matchkernel.photos.extract import extract
        >>> features = extract(FOLDER / "left.png", "light-wide", keypoints=100)
        >>> features.keypoints.shape, features.descriptors.shape
        ((100, 2), (100, 128))
    """
    chosen = with_options(detector or Detector(), options)
    describer = open_describer(model, device=device, engine=engine)
    if frames is None:
        return extract_with(image, describer, chosen)
    check_frames(frames)
    gray = as_gray(image)
    rows = describe_frames(gray, frames, describer, chosen)
    rows[~_touch(frames, gray)] = 0
    scores = np.ones(len(frames), np.float32)
    regions = {"magnification": chosen.magnification, "pooling": chosen.pooling}
    settings = {"detector": "frames given", **regions, **describer.settings}
    return Features(frames, rows, scores, (gray.shape[1], gray.shape[0]), describer.name, settings)


def extract_with(
    image: Image,
    describer: Describer,
    detector: Detector,
    *,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> Features:
    """Features of an image; `say` and `progress` as in match_images."""
    say("reading")
    with stage("read"):
        gray = as_gray(image)
    say("detecting")
    with stage("detect"):
        found = detector.detect(gray, device=describer.device)
    say("describing")
    return describe_detection(gray, found, describer, detector, progress)


def describe_detection(
    gray: np.ndarray, found: Detection, describer: Describer, detector: Detector, progress: Progress | None = None
) -> Features:
    """The features of detected keypoints; `progress` is called with the number of keypoints described and of all."""
    rows = describe_frames(gray, found.frames, describer, detector, progress)
    size = (gray.shape[1], gray.shape[0])
    settings = recorded_settings(describer, detector)
    return Features(found.frames, rows, found.scores.astype(np.float32), size, describer.name, settings)


def describe_frames(
    gray: np.ndarray, frames: Frames, describer: Describer, detector: Detector, progress: Progress | None = None
) -> np.ndarray:
    """(K, D) unit rows of the regions, zeros without content.

    With pooling, a keypoint's row is the mean of the rows of regions of several sizes, scaled to length 1. SIFT, whose
    region is given by sigma alone, is computed as if sigma were larger or smaller by the same factor.
    """
    if not detector.pooled_magnifications:
        return describer.compute(gray, frames, detector.magnification, progress)
    factors = [number / detector.magnification for number in detector.pooled_magnifications]
    pooled = [Frames(frames.centers, frames.shapes * factor) for factor in factors]
    rows = [describer.compute(gray, regions, detector.magnification, progress) for regions in pooled]
    total = np.asarray(np.sum(rows, axis=0, dtype=np.float64))
    return unit_rows(total).astype(np.float32)


def recorded_settings(describer: Describer, detector: Detector) -> dict[str, Any]:
    """The settings that are stored with features."""
    return {**detector.settings(), **describer.settings}


def feature_facts(describer: Describer, detector: Detector, store: Store) -> dict[str, Any]:
    """What identifies features, as JSON values: name and dimension `D` of the descriptor, and all settings."""
    settings = recorded_settings(describer, detector) | ({} if store == "float32" else {STORE: store})
    return dict(json.loads(json.dumps({"name": describer.name, "D": describer.D, "settings": settings})))


def check_same_settings(
    model: str, settings: Any, facts: dict[str, Any], name: str, out: Path, advice: str = "remove them"
) -> None:
    """Refuse features made in another way than these facts describe (see feature_facts)."""
    oldest = {ENGINE: TORCH, STORE: "float32"}  # of features that do not record them
    before = {**oldest, "model": model, **settings}
    now = {**oldest, "model": facts["name"], **facts["settings"]}
    keys = ["model", *sorted((before.keys() | now.keys()) - {IMAGE_HASH, THRESHOLD, RATIO, "model"})]
    readable = [key for key in keys if not key.endswith("sha256")]
    for some in (readable, keys):  # digests are named only if all else is the same
        differences = describe_differences({key: before.get(key) for key in some}, {key: now.get(key) for key in some})
        if differences:
            only_engine = [key for key in readable if before.get(key) != now.get(key)] == [ENGINE]
            other = f"use --engine {before[ENGINE]}, " if only_engine else ""
            raise ArgumentError(
                f"{out}: features of {name} were {differences}; {other}{advice} or choose another place"
            )


def as_gray(image: Image) -> np.ndarray:
    """(H, W) uint8 gray of a file or of pixels; colours are weighted as Pillow does, 16 bits lose their lower byte."""
    if isinstance(image, str | Path):
        return read_gray(image)
    if not isinstance(image, np.ndarray):
        raise ArgumentTypeError(
            f"an image must be a file or a numpy array, got {type(image).__name__}; numpy.asarray(image) makes one"
        )
    if image.dtype not in (np.uint8, np.uint16):
        raise ArgumentTypeError(f"pixels must be uint8 or uint16, got {image.dtype}; scale them to 0..255 first")
    if not image.size or (image.ndim != 2 and (image.ndim != 3 or image.shape[2] not in (3, 4))):
        raise ArgumentError(f"an image must be (H, W) gray or (H, W, 3 or 4) RGB(A) and not empty, got {image.shape}")
    pixels = (image >> 8).astype(np.uint8) if image.dtype == np.uint16 else image
    if pixels.ndim == 3:
        weights = np.array([19595, 38470, 7471], np.uint32)  # of 2^16: ITU-R 601-2
        pixels = ((pixels[..., :3] @ weights + 2**15) >> 16).astype(np.uint8)
    return np.ascontiguousarray(pixels)


def check_frames(frames: Frames) -> None:
    """Refuse frames that are not finite or absurdly far away; the message gives the index of the first."""
    if not isinstance(frames, Frames):
        raise ArgumentTypeError(f"frames must be Frames (see geometry.conventions), got {type(frames).__name__}")
    numbers = np.concatenate([frames.centers, frames.shapes.reshape(-1, 4)], 1)
    for is_bad, reason in (
        (~np.isfinite(numbers).all(1), "holds a number that is not finite"),
        (np.abs(np.nan_to_num(numbers)).max(1, initial=0) > FARTHEST, f"extends beyond {FARTHEST:,.0f} pixels"),
    ):
        if is_bad.any():
            first = int(is_bad.argmax())
            raise ArgumentError(f"keypoint {first} {reason} ({int(is_bad.sum())} of {len(frames)} do); leave it out")


def _touch(frames: Frames, gray: np.ndarray) -> np.ndarray:
    """(K,) whether a region's bounding box overlaps the image; patches repeat the border pixels beyond its edge."""
    corners, size = frames.corners(), np.array(gray.shape[::-1])
    return np.asarray((corners.max(1) > -0.5).all(1) & (corners.min(1) < size - 0.5).all(1))
