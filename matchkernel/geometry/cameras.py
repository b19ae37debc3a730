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
    visible = np.arctan2(radius, z) < LARGEST_ANGLE
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
    """Distorted normalised coordinates, and whether the radial part still grows there."""
    if model.endswith("FISHEYE"):
        r = np.linalg.norm(u, axis=1)
        theta = np.arctan(r)
        powers = [coefficient * theta ** (2 * i) for i, coefficient in enumerate(k, 1)]
        slopes = [(2 * i + 1) * power for i, power in enumerate(powers, 1)]
        scale = np.where(r > 1e-12, theta / np.maximum(r, 1e-12), 1.0) * (1 + sum(powers, np.zeros_like(r)))
        return u * scale[:, None], 1 + sum(slopes, np.zeros_like(r)) > 0
    r2 = (u**2).sum(1)
    radial, slope = _radial(model, r2, k)
    tangential = _tangential(u, r2, k) if model in ("OPENCV", "FULL_OPENCV") else 0.0
    return u * radial[:, None] + tangential, (radial > 0) & (slope > 0)


def _radial(model: str, r2: np.ndarray, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factor of the radius, and the slope of the distorted radius."""
    above = {
        "SIMPLE_RADIAL": k[:1],
        "RADIAL": k[:2],
        "OPENCV": k[:2],
        "FULL_OPENCV": k[[0, 1, 4]] if len(k) > 4 else k[:0],
    }
    below = k[5:8] if model == "FULL_OPENCV" else k[:0]
    step = 1e-6

    def factor(q: np.ndarray) -> np.ndarray:
        top = 1 + sum((c * q**i for i, c in enumerate(above.get(model, k[:0]), 1)), np.zeros_like(q))
        return top / (1 + sum((c * q**i for i, c in enumerate(below, 1)), np.zeros_like(q)))

    r = np.sqrt(r2)
    slope = ((r + step) * factor((r + step) ** 2) - r * factor(r2)) / step
    return factor(r2), slope


def _tangential(u: np.ndarray, r2: np.ndarray, k: np.ndarray) -> np.ndarray:
    p1, p2 = k[2], k[3]
    x, y = u.T
    return np.column_stack([2 * p1 * x * y + p2 * (r2 + 2 * x * x), 2 * p2 * x * y + p1 * (r2 + 2 * y * y)])
