"""The relative pose of two cameras from matches, and its error."""

from dataclasses import dataclass

import numpy as np

from matchkernel.evaluation.photos.scenes import PoseCamera
from matchkernel.geometry.cameras import focal_and_centre, focal_length, unproject
from matchkernel.geometry.conventions import COLMAP_ORIGIN
from matchkernel.geometry.two_view import fit_magsac
from matchkernel.storage.extras import need_opencv

LEAST_MATCHES = {"essential": 5, "fundamental": 8}
ASSUMED_FOCAL = 1.2  # of the longer side, where the intrinsics are not known, as COLMAP assumes
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


FAILED = PoseError(np.inf, np.inf, 0)


@dataclass(frozen=True)
class View:
    """A camera, and the size of its photo's file."""

    camera: PoseCamera
    image_size: tuple[int, int]

    @property
    def scale(self) -> np.ndarray:
        """(2,) pixels of the file / pixels of the camera."""
        return np.ones(2) if self.camera.size is None else np.array(self.image_size) / np.array(self.camera.size)

    @property
    def focal(self) -> float:
        """Mean focal length in pixels of the file, assumed where it is not known."""
        if self.camera.model is None:
            return ASSUMED_FOCAL * max(self.image_size)
        return focal_length(self.camera.model, self.camera.parameters) * float(self.scale.mean())

    def rays(self, points: np.ndarray) -> np.ndarray:
        """(M, 2) x / z and y / z of points (M, 2) of the file; NaN beyond the reach of the camera's distortion.

        The centre of the first pixel is (0, 0). Unknown intrinsics are assumed: see `focal`; the centre of the image.
        """
        if self.camera.model is None:
            return (points - (np.array(self.image_size) - 1) / 2) / self.focal
        return unproject(self.camera.model, self.camera.parameters, (points + COLMAP_ORIGIN) / self.scale)


def relative_pose(a: PoseCamera, b: PoseCamera) -> tuple[np.ndarray, np.ndarray]:
    """R and t with x_b = R x_a + t."""
    R = b.R @ a.R.T
    return R, b.t - R @ a.t


def score_pose(points_a: np.ndarray, points_b: np.ndarray, a: View, b: View, pixels: float) -> PoseError:
    """Estimate the relative pose from matches, and compare it with the true one.

    With the intrinsics of both cameras, MAGSAC estimates the essential matrix. Without, it estimates the fundamental
    matrix, and assumed intrinsics (see View) only serve to derive a pose from it.

    Args:
        points_a: (M, 2) in image A, the centre of the first pixel is (0, 0).
        points_b: (M, 2) their matches in image B.
        a, b: the cameras.
        pixels: threshold of MAGSAC.
    """
    known = a.camera.model is not None and b.camera.model is not None
    rays_a, rays_b = a.rays(points_a), b.rays(points_b)
    usable = np.isfinite(rays_a).all(1) & np.isfinite(rays_b).all(1)
    rays_a, rays_b = rays_a[usable], rays_b[usable]
    if len(rays_a) < LEAST_MATCHES["essential" if known else "fundamental"]:
        return FAILED
    if known:
        found = fit_magsac("essential", rays_a, rays_b, pixels / ((a.focal + b.focal) / 2))
    else:
        found = fit_magsac("fundamental", points_a[usable], points_b[usable], pixels)
    if found is None:
        return FAILED
    matrix, inliers = found
    E = matrix if known else _matrix(b).T @ matrix @ _matrix(a)
    pose = _pose(E, rays_a, rays_b, inliers)
    if pose is None:
        return FAILED
    return pose_error(*pose, *relative_pose(a.camera, b.camera), int(inliers.sum()))


def pose_error(R: np.ndarray, t: np.ndarray, true_R: np.ndarray, true_t: np.ndarray, inliers: int = 0) -> PoseError:
    """Angles between two rotations and between two translations; for one camera centre only the rotation counts."""
    rotation = 2 * np.arcsin(min(1.0, float(np.linalg.norm(R - true_R)) / np.sqrt(8)))
    direction = np.arctan2(np.linalg.norm(np.cross(t, true_t)), t @ true_t) if true_t.any() else 0.0
    return PoseError(float(np.rad2deg(rotation)), float(np.rad2deg(direction)), inliers)


def _matrix(view: View) -> np.ndarray:
    """K of a camera in pixels of the file; distortion is left out."""
    if view.camera.model is None:
        centre, focal = (np.array(view.image_size) - 1) / 2, np.full(2, view.focal)
    else:
        focal, centre = focal_and_centre(view.camera.model, view.camera.parameters)
        focal, centre = focal * view.scale, centre * view.scale - COLMAP_ORIGIN
    return np.array([[focal[0], 0, centre[0]], [0, focal[1], centre[1]], [0, 0, 1]])


def _pose(
    E: np.ndarray, rays_a: np.ndarray, rays_b: np.ndarray, inliers: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Of the four poses of E the one that has the most points in front of both cameras; None if there are none."""
    cv2 = need_opencv()
    try:
        count, R, t, *_ = cv2.recoverPose(E, rays_a[inliers], rays_b[inliers], np.eye(3), FARTHEST)
    except cv2.error:
        return None
    return (R, t.ravel()) if count and np.isfinite(R).all() and np.isfinite(t).all() else None
