"""Project points with COLMAP's camera models, and find the rays of pixels."""

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError

# In COLMAP's order, the parameters are the focal length (or lengths), the centre, then the distortion.
_ONE_FOCAL = (
    "SIMPLE_PINHOLE", "SIMPLE_RADIAL", "RADIAL", "SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "SIMPLE_DIVISION",
    "SIMPLE_FISHEYE",
)  # fmt: skip
_TWO_FOCALS = ("PINHOLE", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV", "DIVISION", "FISHEYE", "EUCM")
PROJECTABLE = (*_TWO_FOCALS, *_ONE_FOCAL)
PANORAMA = "EQUIRECTANGULAR"  # its parameters are width and height; it has no focal length
LARGEST_ANGLE = 1.4  # radians off the axis; distortion polynomials are not monotonic beyond this
BISECTIONS, TANGENTIAL_STEPS = 60, 30


def project(model: str, parameters: np.ndarray, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project points given in camera coordinates.

    Args:
        model: one of PROJECTABLE.
        parameters: of the camera, in COLMAP's order.
        points: (K, 3), z forward.

    Returns:
        (K, 2) pixels with COLMAP's origin; (K,) whether the point is in front of the camera, within 80 degrees of its
        axis, and where the distorted radius still grows with the angle.
    """
    if model not in PROJECTABLE:
        raise ArgumentError(f"camera model {model} cannot be projected; supported are {', '.join(PROJECTABLE)}")
    focal, centre, distortion = _parts(model, parameters)
    z = points[:, 2]
    visible = (z > 0) & (np.arctan2(np.hypot(points[:, 0], points[:, 1]), z) < LARGEST_ANGLE)
    u = points[:, :2] / np.where(visible, z, 1.0)[:, None]
    r = np.linalg.norm(u, axis=1)
    scale = np.where(r > 1e-12, _distorted_radius(model, r, distortion) / np.maximum(r, 1e-12), 1.0)
    distorted = u * scale[:, None]
    if model in ("OPENCV", "FULL_OPENCV"):
        distorted += _tangential(u, r**2, distortion)
    return distorted * focal + centre, visible & (r < _first_fold(model, distortion))


def unproject(model: str, parameters: np.ndarray, pixels: np.ndarray) -> np.ndarray:
    """The inverse of `project`: the rays of pixels.

    Args:
        model: one of PROJECTABLE.
        parameters: of the camera, in COLMAP's order.
        pixels: (K, 2) with COLMAP's origin.

    Returns:
        (K, 2) x / z and y / z; NaN for a pixel that no visible point projects to.
    """
    if model not in PROJECTABLE:
        raise ArgumentError(f"camera model {model} cannot be projected; supported are {', '.join(PROJECTABLE)}")
    focal, centre, distortion = _parts(model, parameters)
    distorted = (pixels - centre) / focal
    rays = distorted * _undistorted_scale(model, np.linalg.norm(distorted, axis=1), distortion)[:, None]
    if model not in ("OPENCV", "FULL_OPENCV") or not distortion[2:4].any():
        return rays
    # Tangential distortion moves points a little: the ray of what remains without it, again and again.
    for _ in range(TANGENTIAL_STEPS):
        rest = distorted - _tangential(rays, (rays**2).sum(1), distortion)
        rays = rest * _undistorted_scale(model, np.linalg.norm(rest, axis=1), distortion)[:, None]
    return rays


def check_intrinsics(K: np.ndarray) -> np.ndarray:
    """(3, 3) float64 intrinsics of a pinhole camera in pixels; anything else is refused."""
    try:
        matrix = np.asarray(K, np.float64)
    except (TypeError, ValueError):
        raise ArgumentTypeError(f"intrinsics must be (3, 3) numbers, got {type(K).__name__}") from None
    is_camera = matrix.shape == (3, 3) and np.isfinite(matrix).all() and (matrix[[0, 1], [0, 1]] > 0).all()
    if not is_camera or matrix[1, 0] or (matrix[2] != [0, 0, 1]).any():
        raise ArgumentError(
            f"intrinsics must be [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels, got {matrix.tolist()}"
        )
    return matrix


def focal_length(model: str, parameters: np.ndarray) -> float:
    """Mean focal length in pixels; for a panorama, the pixels per radian along its equator."""
    return float(parameters[0] / (2 * np.pi)) if model == PANORAMA else float(np.mean(_parts(model, parameters)[0]))


def focal_and_centre(model: str, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(2,) focal lengths and (2,) principal point with COLMAP's origin, of one of the PROJECTABLE models."""
    return _parts(model, parameters)[:2]


def _parts(model: str, parameters: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    if model in _ONE_FOCAL:
        return parameters[[0, 0]], parameters[1:3], parameters[3:]
    return parameters[:2], parameters[2:4], parameters[4:]


def _distorted_radius(model: str, r: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Distance from the centre, in focal lengths, of a point seen at r = tan(angle); NaN where the model has none."""
    if model.endswith("FISHEYE"):
        angle = np.arctan(r)
        return angle * _even_polynomial(angle, k)
    if model == "FOV":
        return np.arctan(2 * r * np.tan(k[0] / 2)) / k[0] if k[0] else r
    with np.errstate(divide="ignore", invalid="ignore"):
        if model.endswith("DIVISION"):
            return 2 * r / (1 + np.sqrt(1 - 4 * k[0] * r**2))
        if model == "EUCM":
            return r / (k[0] * np.sqrt(k[1] * r**2 + 1) + 1 - k[0])
        above, below = _radial_parts(model, k)
        return r * _even_polynomial(r, above) / _even_polynomial(r, below)


def _undistorted_scale(model: str, wanted: np.ndarray, k: np.ndarray) -> np.ndarray:
    """r / wanted for the radius r that is distorted to the wanted one, by bisection; NaN where there is none."""
    end = min(_first_fold(model, k), np.tan(LARGEST_ANGLE))
    low, high = np.zeros_like(wanted), np.full_like(wanted, end)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        is_below = _distorted_radius(model, middle, k) < wanted
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    reachable = wanted <= _distorted_radius(model, np.full_like(wanted, end), k)
    return np.where(wanted < 1e-12, 1.0, np.where(reachable, high, np.nan) / np.maximum(wanted, 1e-12))


def _radial_parts(model: str, k: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients of the even powers in the numerator and the denominator of the radial factor."""
    if model == "FULL_OPENCV":
        return k[[0, 1, 4]], k[5:8]
    count = {"SIMPLE_RADIAL": 1, "RADIAL": 2, "OPENCV": 2}.get(model, 0)
    return k[:count], k[:0]


def _even_polynomial(r: np.ndarray, coefficients: np.ndarray) -> np.ndarray:
    return 1 + sum((c * r ** (2 * i) for i, c in enumerate(coefficients, 1)), np.zeros_like(r))


def _first_fold(model: str, k: np.ndarray) -> float:
    """The radius up to which the distorted radius grows; beyond it, two points share a pixel."""
    r = np.linspace(0, np.tan(LARGEST_ANGLE), 4001)
    falls = ~(np.diff(_distorted_radius(model, r, k)) > 0)
    return float(r[np.argmax(falls)]) if falls.any() else np.inf


def _tangential(u: np.ndarray, r2: np.ndarray, k: np.ndarray) -> np.ndarray:
    p1, p2 = k[2], k[3]
    x, y = u.T
    return np.column_stack([2 * p1 * x * y + p2 * (r2 + 2 * x * x), 2 * p2 * x * y + p1 * (r2 + 2 * y * y)])
