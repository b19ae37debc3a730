"""OpenCV's SIFT and RootSIFT, for patches and for regions of an image."""

from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.conventions import frames_to_opencv
from matchkernel.geometry.dog import halved
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.storage.extras import need_opencv

# The region of HPatches' SIFT baseline: a keypoint of this diameter in the middle of a 65 px patch.
SIFT_SIZE_OF_65 = 10.8
SIFT_REGION = 6.0  # about half side of that patch / sigma of that keypoint: 32.5 / 5.4
# Defaults of OpenCV's SIFT_create, from which a keypoint's octave and layer follow.
FIRST_SIGMA, LAYERS = 1.6, 3
FRAMES_AT_A_TIME = 8192


def to_rootsift(rows: np.ndarray) -> np.ndarray:
    """RootSIFT (Arandjelovic and Zisserman 2012) of (K, 128) SIFT rows: the square root of rows of sum 1."""
    return np.asarray(np.sqrt(rows / np.maximum(rows.sum(1, keepdims=True), 1e-12)))


def patch_sift(patches: np.ndarray) -> np.ndarray:
    """SIFT of upright square patches over the region of HPatches' baseline.

    Args:
        patches: (K, N, N) uint8.

    Returns:
        (K, 128) float32, rows of length about 512; zeros for a patch of one gray value.
    """
    if patches.ndim != 3 or patches.dtype != np.uint8:
        raise ArgumentError(f"SIFT needs (K, N, N) uint8 patches, got {patches.dtype} of shape {patches.shape}")
    cv2 = need_opencv()
    sift = cv2.SIFT_create()
    side = patches.shape[-1]
    keypoint = cv2.KeyPoint((side - 1) / 2, (side - 1) / 2, SIFT_SIZE_OF_65 * side / 65, 0)
    rows = np.zeros((len(patches), 128), np.float32)
    for row, patch in zip(rows, patches, strict=True):
        if patch.min() < patch.max():  # for a constant image OpenCV returns rounding errors, scaled to full length
            row[:] = sift.compute(np.ascontiguousarray(patch), [keypoint])[1][0]
    return rows


def frame_sift(image: np.ndarray, frames: Frames, magnification: float) -> np.ndarray:
    """SIFT of the regions of an image.

    Square regions: identical to detectAndCompute. Stretched regions: SIFT of the rectified patch.

    Args:
        image: (H, W) uint8 gray; halved first if it is larger than the detector's limit.
        frames: K regions.
        magnification: half side of a region / sigma of its keypoint.

    Returns:
        (K, 128) float32; zeros for a region of one gray value.
    """
    cv2 = need_opencv()
    image, factor = halved(image)
    frames = frames.scaled(1 / factor)
    # OpenCV doubles the image only if some keypoint requires it; adding one that does makes rows independent of each
    # other and equal to those of detectAndCompute.
    points = [*_keypoints(image, frames, magnification), cv2.KeyPoint(0, 0, FIRST_SIGMA, 0, 0, _octave_bits(-1, 1))]
    rows = np.asarray(cv2.SIFT_create(enable_precise_upscale=True).compute(image, points)[1][:-1], np.float32)
    rows[~_have_content(image, frames)] = 0  # OpenCV returns rounding errors, scaled to full length
    stretched = np.flatnonzero(~frames.are_squares)  # which OpenCV's keypoints cannot hold
    for start in range(0, len(stretched), FRAMES_AT_A_TIME):
        part = stretched[start : start + FRAMES_AT_A_TIME]
        regions = Frames(frames.centers[part], frames.shapes[part] * (SIFT_REGION / magnification))
        rows[part] = patch_sift(extract_patches(image, regions, 65))
    return rows


def _keypoints(image: np.ndarray, frames: Frames, magnification: float) -> list[Any]:
    """OpenCV keypoints with the octave and layer that detection would have given them, which frames do not store.

    Left at octave 0, as KeyPoint(x, y, size, angle) makes them, large regions would be sampled from the sharp image.
    """
    KeyPoint = need_opencv().KeyPoint
    rows = frames_to_opencv(frames, magnification)
    steps = np.round(LAYERS * np.log2(np.maximum(rows[:, 2], 1e-6) / (2 * FIRST_SIGMA)))
    highest = max(0, int(np.log2(min(image.shape))) - 2)  # a smaller image has no content
    octaves = np.clip(np.floor((steps - 1) / LAYERS), -1, highest)
    layers = np.clip(steps - LAYERS * octaves, 1, LAYERS)
    bits = [_octave_bits(int(octave), int(layer)) for octave, layer in zip(octaves, layers, strict=True)]
    return [
        KeyPoint(x, y, size, angle, 0, octave) for (x, y, size, angle), octave in zip(rows.tolist(), bits, strict=True)
    ]


def _octave_bits(octave: int, layer: int) -> int:
    return (octave & 255) | (layer << 8)


def _have_content(image: np.ndarray, frames: Frames) -> np.ndarray:
    """(K,) whether a region has more than one gray value."""
    found = np.zeros(len(frames), bool)
    for start in range(0, len(frames), FRAMES_AT_A_TIME):
        patches = extract_patches(image, frames[start : start + FRAMES_AT_A_TIME], 16).reshape(-1, 256)
        found[start : start + len(patches)] = patches.min(1) < patches.max(1)
    return found
