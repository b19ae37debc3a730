"""Find the matches that agree on a homography or a fundamental matrix, with OpenCV's MAGSAC++."""

from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.homography import check_homography, warp_points
from matchkernel.storage.extras import need_opencv

Geometry = Literal["homography", "fundamental"]

LEAST = {"homography": 4, "fundamental": 8}  # number of distinct matches that a model needs
INLIER_PIXELS, MOST_PIXELS = 3.0, 100_000  # pixels
CONFIDENCE, ITERATIONS = 0.9999, 10_000
FLAT = 1e-3  # points on a line: their spread across it is below this share of their spread along it


@dataclass(frozen=True)
class Verification:
    """The geometry that M matches agree on.

    Attributes:
        geometry: "homography" or "fundamental".
        model: (3, 3) float64, or None if the matches determine none. A homography maps image A to image B; a
            fundamental matrix F satisfies x_B^T F x_A = 0. Coordinates: the centre of the top-left pixel is (0, 0).
        inliers: (M,) bool.
        errors: (M,) float64 pixels: distance in B from the mapped point of A, or Sampson distance; infinite if there
            is no model.
    """

    geometry: Geometry
    model: np.ndarray | None
    inliers: np.ndarray
    errors: np.ndarray


def verify(
    points_a: np.ndarray,
    points_b: np.ndarray,
    geometry: Geometry = "homography",
    *,
    threshold: float = INLIER_PIXELS,
    iterations: int = ITERATIONS,
) -> Verification:
    """Fit a model to matches and find its inliers; the same matches always give the same answer.

    Too few different matches, or points on one line, determine no model: then it is None and there are no inliers.

    Args:
        points_a: (M, 2) x, y in image A.
        points_b: (M, 2) their matches in image B.
        geometry: what to fit.
        threshold: maximum error of an inlier in pixels.
        iterations: maximum number of iterations.
    """
    if geometry not in LEAST:
        raise ArgumentError(f"geometry must be homography or fundamental, got {geometry!r}")
    check_pixels(threshold)
    if iterations < 1:
        raise ArgumentError(f"iterations must be 1 or more, got {iterations}")
    points_a, points_b = _points(points_a, points_b)
    nothing = Verification(geometry, None, np.zeros(len(points_a), bool), np.full(len(points_a), np.inf))
    if not _determine(points_a, points_b, geometry):
        return nothing
    model = _fit(points_a, points_b, geometry, threshold, iterations)
    if model is None:
        return nothing
    errors = (transfer_errors if geometry == "homography" else sampson_errors)(model, points_a, points_b)
    inliers = errors <= threshold
    if not _determine(points_a[inliers], points_b[inliers], geometry):
        return nothing
    return Verification(geometry, model, inliers, errors)


def check_pixels(threshold: float) -> None:
    """Refuse a maximum inlier error that is not positive, or larger than any image."""
    if not isinstance(threshold, Real) or not 0 < float(threshold) <= MOST_PIXELS:
        raise ArgumentError(
            f"the maximum error of an inlier must be above 0 and at most {MOST_PIXELS:,} pixels, got {threshold!r}"
        )


def transfer_errors(H: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
    """(M,) distance in image B of H x_A from x_B; infinite on and behind the horizon."""
    mapped, in_front = warp_points(H, points_a)
    return np.where(in_front, np.linalg.norm(mapped - points_b, axis=1), np.inf)


def sampson_errors(F: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
    """(M,) Sampson distance: to first order how far both points must move to satisfy x_B^T F x_A = 0."""
    a, b = _homogeneous(points_a), _homogeneous(points_b)
    lines_b, lines_a = a @ F.T, b @ F
    slopes = np.sqrt((lines_b[:, :2] ** 2).sum(1) + (lines_a[:, :2] ** 2).sum(1))
    values = np.abs((b * lines_b).sum(1))
    return np.where(slopes > 0, values / np.where(slopes > 0, slopes, 1), np.where(values > 0, np.inf, 0.0))


def _fit(a: np.ndarray, b: np.ndarray, geometry: Geometry, threshold: float, iterations: int) -> np.ndarray | None:
    cv2 = need_opencv()
    options: dict[str, Any] = {"maxIters": iterations, "confidence": CONFIDENCE}
    try:
        if geometry == "homography":
            H, _ = cv2.findHomography(a, b, cv2.USAC_MAGSAC, threshold, **options)
            return None if H is None else _usable_homography(H)
        F, _ = cv2.findFundamentalMat(a, b, cv2.USAC_MAGSAC, threshold, CONFIDENCE, iterations)
    except cv2.error:  # its solvers fail if the matches do not determine a model
        return None
    if F is None or F.shape != (3, 3) or not np.isfinite(F).all() or not F.any():
        return None
    return F / np.linalg.norm(F)


def _usable_homography(H: np.ndarray) -> np.ndarray | None:
    try:
        H = check_homography(H)
    except ArgumentError:
        return None
    return H / H[2, 2] if abs(H[2, 2]) > 1e-12 else H


def _determine(a: np.ndarray, b: np.ndarray, geometry: Geometry) -> bool:
    """Whether there are enough distinct matches that do not lie on one line in either image."""
    distinct = np.unique(np.round(np.concatenate([a, b], 1), 3), axis=0)
    if len(distinct) < LEAST[geometry]:
        return False
    for points in (np.unique(distinct[:, :2], axis=0), np.unique(distinct[:, 2:], axis=0)):
        spread = np.linalg.svd(points - points.mean(0), compute_uv=False)
        if len(points) < LEAST[geometry] or spread[1] <= FLAT * spread[0]:
            return False
    return True


def _points(points_a: np.ndarray, points_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(points_a, np.float64), np.asarray(points_b, np.float64)
    if a.ndim != 2 or a.shape[1] != 2 or a.shape != b.shape:
        raise ArgumentError(f"matches must be two arrays of (M, 2) points, got {a.shape} and {b.shape}")
    is_bad = ~np.isfinite(np.concatenate([a, b], 1)).all(1)
    if is_bad.any():
        raise ArgumentError(f"match {int(is_bad.argmax())} has a coordinate that is not finite")
    return a, b


def _homogeneous(points: np.ndarray) -> np.ndarray:
    return np.column_stack([points, np.ones(len(points))])
