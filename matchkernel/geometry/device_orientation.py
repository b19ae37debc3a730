"""Orientations of DoG keypoints in torch, for a GPU: the peaks of OpenCV's histograms of gradient directions."""

import torch
from torch import Tensor

# As OpenCV has it: weights of 1.5 sigma in a window of 4.5 sigma, at most 16 pixels; peaks of 0.8 of the highest.
BINS, WINDOW, RADIUS, REACH, PEAK = 36, 1.5, 4.5, 16, 0.8
SMOOTH = (1, 4, 6, 4, 1)
ARCTAN = (57.283627, -18.667446, 8.914001, -2.539725)  # of c, c^3, c^5, c^7, in degrees: OpenCV's
TINY = 2.0**-52  # added to what OpenCV divides by
UNIT = 2.0**-20  # votes are whole multiples of it: sums of whole numbers do not depend on the order of threads
SAMPLES_AT_A_TIME = 2**23  # about 600 MB


def orientations_on(levels: Tensor, places: Tensor, sigmas: Tensor) -> tuple[Tensor, Tensor]:
    """The orientations of K keypoints: for each one the index of its keypoint, and its angle in degrees.

    Args:
        levels: flat pixels of all levels.
        places: (K, 5) int64: first pixel, height and width of its level, row and column of the keypoint.
        sigmas: (K,) of the keypoints, in pixels of the level; below 3.66.
    """
    size = max(1, SAMPLES_AT_A_TIME // (2 * REACH + 3) ** 2)
    parts = zip(places.split(size), sigmas.split(size), strict=True)
    found = torch.cat([_histograms(levels, *part) for part in parts])
    before, after = found.roll(1, 1), found.roll(-1, 1)
    is_peak = (found > before) & (found > after) & (found >= PEAK * found.amax(1, keepdim=True))
    owner, place = is_peak.nonzero(as_tuple=True)
    left, top, right = before[owner, place], found[owner, place], after[owner, place]
    exact = (place + (left - right) / (2 * (left - 2 * top + right))) % BINS
    return owner, (360 - 360 / BINS * exact) % 360


def _histograms(levels: Tensor, places: Tensor, sigmas: Tensor) -> Tensor:
    """(k, 36) smoothed histograms."""
    steps = torch.arange(-REACH - 1, REACH + 2, device=levels.device)  # one more on each side, for differences
    start, height, width, row, column = places[:, :, None, None].unbind(1)
    y, x = row + steps[:, None], column + steps
    at = start + y.clamp_min(0).minimum(height - 1) * width + x.clamp_min(0).minimum(width - 1)
    values = levels[at]
    dx = values[:, 1:-1, 2:] - values[:, 1:-1, :-2]
    dy = values[:, :-2, 1:-1] - values[:, 2:, 1:-1]
    y, x, steps, sigmas = y[:, 1:-1], x[:, :, 1:-1], steps[1:-1], sigmas[:, None, None]
    is_near = torch.maximum(steps.abs()[:, None], steps.abs()) <= (RADIUS * sigmas).round()
    is_inner = is_near & (y > 0) & (y < height - 1) & (x > 0) & (x < width - 1)
    weights = torch.exp((steps[:, None] ** 2 + steps**2) / (-2 * (WINDOW * sigmas) ** 2))
    votes = torch.where(is_inner, weights * (dx * dx + dy * dy).sqrt() / UNIT, 0).round().long()
    bins = (_degrees(dx, dy) * (BINS / 360)).round().long() % BINS
    counts = torch.zeros(len(votes), BINS, dtype=torch.int64, device=votes.device)
    found = counts.scatter_add_(1, bins.flatten(1), votes.flatten(1)).float()
    smooth = [weight / 16 * found.roll(turn, 1) for turn, weight in zip(range(-2, 3), SMOOTH, strict=True)]
    return torch.stack(smooth).sum(0)


def _degrees(dx: Tensor, dy: Tensor) -> Tensor:
    """Directions as OpenCV's fastAtan2 has them."""
    across, up = dx.abs(), dy.abs()
    ratio = torch.minimum(across, up) / (torch.maximum(across, up) + TINY)
    square = ratio * ratio
    angle = torch.zeros_like(ratio)
    for factor in reversed(ARCTAN):
        angle = angle * square + factor
    angle = angle * ratio
    angle = torch.where(up > across, 90 - angle, angle)
    angle = torch.where(dx < 0, 180 - angle, angle)
    return torch.where(dy < 0, 360 - angle, angle)
