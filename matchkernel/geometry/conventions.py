"""Convert keypoints from and to other programs: the only place where half pixels, degrees and sizes are converted.

Inside the package the centre of the top-left pixel is (0, 0), angles are radians from +x towards +y, and a region is
given by its half width in pixels: a magnification times the detector's sigma.
"""

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames

# Half side of the region / sigma; sigma = COLMAP's scale = OpenCV's size / 2. For patch sets and for photos.
MAGNIFICATION = 6.0
COLMAP_ORIGIN = 0.5  # COLMAP's coordinates of the centre of the top-left pixel


def frames_from_colmap(keypoints: np.ndarray, magnification: float = MAGNIFICATION) -> Frames:
    """Frames of COLMAP keypoints.

    Args:
        keypoints: (K, 6) x, y, a11, a12, a21, a22; (K, 4) x, y, scale, orientation; (K, 2) x, y have neither and
            are refused, because they define no region.
    """
    keypoints = np.asarray(keypoints, np.float64)
    if keypoints.ndim != 2 or keypoints.shape[1] not in (4, 6):
        raise ArgumentError(f"COLMAP keypoints with a scale must have 4 or 6 columns, got shape {keypoints.shape}")
    centers = keypoints[:, :2] - COLMAP_ORIGIN
    if keypoints.shape[1] == 6:
        return Frames(centers, magnification * keypoints[:, 2:].reshape(-1, 2, 2))
    return Frames.turned_squares(centers, magnification * keypoints[:, 2], keypoints[:, 3])


def frames_to_colmap(frames: Frames, magnification: float = MAGNIFICATION) -> np.ndarray:
    """(K, 6) float32 COLMAP keypoints of frames."""
    shapes = frames.shapes.reshape(-1, 4) / magnification
    return np.concatenate([frames.centers + COLMAP_ORIGIN, shapes], 1).astype(np.float32)


def frames_from_opencv(keypoints: np.ndarray, magnification: float = MAGNIFICATION) -> Frames:
    """Frames of OpenCV SIFT keypoints: (K, 4) x, y, size (diameter, 2 sigma), angle in degrees (negative: upright).

    Example:
        >>> from matchkernel.geometry.conventions import frames_from_opencv
        >>> frames = frames_from_opencv([[120.0, 80.0, 8.0, 0.0]])
        >>> frames.half_widths.round(6).tolist()  # six times sigma
        [24.0]
    """
    keypoints = np.asarray(keypoints)
    if keypoints.dtype == object:
        raise ArgumentError(
            "keypoints must be (K, 4) numbers; pass cv2.KeyPoint objects to DescriptorExtractor.compute"
        )
    keypoints = keypoints.astype(np.float64)
    if not keypoints.size:
        keypoints = keypoints.reshape(0, 4)
    if keypoints.ndim != 2 or keypoints.shape[1] != 4:
        raise ArgumentError(f"OpenCV keypoints must be (K, 4) x, y, size, angle, got shape {keypoints.shape}")
    is_negative = keypoints[:, 2] < 0
    if is_negative.any():
        first = int(is_negative.argmax())
        raise ArgumentError(f"keypoint {first} has a size of {keypoints[first, 2]:g}; a diameter must not be negative")
    angles = np.where(keypoints[:, 3] < 0, 0.0, np.deg2rad(keypoints[:, 3]))
    return Frames.turned_squares(keypoints[:, :2], magnification * keypoints[:, 2] / 2, angles)


def frames_to_opencv(frames: Frames, magnification: float = MAGNIFICATION) -> np.ndarray:
    """(K, 4) x, y, size, angle in degrees from 0 to 360; an anisotropic shape becomes the square of its area."""
    degrees = np.rad2deg(frames.angles) % 360
    return np.column_stack([frames.centers, 2 * frames.half_widths / magnification, degrees])


def frames_from_kornia(lafs: np.ndarray) -> Frames:
    """Frames of kornia's local affine frames: (K, 2, 3), the matrix [A | c] of the region c + A [-1, 1]^2.

    Centre and matrix mean the same in both. Only kornia's angles have the opposite sign: an `ori` of +30 degrees points
    the patch's x axis to -30. Therefore we pass the matrix and never an angle.
    """
    lafs = np.asarray(lafs, np.float64)
    if lafs.ndim != 3 or lafs.shape[1:] != (2, 3):
        raise ArgumentError(f"local affine frames must be (K, 2, 3), got shape {lafs.shape}")
    return Frames(lafs[:, :, 2], lafs[:, :, :2])


def frames_to_kornia(frames: Frames) -> np.ndarray:
    """(K, 2, 3) float32 local affine frames of kornia."""
    return np.concatenate([frames.shapes, frames.centers[:, :, None]], 2).astype(np.float32)
