"""Project points with COLMAP's camera models."""

import numpy as np

from matchkernel.errors import ArgumentError

# Where the parameters stand: focal length x and y, centre x and y, then the distortion.
_TWO_FOCALS = ("PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV")
_ONE_FOCAL = ("SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE")
PROJECTABLE = (*_TWO_FOCALS, *_ONE_FOCAL)
LARGEST_ANGLE = 1.4  # radians off the axis; polynomials of distortion fold back beyond


def project(model: str, parameters: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project points given in camera coordinates.

    Args:
        model: one of PROJECTABLE.
        parameters: of the camera, in COLMAP's order.
        points: (K, 3), z forward.

    Returns:
        (K, 2) pixels with COLMAP's origin; (K,) whether the point is in front of the camera, within 80 degrees of its
        axis, and where the distortion still grows with the angle.
    """
    if model not in PROJECTABLE:
        raise ArgumentError(f"camera model {model} cannot be projected; known are {', '.join(PROJECTABLE)}")
    focal, centre, distortion = _parts(model, parameters)
    z = points[:, 2]
    radius = np.hypot(points[:, 0], points[:, 1])
    visible = (z > 0) & (np.arctan2(radius, z) < LARGEST_ANGLE)
    u = points[:, :2] / np.where(visible, z, 1.0)[:, None]
    distorted, grows = _distort(model, u, distortion)
    return distorted * focal + centre, visible & grows


def focal_length(model: str, parameters: np.ndarray) -> float:
    """Mean focal length in pixels."""
    return float(np.mean(_parts(model, parameters)[0]))


def _parts(model: str, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if model in _TWO_FOCALS:
        return parameters[:2], parameters[2:4], parameters[4:]
    return parameters[[0, 0]], parameters[1:3], parameters[3:]


def _distort(model: str, u: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Distorted normalised coordinates, and whether the distorted radius has grown all the way there."""
    r = np.linalg.norm(u, axis=1)
    if model.endswith("FISHEYE"):
        distorted = _distorted_radius(np.arctan(r), k, k[:0])
        scale = np.where(r > 1e-12, distorted / np.maximum(r, 1e-12), 1.0)
        return u * scale[:, None], np.arctan(r) < _first_fold(k, k[:0])
    above, below = _radial_parts(model, k)
    scale = np.where(r > 1e-12, _distorted_radius(r, above, below) / np.maximum(r, 1e-12), 1.0)
    tangential = _tangential(u, r**2, k) if model in ("OPENCV", "FULL_OPENCV") else 0.0
    return u * scale[:, None] + tangential, r < _first_fold(above, below)


def _radial_parts(model: str, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of the even powers in the numerator and the denominator of the radial factor."""
    if model == "FULL_OPENCV":
        return k[[0, 1, 4]], k[5:8]
    count = {"SIMPLE_RADIAL": 1, "RADIAL": 2, "OPENCV": 2}.get(model, 0)
    return k[:count], k[:0]


def _distorted_radius(r: np.ndarray, above: np.ndarray, below: np.ndarray) -> np.ndarray:
    top = 1 + sum((c * r ** (2 * i) for i, c in enumerate(above, 1)), np.zeros_like(r))
    return r * top / (1 + sum((c * r ** (2 * i) for i, c in enumerate(below, 1)), np.zeros_like(r)))


def _first_fold(above: np.ndarray, below: np.ndarray) -> float:
    """The radius up to which the distorted radius grows; beyond, an image point has more than one cause."""
    r = np.linspace(0, np.tan(LARGEST_ANGLE), 4001)
    with np.errstate(divide="ignore", invalid="ignore"):
        falls = ~(np.diff(_distorted_radius(r, above, below)) > 0)
    return float(r[np.argmax(falls)]) if falls.any() else np.inf


def _tangential(u: np.ndarray, r2: np.ndarray, k: np.ndarray) -> np.ndarray:
    p1, p2 = k[2], k[3]
    x, y = u.T
    return np.column_stack([2 * p1 * x * y + p2 * (r2 + 2 * x * x), 2 * p2 * x * y + p1 * (r2 + 2 * y * y)])
