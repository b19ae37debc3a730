"""The dominant orientation of a keypoint: the highest peak of Lowe's histogram of gradient directions."""

import numpy as np

from matchkernel.geometry.frames import Frames, extract_patches

# Lowe's window, as OpenCV has it: gradients at the keypoint's own blur, weighted with a Gaussian of 1.5 sigma and cut
# at 4.5 sigma, in 36 bins smoothed by 1 4 6 4 1.
WINDOW, RADIUS, BINS = 1.5, 4.5, 36
# Sampled every 0.4 sigma around the exact centre, with room for the blur. OpenCV samples the pixels of an octave around
# the nearest pixel, which is less repeatable.
SIDE, STEP = 32, 0.4
FRAMES_AT_A_TIME = 4096  # about 80 MB


def dominant_angles(gray: np.ndarray, frames: Frames) -> np.ndarray:
    """(K,) direction of the highest peak in radians, from the patch's x axis towards its y axis.

    Args:
        gray: (H, W) uint8 or float32.
        frames: regions of half side sigma, the blur at which the keypoints were found; turned or stretched or not.
    """
    gray = gray.astype(np.float32)  # once for all parts
    parts = [slice(start, start + FRAMES_AT_A_TIME) for start in range(0, len(frames), FRAMES_AT_A_TIME)]
    histograms = np.concatenate([np.zeros((0, BINS)), *(direction_histograms(gray, frames[part]) for part in parts)])
    rows, highest = np.arange(len(histograms)), histograms.argmax(1)
    before, top, after = (histograms[rows, (highest + step) % BINS] for step in (-1, 0, 1))
    curvature = 2 * top - before - after
    steps = np.where(curvature > 0, (after - before) / np.where(curvature > 0, 2 * curvature, 1), 0)
    return np.asarray((highest + steps) * (2 * np.pi / BINS))


def direction_histograms(gray: np.ndarray, frames: Frames) -> np.ndarray:
    """(K, 36) histograms of gradient directions in the patches of frames, smoothed; bin b is at 10 b degrees."""
    patches = extract_patches(gray.astype(np.float32), Frames(frames.centers, SIDE * STEP / 2 * frames.shapes), SIDE)
    smooth, slope, weights = _window()
    dx, dy = smooth @ patches @ slope.T, slope @ patches @ smooth.T
    votes = weights * np.sqrt(dx * dx + dy * dy)
    places = (np.arctan2(dy, dx) + np.float32(np.pi)) * np.float32(BINS / (2 * np.pi))  # from -x, 0 to 36
    low = places.astype(np.int64)
    upper = (places - low) * votes
    numbers = (low + (BINS + 2) * np.arange(len(patches))[:, None, None]).ravel()
    size = (BINS + 2) * len(patches)
    counts = np.bincount(numbers, (votes - upper).ravel(), size) + np.bincount(numbers + 1, upper.ravel(), size)
    counts = counts.reshape(-1, BINS + 2)
    counts[:, :2] += counts[:, BINS:]
    counts = np.roll(counts[:, :BINS], BINS // 2, 1)
    return np.asarray(sum(w * np.roll(counts, k, 1) for k, w in zip(range(-2, 3), (1, 4, 6, 4, 1), strict=True)) / 16)


def _window() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Matrices that blur a row of samples by one sigma and take its derivative, and weights; for samples in RADIUS."""
    places = STEP * (np.arange(SIDE) - (SIDE - 1) / 2)
    inner = places[np.abs(places) <= RADIUS]
    steps = places - inner[:, None]
    smooth = np.exp(-(steps**2) / 2)
    smooth /= smooth.sum(1, keepdims=True)
    slope = smooth * (steps - (smooth * steps).sum(1, keepdims=True))  # rows sum to 0, at the border too
    distances = np.hypot(inner[:, None], inner)
    weights = np.where(distances <= RADIUS, np.exp(-(distances**2) / (2 * WINDOW**2)), 0)
    return smooth.astype(np.float32), slope.astype(np.float32), weights.astype(np.float32)
