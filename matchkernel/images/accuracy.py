"""How right matches and homographies are where the truth is known."""

import numpy as np

from matchkernel.geometry.homography import warp_points
from matchkernel.images.verify import transfer_errors


def matching_accuracy(points_a: np.ndarray, points_b: np.ndarray, H: np.ndarray, pixels: float = 3.0) -> float:
    """Share of (M, 2) matches that are within so many pixels of the truth in image B; 0 where there are none."""
    return float((transfer_errors(H, points_a, points_b) <= pixels).mean()) if len(points_a) else 0.0


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
