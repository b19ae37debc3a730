"""The dominant orientation of a keypoint: the highest peak of Lowe's histogram of gradient directions."""

import numpy as np

from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import extract_patches

# Lowe's window, as OpenCV has it: gradients at the keypoint's own blur, weighted with a Gaussian of 1.5 sigma and cut
# at 4.5 sigma, in 36 bins smoothed by 1 4 6 4 1.
WINDOW, RADIUS, BINS = 1.5, 4.5, 36
# Sampled every 0.4 sigma around the exact centre, with room for the blur. OpenCV samples the pixels of an octave around
# the nearest pixel; this is more repeatable.
SIDE, STEP = 32, 0.4


def direction_histograms(gray: np.ndarray, centers: np.ndarray, sigmas: np.ndarray) -> np.ndarray:
    """(K, 36) smoothed histograms of gradient directions around keypoints; bin b is centred at 10 b degrees.

    Args:
        gray: (H, W) uint8 or float32.
        centers: (K, 2) x and y.
        sigmas: (K,) blur at which the keypoints were found.
    """
    half_widths = SIDE * STEP / 2 * np.asarray(sigmas)
    frames = Frames.turned_squares(centers, half_widths, np.zeros(len(half_widths)))
    patches = extract_patches(gray.astype(np.float32), frames, SIDE)
    smooth, slope = _blur_and_derivative()
    dx, dy = smooth @ patches @ slope.T, slope @ patches @ smooth.T
    places = STEP * (np.arange(SIDE) - (SIDE - 1) / 2)
    distances = np.hypot(places[:, None], places)
    weights = np.where(distances <= RADIUS, np.exp(-(distances**2) / (2 * WINDOW**2)), 0).astype(np.float32)
    bins = np.round(np.arctan2(dy, dx) * (BINS / (2 * np.pi))).astype(np.int64) % BINS
    numbers = bins + BINS * np.arange(len(patches))[:, None, None]
    counts = np.bincount(numbers.ravel(), (weights * np.hypot(dx, dy)).ravel(), BINS * len(patches))
    counts = counts.reshape(-1, BINS)
    return np.asarray(sum(w * np.roll(counts, k, 1) for k, w in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True)) / 16)


def peak_heights(histograms: np.ndarray, degrees: np.ndarray) -> np.ndarray:
    """(K,) height of (K, 36) histograms at one direction each, interpolated between bins."""
    places = np.asarray(degrees) * (BINS / 360)
    low, rows = np.floor(places).astype(np.int64), np.arange(len(places))
    part = places - low
    return np.asarray((1 - part) * histograms[rows, low % BINS] + part * histograms[rows, (low + 1) % BINS])


def _blur_and_derivative() -> tuple[np.ndarray, np.ndarray]:
    """(SIDE, SIDE) float32 matrices that blur a row of samples by one sigma, and take its derivative."""
    steps = STEP * (np.arange(SIDE) - np.arange(SIDE)[:, None])
    smooth = np.exp(-(steps**2) / 2)
    smooth /= smooth.sum(1, keepdims=True)
    slope = smooth * (steps - (smooth * steps).sum(1, keepdims=True))  # rows sum to 0, at the border too
    return smooth.astype(np.float32), slope.astype(np.float32)
