"""Two views of a scene: homographies, Sampson distances, essential matrices, and models fitted by OpenCV's MAGSAC++."""

from typing import Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames
from matchkernel.storage.extras import need_opencv

CONFIDENCE, ITERATIONS = 0.9999, 10_000  # of MAGSAC++


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


def essential_matrix(R: np.ndarray, t: np.ndarray) -> np.ndarray:
    """(3, 3) E = [t]x R of the pose x_B = R x_A + t; it satisfies x_B^T E x_A = 0."""
    return np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]]) @ R


def sampson_distances(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
    """(M,) to first order, how far both points of a match must move together to satisfy x_B^T F x_A = 0.

    Infinite where a coordinate is NaN. For an essential matrix, points are x / z and y / z in camera coordinates.
    """
    a, b = _homogeneous(points_a), _homogeneous(points_b)
    lines_b, lines_a = a @ F.T, b @ F
    residuals, gradients = (b * lines_b).sum(1), _squares(lines_b) + _squares(lines_a)
    is_defined = gradients > 0
    lengths = np.sqrt(np.where(is_defined, gradients, 1))
    return np.where(is_defined, np.abs(residuals) / lengths, np.where(residuals == 0, 0.0, np.inf))


def within_sampson_distance(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray, pixels: float) -> np.ndarray:
    """(K, L) bool: whether the Sampson distance of a point of A and a point of B is at most `pixels`."""
    a, b = _homogeneous(points_a), _homogeneous(points_b)
    lines_b, lines_a = a @ F.T, b @ F
    return np.asarray((lines_b @ b.T) ** 2 <= pixels**2 * (_squares(lines_b)[:, None] + _squares(lines_a)))


def fit_magsac(
    model: Literal["homography", "fundamental", "essential"],
    points_a: np.ndarray,
    points_b: np.ndarray,
    threshold: float,
    iterations: int = ITERATIONS,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Fit a model to matches with MAGSAC++.

    Args:
        model: what to fit.
        points_a: (M, 2) float64, in pixels; for an essential matrix x / z and y / z.
        points_b: (M, 2) their matches.
        threshold: of an inlier, in the unit of the points.
        iterations: maximum number of iterations.

    Returns:
        the (3, 3) matrix and (M,) bool inliers; None if the matches do not determine a model.
    """
    cv2 = need_opencv()
    try:
        if model == "homography":
            matrix, mask = cv2.findHomography(
                points_a, points_b, cv2.USAC_MAGSAC, threshold, maxIters=iterations, confidence=CONFIDENCE
            )
        elif model == "fundamental":
            matrix, mask = cv2.findFundamentalMat(
                points_a, points_b, cv2.USAC_MAGSAC, threshold, CONFIDENCE, iterations
            )
        else:
            matrix, mask = cv2.findEssentialMat(
                points_a, points_b, np.eye(3), cv2.USAC_MAGSAC, CONFIDENCE, threshold, iterations
            )
    except cv2.error:  # its solvers fail on degenerate matches
        return None
    if matrix is None or mask is None or matrix.shape != (3, 3) or not np.isfinite(matrix).all() or not matrix.any():
        return None
    return matrix, mask.ravel() > 0


def _squares(lines: np.ndarray) -> np.ndarray:
    return np.asarray((lines[:, :2] ** 2).sum(1))


def _homogeneous(points: np.ndarray) -> np.ndarray:
    return np.column_stack([points, np.ones(len(points))])
