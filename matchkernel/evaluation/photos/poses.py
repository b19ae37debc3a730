"""The error of the relative pose that matches give (geometry/epipolar.py estimates it)."""

from dataclasses import dataclass

import numpy as np

from matchkernel.evaluation.photos.scenes import PoseCamera, Size
from matchkernel.geometry.epipolar import Estimator, Pose, decompose_essential, estimate_pose
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.two_view import fit_magsac

MINIMAL = 8  # matches that a fundamental matrix needs


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
    estimator: Estimator = "refined",
    *,
    ratios: np.ndarray | None = None,
    frames: tuple[Frames, Frames] | None = None,
) -> PoseError:
    """Estimate the relative pose from matches, and compare it with the true one.

    With the intrinsics of both cameras, geometry.epipolar estimates it. Without, MAGSAC estimates the fundamental
    matrix, and assumed intrinsics only serve to derive a pose from it.

    Args:
        points_a: (M, 2) in image A, the centre of the first pixel is (0, 0).
        points_b: (M, 2) their matches in image B.
        cameras: of A and B.
        sizes: width and height of the files of A and B.
        pixels: expected error of right matches; threshold of MAGSAC.
        estimator: of poses with known intrinsics.
        ratios: see estimate_pose.
        frames: see estimate_pose.
    """
    (a, b), (size_a, size_b) = cameras, sizes
    rays_a, rays_b = a.rays(points_a, size_a), b.rays(points_b, size_b)
    if a.model is None or b.model is None:
        pose = _uncalibrated_pose((points_a, points_b), (rays_a, rays_b), cameras, sizes, pixels)
    else:
        noise = pixels / ((a.focal(size_a) + b.focal(size_b)) / 2)
        pose = estimate_pose(rays_a, rays_b, noise, estimator=estimator, ratios=ratios, frames=frames)
    if pose is None:
        return PoseError(np.inf, np.inf, 0)
    return pose_error(pose.R, pose.t, *relative_pose(a, b), int(pose.inliers.sum()))


def _uncalibrated_pose(
    points: tuple[np.ndarray, np.ndarray],
    rays: tuple[np.ndarray, np.ndarray],
    cameras: tuple[PoseCamera, PoseCamera],
    sizes: tuple[Size, Size],
    pixels: float,
) -> Pose | None:
    usable = np.isfinite(rays[0]).all(1) & np.isfinite(rays[1]).all(1)
    found = fit_magsac("fundamental", points[0][usable], points[1][usable], pixels) if usable.sum() >= MINIMAL else None
    if found is None:
        return None
    F, inliers = found
    E = cameras[1].matrix(sizes[1]).T @ F @ cameras[0].matrix(sizes[0])
    pose = decompose_essential(E, inliers, rays[0][usable], rays[1][usable])
    return None if pose is None else Pose(*pose, inliers)


def pose_error(R: np.ndarray, t: np.ndarray, true_R: np.ndarray, true_t: np.ndarray, inliers: int = 0) -> PoseError:
    """Angles between two rotations and between two translations; for one camera centre only the rotation counts."""
    rotation = 2 * np.arcsin(min(1.0, float(np.linalg.norm(R - true_R)) / np.sqrt(8)))
    direction = np.arctan2(np.linalg.norm(np.cross(t, true_t)), t @ true_t) if true_t.any() else 0.0
    return PoseError(float(np.rad2deg(rotation)), float(np.rad2deg(direction)), inliers)
