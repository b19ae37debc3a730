"""A better fundamental matrix from the same matches: several hypotheses, each refined on all matches, and compared."""

import numpy as np

from matchkernel.geometry.epipolar import (
    FEWEST,
    LIMIT,
    agreeing_frames,
    have_sizes,
    minimise_sampson,
    relative_errors,
    sampson_derivatives,
)
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.two_view import CONFIDENCE, ITERATIONS, essential_matrix
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.work import in_threads, spare_threads

MINIMAL = 8  # matches that a hypothesis needs
UNIT = 1000.0  # pixels: errors are computed in this unit, which conditions the equations
Factors = tuple[np.ndarray, np.ndarray, float]  # rotations U and V, and s: F = U diag(1, s, 0) V^T


def refined_fundamental(
    F: np.ndarray,
    points_a: np.ndarray,
    points_b: np.ndarray,
    noise: float,
    *,
    ratios: np.ndarray | None = None,
    frames: tuple[Frames, Frames] | None = None,
) -> np.ndarray:
    """Of F and other hypotheses, each refined on all matches, the one with the smallest truncated Sampson errors.

    The others are those of OpenCV's RANSAC with local optimisation on all matches, on the better half according to
    `ratios`, and on matches whose frames agree on a change of scale and a rotation.

    Args:
        F: (3, 3) to improve.
        points_a: (M, 2) in image A, in pixels.
        points_b: (M, 2) their matches in image B.
        noise: expected error of right matches in pixels.
        ratios: (M,) of the matches (default: not known).
        frames: of the M keypoints of A and of B (default: not known).
    """
    parts = [np.arange(len(points_a))]
    if ratios is not None:
        parts.append(np.argsort(ratios, kind="stable")[: max(len(ratios) // 2, 2 * FEWEST)])
    errors = np.ones(len(points_a))
    if frames is not None and have_sizes(*frames):
        parts.append(np.flatnonzero(agreeing_frames(*frames)))
        errors = relative_errors(*frames)
    to_units = [
        np.array([[1, 0, -x], [0, 1, -y], [0, 0, UNIT]]) / UNIT for x, y in (points_a.mean(0), points_b.mean(0))
    ]
    a, b = (np.column_stack([x, np.ones(len(x))]) @ T.T for x, T in zip((points_a, points_b), to_units, strict=True))
    back, sigma = [np.linalg.inv(T) for T in to_units], LIMIT * noise / UNIT * errors

    def refined_on(part: np.ndarray | None) -> np.ndarray | None:
        """F, or the hypothesis of these matches, refined on all."""
        found = F if part is None else _ransac(points_a[part], points_b[part], LIMIT * noise)
        return None if found is None else _refined(back[1].T @ found @ back[0], a, b, sigma)

    tried = in_threads(refined_on, [None, *parts], min(1 + len(parts), spare_threads()))
    refined = [one for one in tried if one is not None]
    costs = [np.minimum((sampson_derivatives(one, a, b)[0] / sigma) ** 2, 1).sum() for one in refined]
    best = to_units[1].T @ refined[int(np.argmin(costs))] @ to_units[0]
    return np.asarray(best / np.linalg.norm(best))


def _ransac(a: np.ndarray, b: np.ndarray, threshold: float) -> np.ndarray | None:
    """OpenCV's RANSAC with graph-cut local optimisation; None if it fails."""
    cv2 = need_opencv()
    try:
        F = cv2.findFundamentalMat(a, b, cv2.USAC_ACCURATE, threshold, CONFIDENCE, ITERATIONS)[0]
    except cv2.error:  # too few matches, or its solvers fail on degenerate ones
        return None
    is_usable = len(a) >= MINIMAL and F is not None and F.shape == (3, 3) and np.isfinite(F).all() and F.any()
    return F if is_usable else None


def _refined(F: np.ndarray, a: np.ndarray, b: np.ndarray, sigma: np.ndarray) -> np.ndarray:
    """Refine the seven parameters of F on (M, 3) homogeneous points."""
    U, values, Vt = np.linalg.svd(F)
    axes = [essential_matrix(np.eye(3), axis) for axis in np.eye(3)]

    def derivatives(factors: Factors) -> tuple[np.ndarray, np.ndarray]:
        U, V, s = factors
        S = np.diag([1, s, 0])
        D = [U @ W @ S @ V.T for W in axes] + [U @ S @ W.T @ V.T for W in axes] + [np.outer(U[:, 1], V[:, 1])]
        return sampson_derivatives(_product(factors), a, b, np.stack(D))

    def moved(factors: Factors, step: np.ndarray) -> Factors:
        U, V, s = factors
        turns = [need_opencv().Rodrigues(part)[0] for part in (step[:3], step[3:6])]
        return U @ turns[0], V @ turns[1], s + float(step[6])

    start = U * np.linalg.det(U), Vt.T * np.linalg.det(Vt), float(values[1] / values[0])
    return _product(minimise_sampson(start, derivatives, moved, sigma))


def _product(factors: Factors) -> np.ndarray:
    U, V, s = factors
    return np.asarray(U @ np.diag([1, s, 0]) @ V.T)
