"""How much two regions have in common."""

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames

_STEPS = 64


def overlaps(first: Frames, second: Frames) -> np.ndarray:
    """Intersection over union of the ellipses of two lists of frames, pair by pair: (K,).

    The ellipse of a frame is c + A {|z| <= 1}, as local features are compared in the literature. Measured by sampling
    the disc of the first frame at about 3,200 points.
    """
    if len(first) != len(second):
        raise ArgumentError(f"overlaps are of pairs, got {len(first)} and {len(second)} frames")
    axis = (np.arange(_STEPS) + 0.5) / _STEPS * 2 - 1
    x, y = (values.ravel() for values in np.meshgrid(axis, axis))
    disc = np.column_stack([x, y])[x * x + y * y <= 1]
    back = np.linalg.inv(second.shapes)
    linear, offset = back @ first.shapes, (back @ (first.centers - second.centers)[..., None])[..., 0]
    inside = np.empty(len(first))
    for k in range(len(first)):
        inside[k] = (((disc @ linear[k].T + offset[k]) ** 2).sum(1) <= 1).mean()
    area = inside * np.abs(np.linalg.det(first.shapes))
    union = np.abs(np.linalg.det(first.shapes)) + np.abs(np.linalg.det(second.shapes)) - area
    return area / union
