"""The relative pose of two cameras from matches, and its error.

`estimate_pose` is the only place that knows how a pose is estimated.
"""

from dataclasses import dataclass

import numpy as np

from matchkernel.evaluation.photos.scenes import PoseCamera, Size
from matchkernel.geometry.two_view import fit_magsac
from matchkernel.storage.extras import need_opencv

LEAST_MATCHES = {"essential": 5, "fundamental": 8}
FARTHEST = 1e6  # baselines; points farther away do not tell which of the four poses is right


@dataclass(frozen=True)
class PoseError:
    """Of an estimated relative pose: degrees, infinite if there is none; and how many matches agree with it."""

    rotation: float
    direction: float
    inliers: int

    @property
    def worst(self) -> float:
        """The larger of both."""
        return max(self.rotation, self.direction)


def relative_pose(a: PoseCamera, b: PoseCamera) -> tuple[np.ndarray, np.ndarray]:
    """R and t with x_b = R x_a + t."""
    R = b.R @ a.R.T
    return R, b.t - R @ a.t


def score_pose(
    points_a: np.ndarray,
    points_b: np.ndarray,
    cameras: tuple[PoseCamera, PoseCamera],
    sizes: tuple[Size, Size],
    pixels: float,
) -> PoseError:
    """Estimate the relative pose from matches (see estimate_pose), and compare it with the true one."""
    found = estimate_pose(points_a, points_b, cameras, sizes, pixels)
    if found is None:
        return PoseError(np.inf, np.inf, 0)
    R, t, inliers = found
    return pose_error(R, t, *relative_pose(*cameras), inliers)


def estimate_pose(
    points_a: np.ndarray,
    points_b: np.ndarray,
    cameras: tuple[PoseCamera, PoseCamera],
    sizes: tuple[Size, Size],
    pixels: float,
) -> tuple[np.ndarray, np.ndarray, int] | None:
    """R, t (up to its length) and the number of inliers; None if the matches do not determine a pose.

    With the intrinsics of both cameras, MAGSAC estimates the essential matrix. Without, it estimates the fundamental
    matrix, and assumed intrinsics only serve to derive a pose from it.

    Args:
        points_a: (M, 2) in image A, the centre of the first pixel is (0, 0).
        points_b: (M, 2) their matches in image B.
        cameras: of A and B; only their intrinsics are used.
        sizes: width and height of the files of A and B.
        pixels: threshold of MAGSAC.
    """
    (a, b), (size_a, size_b) = cameras, sizes
    known = a.model is not None and b.model is not None
    rays_a, rays_b = a.rays(points_a, size_a), b.rays(points_b, size_b)
    usable = np.isfinite(rays_a).all(1) & np.isfinite(rays_b).all(1)
    rays_a, rays_b = rays_a[usable], rays_b[usable]
    if len(rays_a) < LEAST_MATCHES["essential" if known else "fundamental"]:
        return None
    if known:
        found = fit_magsac("essential", rays_a, rays_b, pixels / ((a.focal(size_a) + b.focal(size_b)) / 2))
    else:
        found = fit_magsac("fundamental", points_a[usable], points_b[usable], pixels)
    if found is None:
        return None
    matrix, inliers = found
    E = matrix if known else b.matrix(size_b).T @ matrix @ a.matrix(size_a)
    cv2 = need_opencv()
    try:  # of the four poses of E, the one that has the most points in front of both cameras
        count, R, t, *_ = cv2.recoverPose(E, rays_a[inliers], rays_b[inliers], np.eye(3), FARTHEST)
    except cv2.error:
        return None
    return (R, t.ravel(), int(inliers.sum())) if count and np.isfinite(R).all() and np.isfinite(t).all() else None


def pose_error(R: np.ndarray, t: np.ndarray, true_R: np.ndarray, true_t: np.ndarray, inliers: int = 0) -> PoseError:
    """Angles between two rotations and between two translations; for one camera centre only the rotation counts."""
    rotation = 2 * np.arcsin(min(1.0, float(np.linalg.norm(R - true_R)) / np.sqrt(8)))
    direction = np.arctan2(np.linalg.norm(np.cross(t, true_t)), t @ true_t) if true_t.any() else 0.0
    return PoseError(float(np.rad2deg(rotation)), float(np.rad2deg(direction)), inliers)
