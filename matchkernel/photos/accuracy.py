"""How right a homography is where the truth is known."""

import numpy as np

from matchkernel.geometry.homography import warp_points


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
