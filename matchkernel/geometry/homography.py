"""Points and frames under a homography."""

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames


def check_homography(H: np.ndarray) -> np.ndarray:
    """A (3, 3) homography as float64, with Frobenius norm sqrt 3; refused if it maps the plane onto a line."""
    H = np.asarray(H, np.float64)
    if H.shape != (3, 3) or not np.isfinite(H).all():
        raise ArgumentError(f"a homography must be 3 x 3 finite numbers, got shape {H.shape}")
    values = np.linalg.svd(H, compute_uv=False)
    # Pixel coordinates make even harmless homographies ill-conditioned: a shift by 1000 px has condition 10^6.
    if values[2] <= 1e-10 * values[0]:
        raise ArgumentError("the homography is singular: its determinant is zero")
    return H * (np.sqrt(3) / np.linalg.norm(H))


def warp_points(H: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Map points, and determine which of them are visible.

    Args:
        H: (3, 3), maps homogeneous points of one image to the other.
        points: (K, 2).

    Returns:
        (K, 2) mapped points, NaN where not visible; (K,) whether the point lies on the side of the plane that is in
        front: its third coordinate has the sign that most of the given points have.
    """
    H = np.asarray(H, np.float64)
    columns = np.column_stack([points, np.ones(len(points))])
    homogeneous = columns @ H.T
    depth = homogeneous[:, 2]
    sign = 1.0 if (depth > 0).sum() * 2 >= len(depth) else -1.0
    in_front = depth * sign > 1e-9 * (np.abs(columns) @ np.abs(H[2]))  # beyond the rounding error of its terms
    mapped = np.full((len(points), 2), np.nan)
    mapped[in_front] = homogeneous[in_front, :2] / depth[in_front, None]
    return mapped, in_front


def warp_frames(H: np.ndarray, frames: Frames) -> tuple[Frames, np.ndarray]:
    """Map frames by the homography's derivative at their centres; also returns the mask of warp_points.

    Frames that are not visible stay in the list, so that indices do not change; drop them with the mask.
    """
    H = np.asarray(H, np.float64)
    mapped, in_front = warp_points(H, frames.centers)
    depth = np.column_stack([frames.centers, np.ones(len(frames))]) @ H[2]
    safe = np.where(in_front[:, None], mapped, frames.centers)
    # d(p / w) = (dp - (p / w) dw) / w
    jacobian = (H[None, :2, :2] - safe[:, :, None] * H[None, 2:, :2]) / np.where(in_front, depth, 1)[:, None, None]
    return Frames(safe, np.where(in_front[:, None, None], jacobian @ frames.shapes, frames.shapes)), in_front


def corner_error(H: np.ndarray | None, truth: np.ndarray, size: tuple[int, int]) -> float:
    """Mean distance in image B of the four corners of image A under both homographies; infinite without one.

    Args:
        H: (3, 3) estimated, or None.
        truth: (3, 3).
        size: width and height of image A.
    """
    if H is None:
        return float("inf")
    width, height = size
    corners = np.array([[0, 0], [width - 1, 0], [width - 1, height - 1], [0, height - 1]], np.float64)
    (found, seen), (true, _) = warp_points(H, corners), warp_points(truth, corners)
    return float(np.linalg.norm(found - true, axis=1).mean()) if seen.all() else float("inf")
