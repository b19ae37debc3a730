"""The work on one image and on one pair of images, as tasks that any process can do, and their cache in a folder."""

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
from matchkernel.evaluation.photos.homographies import are_right, score_homography
from matchkernel.evaluation.photos.methods import PhotoMethod, guided, open_method
from matchkernel.evaluation.photos.poses import View, score_pose
from matchkernel.evaluation.photos.scenes import PoseCamera
from matchkernel.geometry.detect import Detector
from matchkernel.photos.features import Features, Matches, load_features, save_features
from matchkernel.photos.filters import parse_filter
from matchkernel.runtime.engine import TORCH
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.images import read_colour
from matchkernel.storage.settings import check_ranges, setting

SECONDS = "seconds"  # key of the time of extraction in the settings of cached features


@dataclass(frozen=True)
class Protocol:
    """How matches are scored."""

    pixels: float = setting(0.5, above=0, high=1000, about="threshold of MAGSAC for poses, in pixels")
    repeats: int = setting(3, low=1, high=1000, about="orders of the matches that a score is averaged over")

    def __post_init__(self) -> None:
        check_ranges(self)


@dataclass(frozen=True)
class MethodSpec:
    """A method by its settings, from which every process opens it for itself."""

    text: str
    detector: Detector
    filter: str = "ratio"
    device: str | None = None
    name: str | None = None  # in tables, instead of the method's own
    engine: str = TORCH
    guided: bool = False  # match again with an epipolar geometry of the first matches

    def open(self) -> PhotoMethod:
        """The method."""
        method = _opened(replace(self, name=None))
        return method if self.name is None else replace(method, name=self.name)


@dataclass(frozen=True)
class ImageTask:
    """Features of an image, to be written to a file."""

    spec: MethodSpec
    scene: str
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
    """Use so many threads in this process inside the block, in PyTorch and in OpenCV."""
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
    assert task.homography is not None
    points = a.keypoints[matches.indices[:, 0]], b.keypoints[matches.indices[:, 1]]
    is_right = are_right(*points, task.homography)
    errors = [
        score_homography(points[0][order], points[1][order], task.homography, a.image_size)
        for order in _orders(len(matches), task.protocol.repeats)
    ]
    row = {
        "right": int(is_right.sum()),
        "inliers": [error.inliers for error in errors],
        "corners": [_number(error.corners) for error in errors],
    }
    if task.spec.filter == "none" and not task.spec.guided:  # what limits are calibrated with
        seen = np.column_stack([matches.distances, is_right, matches.ratios])
        row["seen"] = [[round(float(value), 6) for value in values] for values in seen]
    return row


def _orders(count: int, repeats: int) -> Iterator[np.ndarray]:
    """Several orders of the matches, on which MAGSAC's draws depend."""
    return (np.random.default_rng(seed).permutation(count) for seed in range(repeats))


def _number(value: float) -> float | None:
    return round(value, 6) if np.isfinite(value) else None


@lru_cache(maxsize=8)
def _opened(spec: MethodSpec) -> PhotoMethod:
    kept = parse_filter(spec.filter)
    method = open_method(spec.text, spec.detector, kept, device=spec.device, engine=spec.engine)
    return guided(method) if spec.guided else method


@lru_cache(maxsize=64)
def _features(path: str) -> Features:
    return load_features(path)
