"""Two-view geometry: Sampson distances, the essential matrix of a pose, and models fitted by OpenCV's MAGSAC++."""

from typing import Literal

import numpy as np

from matchkernel.storage.extras import need_opencv

CONFIDENCE, ITERATIONS = 0.9999, 10_000  # of MAGSAC++


def essential_matrix(R: np.ndarray, t: np.ndarray) -> np.ndarray:
    """(3, 3) E = [t]x R of the pose x_B = R x_A + t; it satisfies x_B^T E x_A = 0."""
    return np.array([[0, -t[2], t[1]], [t[2], 0, -t[0]], [-t[1], t[0], 0]]) @ R


def sampson_distances(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
    """(M,) to first order, how far both points of a match must move together to satisfy x_B^T F x_A = 0.

    Infinite where a coordinate is NaN. For an essential matrix, points are x / z and y / z in camera coordinates.
    """
    a, b = _homogeneous(points_a), _homogeneous(points_b)
    lines_b, lines_a = a @ F.T, b @ F
    return _distances((b * lines_b).sum(1), _squares(lines_b) + _squares(lines_a))


def sampson_table(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
    """(K, L) Sampson distances of every point of A with every point of B."""
    return _distances(*_sampson_terms(F, points_a, points_b))


def within_sampson_distance(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray, pixels: float) -> np.ndarray:
    """(K, L) bool: whether the Sampson distance of a point of A and a point of B is at most `pixels`."""
    residuals, gradients = _sampson_terms(F, points_a, points_b)
    return residuals**2 <= pixels**2 * gradients


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


def _sampson_terms(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(K, L) x_B^T F x_A of every pair of points, and the squared length of its gradient."""
    a, b = _homogeneous(points_a), _homogeneous(points_b)
    lines_b, lines_a = a @ F.T, b @ F
    return lines_b @ b.T, _squares(lines_b)[:, None] + _squares(lines_a)


def _distances(residuals: np.ndarray, gradients: np.ndarray) -> np.ndarray:
    is_defined = gradients > 0
    lengths = np.sqrt(np.where(is_defined, gradients, 1))
    return np.where(is_defined, np.abs(residuals) / lengths, np.where(residuals == 0, 0.0, np.inf))


def _squares(lines: np.ndarray) -> np.ndarray:
    return np.asarray((lines[:, :2] ** 2).sum(1))


def _homogeneous(points: np.ndarray) -> np.ndarray:
    return np.column_stack([points, np.ones(len(points))])
