"""Align matched points by fractions of a pixel: the point of B is moved until its region looks like that of A.

Gauss-Newton on the difference of two small patches of mean 0 and deviation 1; the patch of B may be moved, turned,
scaled and sheared (Lucas and Kanade 1981; the mean of both gradients as by Benhimane and Malis 2004). All matches of a
pair of photos are aligned together.
"""

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames, pyramid_levels
from matchkernel.storage.extras import need_opencv

SIDE = 16  # of the patches, in pixels
SHARE = 0.5  # side of what is aligned / side of the region: 3 sigma of 6
WINDOW = 0.5  # deviation of the Gaussian weights / half side of the patch
STEPS, LONGEST = 6, 0.5  # number of steps, and the longest one, in half sides
SIMILAR = 0.7  # smallest correlation of aligned patches
FARTHEST = 1 / 3  # longest way of a point, in half sides of the patch: one sigma
DAMPING = 1e-3
MATCHES_AT_A_TIME = 2048  # about 60 MB
LONGEST_SIDE = 2**15 - 2  # of an image that OpenCV's remap takes


def align_points(image_a: np.ndarray, image_b: np.ndarray, frames_a: Frames, frames_b: Frames) -> np.ndarray:
    """The points of B that correspond to the centres of frames of A, more accurately than the centres of B's frames.

    A point stays where it is if the patches do not become more similar, are not similar enough, if it would move
    farther than a detector errs, or if a region has no area.

    Args:
        image_a: (H, W) gray, uint8 or float32.
        image_b: the same of B.
        frames_a: of M matched keypoints of A.
        frames_b: of their M matches in B.

    Returns:
        (M, 2) points in B.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.alignment import align_points
        >>> from matchkernel.geometry.frames import Frames
        >>> y, x = np.mgrid[:80, :80]
        >>> blob = np.exp(-((x - 40) ** 2 + (y - 40) ** 2) / 32).astype(np.float32)
        >>> moved = np.exp(-((x - 40.4) ** 2 + (y - 39.8) ** 2) / 32).astype(np.float32)
        >>> frames = Frames.turned_squares(np.array([[40.0, 40.0]]), np.array([20.0]), np.zeros(1))
        >>> align_points(blob, moved, frames, frames).round(1).tolist()
        [[40.4, 39.8]]
    """
    if len(frames_a) != len(frames_b):
        raise ArgumentError(f"frames of matches must be as many in A as in B, got {len(frames_a)} and {len(frames_b)}")
    if max(*image_a.shape, *image_b.shape) > LONGEST_SIDE:
        raise ArgumentError(f"points of images with more than {LONGEST_SIDE:,} pixels on a side cannot be aligned")
    points = frames_b.centers.copy()
    with np.errstate(invalid="ignore"):
        usable = np.flatnonzero((frames_a.half_widths > 0) & (frames_b.half_widths > 0))
    levels = [[np.asarray(image, np.float32)] for image in (image_a, image_b)]
    for start in range(0, len(usable), MATCHES_AT_A_TIME):
        chosen = usable[start : start + MATCHES_AT_A_TIME]
        points[chosen] = _aligned(levels[0], levels[1], frames_a[chosen], frames_b[chosen])
    return points


