"""Finding keypoints: seconds by contrast and choice, and kornia-rs' SIFT beside OpenCV's, in one run.

    python benchmarks/detectors.py [IMAGE OR FOLDER ...]

Without images: photos of scikit-image. Seconds are those of one core: OpenCV runs in one thread, and the processor's
time is counted, so that other programs on the machine matter little.
"""

import sys
import time
from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import skimage.data
from timing import interleaved_medians, write_result

from matchkernel.collection.extract import find_images
from matchkernel.geometry.choose import choose
from matchkernel.geometry.detect import Detector
from matchkernel.storage.images import read_gray

CONTRASTS = (0.04, 0.02, 0.01, 0.005)
BUDGET = 2000
CHOICES = ("strongest", "largest", "spread", "cells")
CANDIDATES = (10_000, 50_000)
REPEATS = 3
seconds_of = partial(interleaved_medians, repeats=REPEATS, clock=time.process_time)


def main() -> None:
    """Measure, print, write."""
    groups = read_groups(sys.argv[1:])
    cv2.setNumThreads(1)
    result: dict[str, Any] = {"OpenCV": cv2.__version__, "keypoints": BUDGET}
    result["groups"] = {name: measure(images) for name, images in groups.items()}
    result["milliseconds_to_choose"] = choosing()
    for name, group in result["groups"].items():
        print(f"{name}: {group['images']} images of {group['megapixels']} megapixels")
        for part, row in group.items():
            if isinstance(row, dict):
                print(f"  {part}: {row}")
    print(f"milliseconds to choose {BUDGET}: {result['milliseconds_to_choose']}")
    write_result("detectors", result)


def read_groups(places: list[str]) -> dict[str, list[np.ndarray]]:
    """Gray images by folder."""
    if not places:
        return {
            "scikit-image": [skimage.data.camera(), skimage.data.brick(), skimage.data.stereo_motorcycle()[0][..., 1]]
        }
    named = {Path(place): [read_gray(path) for path in find_images([place]).values()] for place in places}
    return {(path.parent.name if path.name == "images" else path.name): images for path, images in named.items()}


def measure(images: list[np.ndarray]) -> dict[str, Any]:
    """Seconds per image, medians over repeats; how many candidates there are; kornia-rs where it is installed."""
    count = len(images)
    row: dict[str, Any] = {"images": count, "megapixels": round(sum(image.size for image in images) / count / 1e6, 2)}
    detectors = {f"contrast {value}": Detector(BUDGET, value, choice="strongest") for value in CONTRASTS}
    detectors |= {
        f"{choice}, one orientation": Detector(BUDGET, 0.005, choice=choice, orientations="one") for choice in CHOICES
    }
    detectors["spread, all orientations"] = Detector(BUDGET, 0.005, choice="spread")
    detectors["spread, upright"] = Detector(BUDGET, 0.005, choice="spread", upright=True)
    jobs: dict[str, Callable[[], object]] = {
        "OpenCV alone, contrast 0.04": lambda: [_opencv(0.04).detect(image, None) for image in images],
        "OpenCV alone, contrast 0.005": lambda: [_opencv(0.005).detect(image, None) for image in images],
    }
    jobs |= {name: partial(_all, detector, images) for name, detector in detectors.items()}
    row["seconds"] = {name: round(time / count, 4) for name, time in seconds_of(jobs).items()}
    row["candidates"] = {
        str(value): round(float(np.mean([len(_opencv(value).detect(image, None)) for image in images])))
        for value in CONTRASTS
    }
    if find_spec("kornia_rs"):
        row["kornia-rs"] = kornia_rs(images)
    return row


def kornia_rs(images: list[np.ndarray]) -> dict[str, Any]:
    """Its detector with descriptors (it has no call without) beside OpenCV's, and where its keypoints lie."""
    from kornia_rs.imgproc import Sift

    theirs = Sift()
    floats = [image.astype(np.float32)[..., None] for image in images]
    seconds = seconds_of(
        {
            "kornia-rs": lambda: [theirs.detect_and_compute(image) for image in floats],
            "OpenCV": lambda: [_opencv(0.04).detectAndCompute(image, None) for image in images],
        }
    )
    moved = np.concatenate([_displacements(theirs, *pair) for pair in zip(images, floats, strict=True)])
    return {
        "times_as_fast_as_OpenCV_with_descriptors": round(seconds["OpenCV"] / seconds["kornia-rs"], 2),
        "median_displacement_px": np.median(moved, 0).round(3).tolist(),
        "keypoints_paired": len(moved),
    }


def _displacements(theirs: Any, image: np.ndarray, floats: np.ndarray) -> np.ndarray:
    """(K, 2) from keypoints of OpenCV's precise upscaling to those of kornia-rs of nearly the same place and size."""
    ours = np.array([(*point.pt, 4 * np.log2(point.size)) for point in _opencv(0.04).detect(image, None)])
    rows = np.array([(point.x, point.y, 4 * np.log2(point.size)) for point in theirs.detect_and_compute(floats)[0]])
    distances = np.linalg.norm(ours[:, None] - rows, axis=2)
    near = distances.min(1) < 1
    return (rows[distances.argmin(1)] - ours)[near, :2]


def choosing() -> dict[str, dict[str, float]]:
    """Milliseconds to choose among keypoints that crowd in one corner of an image."""
    random = np.random.default_rng(0)
    found = {}
    for count in CANDIDATES:
        centers, strengths = random.uniform(0, 1, (count, 2)) ** 2 * [4000, 3000], random.exponential(1, count)
        jobs = {choice: partial(choose, centers, strengths, strengths, BUDGET, choice) for choice in CHOICES}
        found[f"{count} candidates"] = {name: round(1e3 * time, 1) for name, time in seconds_of(jobs).items()}
    return found


def _opencv(contrast: float) -> Any:
    return cv2.SIFT_create(contrastThreshold=contrast, enable_precise_upscale=True)


def _all(detector: Detector, images: list[np.ndarray]) -> list[Any]:
    return [detector.detect(image) for image in images]


if __name__ == "__main__":
    main()
