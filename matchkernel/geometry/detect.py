"""Keypoints from OpenCV: DoG frames of an image, and RootSIFT of patches."""

from dataclasses import dataclass

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.conventions import MAGNIFICATION, frames_from_opencv
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.opencv import load_opencv

# The region of HPatches' SIFT baseline: a keypoint of this diameter in the middle of a 65 px patch.
SIFT_SIZE_OF_65 = 10.8


@dataclass(frozen=True)
class Detection:
    """DoG keypoints of one image, strongest first."""

    frames: Frames
    scores: np.ndarray  # (K,) contrast


def detect_dog(
    image: np.ndarray, most: int = 0, contrast: float = 0.04, edge: float = 10.0, magnification: float = MAGNIFICATION
) -> Detection:
    """DoG keypoints of OpenCV's SIFT, with the precise upscaling that its default leaves out (a quarter pixel).

    Args:
        image: (H, W) uint8 gray.
        most: keep so many of the strongest; 0 keeps all.
        contrast: threshold on contrast.
        edge: threshold on edges.
        magnification: half side of a region / sigma.
    """
    if image.ndim != 2 or image.dtype != np.uint8 or not image.size:
        raise ArgumentError(f"an image is (H, W) uint8 gray, got {image.dtype} of shape {image.shape}")
    sift = load_opencv().SIFT_create(contrastThreshold=contrast, edgeThreshold=edge, enable_precise_upscale=True)
    found = sift.detect(image, None)
    rows = np.array([(*p.pt, p.size, p.angle, p.response) for p in found], np.float64).reshape(-1, 5)
    # OpenCV's order depends on its threads: sorted by strength, then place, the same image gives the same list.
    order = np.lexsort((rows[:, 3], rows[:, 2], rows[:, 0], rows[:, 1], -rows[:, 4]))
    rows = rows[order][: most or None]
    return Detection(frames_from_opencv(rows[:, :4], magnification), rows[:, 4])


def rootsift(patches: np.ndarray) -> np.ndarray:
    """RootSIFT of square patches, upright, over the region HPatches uses: (K, N, N) uint8 -> (K, 128) unit rows."""
    if patches.ndim != 3 or patches.dtype != np.uint8:
        raise ArgumentError(f"RootSIFT takes (K, N, N) uint8 patches, got {patches.dtype} of shape {patches.shape}")
    cv2 = load_opencv()
    sift = cv2.SIFT_create()
    side = patches.shape[-1]
    keypoint = cv2.KeyPoint((side - 1) / 2, (side - 1) / 2, SIFT_SIZE_OF_65 * side / 65, 0)
    rows = np.zeros((len(patches), 128), np.float32)
    for row, patch in zip(rows, patches, strict=True):
        row[:] = sift.compute(np.ascontiguousarray(patch), [keypoint])[1][0]
    return np.sqrt(rows / np.maximum(rows.sum(1, keepdims=True), 1e-12))
