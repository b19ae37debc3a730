"""The work on one image and on one pair of images, as tasks that any process can do."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchkernel.errors import FileError
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.poses import View, score_pose
from matchkernel.evaluation.photos.scenes import PoseCamera
from matchkernel.geometry.two_view import corner_error
from matchkernel.photos.features import Features, Matches, load_features, save_features
from matchkernel.photos.verify import transfer_errors, verify
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.images import read_colour
from matchkernel.storage.settings import check_ranges, setting

SECONDS = "seconds"  # key of the time of extraction in the settings of cached features
RIGHT_PIXELS = 3.0  # maximum error of a right match of two images with a known homography


@dataclass(frozen=True)
class Protocol:
    """How matches are scored."""

    pixels: float = setting(0.5, above=0, high=1000, about="threshold of MAGSAC for poses, in pixels")
    repeats: int = setting(3, low=1, high=1000, about="orders of the matches that a score is averaged over")

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class ImageTask:
    """Features of an image, to be written to a file."""

    spec: MethodSpec
    name: str
    path: Path
    target: Path


@dataclass(frozen=True)
class PairTask:
    """Two images with their features and the truth: two cameras, or a homography from A to B."""

    spec: MethodSpec
    names: tuple[str, str]
    features: tuple[Path, Path]
    protocol: Protocol
    cameras: tuple[PoseCamera, PoseCamera] | None = None
    homography: np.ndarray | None = None


def extract_image(task: ImageTask) -> float:
    """Write the features of an image unless they are there; returns the seconds that extracting them took."""
    if task.target.is_file():
        try:
            return float(load_features(task.target).settings[SECONDS])
        except (FileError, LookupError, TypeError, ValueError):
            pass  # damaged: extracted again
    method, pixels = task.spec.open(), read_colour(task.path)
    start = time.perf_counter()
    features = method.extract(pixels, task.name)
    seconds = time.perf_counter() - start
    save_features(replace(features, settings={**features.settings, SECONDS: seconds}), task.target)
    return seconds


def score_pair(task: PairTask) -> dict[str, Any]:
    """The row of a pair: names, keypoints, matches, and for each order of the matches the errors; null is infinite."""
    a, b = (_features(str(path)) for path in task.features)
    start = time.perf_counter()
    matches = task.spec.open().match(a, b)
    middle = time.perf_counter()
    row: dict[str, Any] = {"images": list(task.names), "keypoints": [len(a), len(b)], "matches": len(matches)}
    row |= _poses(task, a, b, matches) if task.homography is None else _homographies(task, a, b, matches)
    return {**row, SECONDS: [middle - start, time.perf_counter() - middle]}


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside the block PyTorch and OpenCV use this number of threads."""
    cv2 = need_opencv()
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(count)
    cv2.setNumThreads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def _poses(task: PairTask, a: Features, b: Features, matches: Matches) -> dict[str, Any]:
    assert task.cameras is not None
    views = View(task.cameras[0], a.image_size), View(task.cameras[1], b.image_size)
    points = a.keypoints[matches.indices[:, 0]], b.keypoints[matches.indices[:, 1]]
    errors = [
        score_pose(points[0][order], points[1][order], *views, task.protocol.pixels)
        for order in _orders(len(matches), task.protocol.repeats)
    ]
    return {
        "inliers": [error.inliers for error in errors],
        "rotation": [_number(error.rotation) for error in errors],
        "direction": [_number(error.direction) for error in errors],
    }


def _homographies(task: PairTask, a: Features, b: Features, matches: Matches) -> dict[str, Any]:
    """How many matches are right, and how far MAGSAC's homography moves the corners of image A from the true places."""
    assert task.homography is not None
    points = a.keypoints[matches.indices[:, 0]], b.keypoints[matches.indices[:, 1]]
    is_right = transfer_errors(task.homography, *points) <= RIGHT_PIXELS
    orders = _orders(len(matches), task.protocol.repeats)
    found = [verify(points[0][order], points[1][order], "homography") for order in orders]
    row = {
        "right": int(is_right.sum()),
        "inliers": [int(part.inliers.sum()) for part in found],
        "corners": [_number(corner_error(part.model, task.homography, a.image_size)) for part in found],
    }
    if task.spec.filter == "none" and not task.spec.guided:  # limits are calibrated with these
        seen = np.column_stack([matches.distances, is_right, matches.ratios])
        row["seen"] = [[round(float(value), 6) for value in values] for values in seen]
    return row


def _orders(count: int, repeats: int) -> Iterator[np.ndarray]:
    """Several orders of the matches, on which MAGSAC's draws depend."""
    return (np.random.default_rng(seed).permutation(count) for seed in range(repeats))


def _number(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


@lru_cache(maxsize=64)
def _features(path: str) -> Features:
    return load_features(path)
