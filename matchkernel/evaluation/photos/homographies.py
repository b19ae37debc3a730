"""Matches of two images related by a known homography: how many are right, and how good a homography they give."""

from dataclasses import dataclass

import numpy as np

from matchkernel.geometry.homography import corner_error
from matchkernel.photos.verify import transfer_errors, verify

RIGHT_PIXELS = 3.0  # maximum error of a right match


@dataclass(frozen=True)
class HomographyError:
    """Mean corner error in pixels, infinite if there is no homography; and how many matches agree with it."""

    corners: float
    inliers: int


def are_right(points_a: np.ndarray, points_b: np.ndarray, H: np.ndarray) -> np.ndarray:
    """(M,) whether a match lies within RIGHT_PIXELS of the truth."""
    return transfer_errors(H, points_a, points_b) <= RIGHT_PIXELS


def score_homography(
    points_a: np.ndarray, points_b: np.ndarray, H: np.ndarray, size: tuple[int, int]
) -> HomographyError:
    """Estimate the homography of matches with MAGSAC, and compare the corners of image A under it and the true one.

    Args:
        points_a: (M, 2) in image A.
        points_b: (M, 2) their matches in image B.
        H: (3, 3) true, from A to B.
        size: width and height of image A.
    """
    found = verify(points_a, points_b, "homography")
    return HomographyError(corner_error(found.model, H, size), int(found.inliers.sum()))