def _aligned(levels_a: list[np.ndarray], levels_b: list[np.ndarray], a: Frames, b: Frames) -> np.ndarray:
    """(M, 2) points; levels of the pyramids are added as they are needed."""
    places = (2 * np.arange(SIDE, dtype=np.float32) + 1) / SIDE - 1
    v, u = (part.ravel() for part in np.meshgrid(places, places, indexing="ij"))
    grid = np.stack([u, v])  # (2, P)
    weights = np.exp(-(grid**2).sum(0) / (2 * WINDOW**2))
    weights /= weights.sum()
    patches_a = _normalised(_sampled(levels_a, a, SHARE * a.shapes @ grid), weights)
    slopes_a = _slopes(patches_a)
    warps, moves = np.tile(np.eye(2), (len(a), 1, 1)), np.zeros((len(a), 2))
    best, best_moves = np.full(len(a), -np.inf), moves
    first = best
    for step in range(STEPS + 1):
        offsets = SHARE * b.shapes @ (warps @ grid + moves[..., None])
        patches_b = _normalised(_sampled(levels_b, b, offsets), weights)
        similarity = (patches_a * patches_b) @ weights
        first = similarity if step == 0 else first
        is_better = similarity > best
        best, best_moves = np.where(is_better, similarity, best), np.where(is_better[:, None], moves, best_moves)
        if step < STEPS:
            x, y = ((slopes_a + _slopes(patches_b)) / 2).transpose(1, 0, 2)
            J = np.stack([x, y, x * u, x * v, y * u, y * v], 1)  # (M, 6, P)
            change = _step(J, patches_a, patches_b, weights)
            moves = moves + (warps @ change[:, :2, None])[..., 0]
            warps = warps + warps @ change[:, 2:].reshape(-1, 2, 2)
    is_good = (best > first) & (best > SIMILAR) & ((best_moves**2).sum(1) < FARTHEST**2)
    return b.centers + np.where(is_good[:, None], (SHARE * b.shapes @ best_moves[..., None])[..., 0], 0)


def _step(J: np.ndarray, patches_a: np.ndarray, patches_b: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """(M, 6) a step of Gauss-Newton; changes of brightness and contrast cost nothing."""
    J = J - (J @ weights)[..., None]
    J -= ((J * patches_b[:, None]) @ weights)[..., None] * patches_b[:, None]
    weighted = J * weights
    H = (weighted @ J.transpose(0, 2, 1)).astype(np.float64)
    H += np.eye(6) * (DAMPING / 6 * np.trace(H, axis1=1, axis2=2) + 1e-9)[:, None, None]
    differences = (weighted @ (patches_a - patches_b)[..., None]).astype(np.float64)
    return np.clip(np.linalg.solve(H, differences)[..., 0], -LONGEST, LONGEST)


def _sampled(levels: list[np.ndarray], frames: Frames, offsets: np.ndarray) -> np.ndarray:
    """(M, P) an image at the centres of frames plus (M, 2, P) offsets, in levels of the size of the frames."""
    cv2 = need_opencv()
    wanted = pyramid_levels(frames.half_widths * (2 * SHARE / SIDE), min(levels[0].shape))
    while len(levels) <= wanted.max(initial=0):
        levels.append(cv2.pyrDown(levels[-1]))
    places = np.clip(frames.centers[..., None] + offsets, -1e6, 1e6)
    patches = np.empty((len(frames), offsets.shape[2]), np.float32)
    for level in np.unique(wanted):
        rows = np.flatnonzero(wanted == level)
        x, y = (places[rows] * 0.5**level).astype(np.float32).transpose(1, 0, 2)
        patches[rows] = cv2.remap(levels[level], x, y, cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    return patches


def _normalised(patches: np.ndarray, weights: np.ndarray) -> np.ndarray:
    patches = patches - (patches @ weights)[:, None]
    return np.asarray(patches / (np.sqrt((patches**2) @ weights)[:, None] + 1e-6))


def _slopes(patches: np.ndarray) -> np.ndarray:
    """(M, 2, P) derivatives in x and in y by half a side; 0 along the border, where weights are small."""
    square = patches.reshape(-1, SIDE, SIDE)
    slopes = np.zeros((len(square), 2, SIDE, SIDE), np.float32)
    slopes[:, 0, :, 1:-1] = (square[:, :, 2:] - square[:, :, :-2]) * (SIDE / 4)
    slopes[:, 1, 1:-1] = (square[:, 2:] - square[:, :-2]) * (SIDE / 4)
    return slopes.reshape(len(square), 2, -1)
