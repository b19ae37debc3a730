"""Small random changes of frames, as from an imprecise detector, and the overlap of two frames."""

from dataclasses import dataclass

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames

STEPS = 64  # samples across a disc


@dataclass(frozen=True)
class Jitter:
    """Maximum changes; each is drawn uniformly from minus to plus its maximum."""

    shift: float  # of the centre along each axis of the patch, in half sides
    octaves: float  # of scale
    degrees: float  # of rotation
    stretch: float  # octaves of anisotropy, along a random direction

    def times(self, amount: float) -> "Jitter":
        """All changes multiplied by an amount."""
        return Jitter(self.shift * amount, self.octaves * amount, self.degrees * amount, self.stretch * amount)

    @property
    def reach(self) -> float:
        """Upper bound on a jittered corner's distance from the original centre, relative to an original corner's."""
        return float(self.shift + 2 ** (self.octaves + self.stretch / 2))


# Amounts for which the median overlap of a region with its jittered copy is .85, .72 and .60, as HPatches reports for
# its levels easy, hard and tough (tests/data/test_from_homographies.py measures them).
BASE = Jitter(shift=0.12, octaves=0.2, degrees=10.0, stretch=0.2)
LEVELS = {"e": BASE.times(0.9), "h": BASE.times(1.84), "t": BASE.times(2.83)}


def jittered(frames: Frames, jitter: Jitter, random: np.random.Generator) -> Frames:
    """Change each frame at random, in the coordinates of its own patch."""
    k = len(frames)
    scale = 2 ** random.uniform(-jitter.octaves, jitter.octaves, k)
    turn = np.deg2rad(random.uniform(-jitter.degrees, jitter.degrees, k))
    stretch = 2 ** random.uniform(-jitter.stretch, jitter.stretch, k)
    direction = random.uniform(0, np.pi, k)
    shift = random.uniform(-jitter.shift, jitter.shift, (k, 2))
    change = _turns(turn) * scale[:, None, None] @ _stretches(stretch, direction)
    return Frames(frames.centers + (frames.shapes @ shift[..., None])[..., 0], frames.shapes @ change)


def overlaps(first: Frames, second: Frames) -> np.ndarray:
    """Intersection over union of the ellipses of two lists of frames, pair by pair: (K,).

    The ellipse of a frame is c + A {|z| <= 1}, as local features are compared in the literature. Measured by sampling
    the disc of the first frame at about 3,200 points.
    """
    if len(first) != len(second):
        raise ArgumentError(f"overlaps need two lists of the same length, got {len(first)} and {len(second)} frames")
    axis = (np.arange(STEPS) + 0.5) / STEPS * 2 - 1
    x, y = (values.ravel() for values in np.meshgrid(axis, axis))
    disc = np.column_stack([x, y])[x * x + y * y <= 1]
    back = np.linalg.inv(second.shapes)
    linear, offset = back @ first.shapes, (back @ (first.centers - second.centers)[..., None])[..., 0]
    inside = np.empty(len(first))
    for k in range(len(first)):
        inside[k] = (((disc @ linear[k].T + offset[k]) ** 2).sum(1) <= 1).mean()
    intersection = inside * np.abs(np.linalg.det(first.shapes))
    union = np.abs(np.linalg.det(first.shapes)) + np.abs(np.linalg.det(second.shapes)) - intersection
    return intersection / union


def _turns(angles: np.ndarray) -> np.ndarray:
    return Frames.turned_squares(np.zeros((len(angles), 2)), np.ones(len(angles)), angles).shapes


def _stretches(amounts: np.ndarray, directions: np.ndarray) -> np.ndarray:
    """Matrices of determinant 1 that stretch along a direction."""
    axes = np.zeros((len(amounts), 2, 2))
    axes[:, 0, 0], axes[:, 1, 1] = np.sqrt(amounts), 1 / np.sqrt(amounts)
    return _turns(directions) @ axes @ _turns(-directions)
