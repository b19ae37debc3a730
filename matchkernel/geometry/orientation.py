"""The dominant orientation of a keypoint: the highest peak of Lowe's histogram of gradient directions."""

import numpy as np

from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import extract_patches

# Lowe's window, as OpenCV has it: gradients at the keypoint's own blur, weighted with a Gaussian of 1.5 sigma and cut
# at 4.5 sigma, in 36 bins smoothed by 1 4 6 4 1.
WINDOW, RADIUS, BINS = 1.5, 4.5, 36
# Sampled every 0.4 sigma around the exact centre, with room for the blur. OpenCV samples the pixels of an octave around
# the nearest pixel, which is less repeatable.
SIDE, STEP = 32, 0.4


def dominant_angles(gray: np.ndarray, frames: Frames) -> np.ndarray:
    """(K,) direction of the highest peak in radians, from the patch's x axis towards its y axis.

    Args:
        gray: (H, W) uint8 or float32.
        frames: regions of half side sigma, the blur at which the keypoints were found; turned or stretched or not.
    """
    histograms = direction_histograms(gray, frames)
    rows, highest = np.arange(len(histograms)), histograms.argmax(1)
    before, top, after = (histograms[rows, (highest + step) % BINS] for step in (-1, 0, 1))
    curvature = 2 * top - before - after
    steps = np.where(curvature > 0, (after - before) / np.where(curvature > 0, 2 * curvature, 1), 0)
    return np.asarray((highest + steps) * (2 * np.pi / BINS))


def direction_histograms(gray: np.ndarray, frames: Frames) -> np.ndarray:
    """(K, 36) histograms of gradient directions in the patches of frames, smoothed; bin b is at 10 b degrees."""
    patches = extract_patches(gray.astype(np.float32), Frames(frames.centers, SIDE * STEP / 2 * frames.shapes), SIDE)
    smooth, slope = _blur_and_derivative()
    dx, dy = smooth @ patches @ slope.T, slope @ patches @ smooth.T
    offsets = STEP * (np.arange(SIDE) - (SIDE - 1) / 2)
    distances = np.hypot(offsets[:, None], offsets)
    weights = np.where(distances <= RADIUS, np.exp(-(distances**2) / (2 * WINDOW**2)), 0).astype(np.float32)
    places = np.arctan2(dy, dx) * (BINS / (2 * np.pi)) % BINS
    low = places.astype(np.int64)
    part, votes = places - low, weights * np.hypot(dx, dy)
    firsts, count = BINS * np.arange(len(patches))[:, None, None], BINS * len(patches)
    counts = np.bincount((firsts + low % BINS).ravel(), ((1 - part) * votes).ravel(), count)
    counts += np.bincount((firsts + (low + 1) % BINS).ravel(), (part * votes).ravel(), count)
    counts = counts.reshape(-1, BINS)
    return np.asarray(sum(w * np.roll(counts, k, 1) for k, w in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True)) / 16)


def _blur_and_derivative() -> tuple[np.ndarray, np.ndarray]:
    """(SIDE, SIDE) float32 matrices that blur a row of samples by one sigma, and take its derivative."""
    steps = STEP * (np.arange(SIDE) - np.arange(SIDE)[:, None])
    smooth = np.exp(-(steps**2) / 2)
    smooth /= smooth.sum(1, keepdims=True)
    slope = smooth * (steps - (smooth * steps).sum(1, keepdims=True))  # rows sum to 0, at the border too
    return smooth.astype(np.float32), slope.astype(np.float32)
