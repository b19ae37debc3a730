"""The relative pose of two calibrated cameras from matches: MAGSAC++, or several hypotheses refined and compared."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, TypeVar, get_args

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.two_view import CONFIDENCE, ITERATIONS, essential_matrix, fit_magsac
from matchkernel.storage.extras import need_opencv

Estimator = Literal["refined", "magsac"]
State = TypeVar("State")

MINIMAL = 5  # matches that determine an essential matrix
LIMIT = 2.0  # error of an outlier / expected error of a right match
PLANE, PLANE_ITERATIONS = 2.0, 2000  # error of an outlier of a homography / that of an outlier of a pose
FARTHEST = 1e6  # baselines; points farther away do not determine which of the four poses is right
STEPS, CONVERGED = 20, 1e-5  # of a refinement: maximum number, and relative decrease of the cost at which it ends
DAMPING, MOST_DAMPING, LEAST_DAMPING = 1e-3, 1e3, 1e-8  # of Levenberg-Marquardt
SCALE_BIN, ANGLE_BINS = 0.31, 18  # of the histogram of relative scales (natural logarithm) and relative rotations
FLAT = 1e-9  # length of t / distance of the plane: a camera that only turned
FEWEST = 15  # matches that a hypothesis from a part of the matches needs


@dataclass(frozen=True)
class Pose:
    """A relative pose: x_B = R x_A + t.

    Attributes:
        R: (3, 3).
        t: (3,) of length 1.
        inliers: (M,) bool, matches that agree with it.
    """

    R: np.ndarray
    t: np.ndarray
    inliers: np.ndarray


def estimate_pose(
    rays_a: np.ndarray,
    rays_b: np.ndarray,
    noise: float,
    *,
    estimator: Estimator = "refined",
    ratios: np.ndarray | None = None,
    frames: tuple[Frames, Frames] | None = None,
) -> Pose | None:
    """Estimate the relative pose of two cameras from matches, some of which are wrong.

    "magsac" takes the essential matrix of OpenCV's MAGSAC++. "refined" compares several hypotheses: those of OpenCV's
    RANSAC with local optimisation on all matches, on the better half according to `ratios`, and on matches whose frames
    agree on a change of scale and a rotation; and those of a homography. Each is refined on all matches, and the one
    with the lowest truncated Sampson errors is taken; matches behind a camera count as wrong.

    Args:
        rays_a: (M, 2) x / z and y / z in camera A; matches with a coordinate that is not finite are ignored.
        rays_b: (M, 2) their matches in camera B.
        noise: expected error of right matches in the unit of the rays, such as 0.5 px / focal length.
        estimator: how.
        ratios: (M,) of the matches, or another number that is smaller for better matches (default: not known).
        frames: of the M keypoints of A and of B (default: not known). A keypoint of a large region is less accurate.

    Returns:
        None if the matches do not determine a pose.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.epipolar import estimate_pose
        >>> random = np.random.default_rng(0)
        >>> points = random.uniform(-1, 1, (50, 3)) + [0, 0, 4]
        >>> moved = points + [0.5, 0, 0]
        >>> pose = estimate_pose(points[:, :2] / points[:, 2:], moved[:, :2] / moved[:, 2:], 1e-3)
        >>> np.abs(pose.t).round(3).tolist(), int(pose.inliers.sum())
        ([1.0, 0.0, 0.0], 50)
    """
    a, b = np.asarray(rays_a, np.float64), np.asarray(rays_b, np.float64)
    _check(a, b, noise, estimator, ratios, frames)
    usable = np.isfinite(np.concatenate([a, b], 1)).all(1)
    if usable.sum() < MINIMAL:
        return None
    a, b = np.ascontiguousarray(a[usable]), np.ascontiguousarray(b[usable])
    if estimator == "magsac":
        found = _magsac_pose(a, b, noise)
    else:
        ranks = np.zeros(len(a)) if ratios is None else np.asarray(ratios, np.float64)[usable]
        pairs = None if frames is None or not have_sizes(*frames) else (frames[0][usable], frames[1][usable])
        found = _refined_pose(a, b, noise, ranks, pairs)
    if found is None:
        return None
    inliers = np.zeros(len(usable), bool)
    inliers[usable] = found.inliers
    return replace(found, inliers=inliers)


def _magsac_pose(a: np.ndarray, b: np.ndarray, noise: float) -> Pose | None:
    found = fit_magsac("essential", a, b, noise)
    pose = None if found is None else decompose_essential(*found, a, b)
    return None if found is None or pose is None else Pose(*pose, found[1])


def _refined_pose(
    rays_a: np.ndarray, rays_b: np.ndarray, noise: float, ratios: np.ndarray, frames: tuple[Frames, Frames] | None
) -> Pose | None:
    """Of refined hypotheses the one with the smallest sum of losses; None if there are none."""
    a, b = (np.column_stack([rays, np.ones(len(rays))]) for rays in (rays_a, rays_b))
    sigma = LIMIT * noise * (np.ones(len(a)) if frames is None else relative_errors(*frames))
    starts = [*_hypotheses(rays_a, rays_b, LIMIT * noise, ratios, frames), *_of_a_plane(rays_a, rays_b, noise)]
    poses = [refine_pose(R, t, a, b, sigma) for R, t in starts]
    if not poses:
        return None
    errors = [losses(R, t, a, b, sigma) for R, t in poses]
    best = int(np.argmin([one.sum() for one in errors]))
    return Pose(*poses[best], errors[best] < 1)


def refine_pose(
    R: np.ndarray, t: np.ndarray, a: np.ndarray, b: np.ndarray, sigma: float | np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Minimise the sum of e^2 / (e^2 + sigma^2), e being the Sampson errors, by Levenberg-Marquardt.

    Args:
        R: (3, 3) to start from.
        t: (3,) of length 1.
        a: (M, 3) homogeneous rays in camera A.
        b: (M, 3) their matches in camera B.
        sigma: error at which the loss (Geman-McClure) is half its maximum; of all matches, or (M,) of each.

    Returns:
        R and t with a sum that is no larger.
    """
    return minimise_sampson(
        (R, t), lambda pose: _pose_derivatives(*pose, a, b), lambda pose, step: _moved(*pose, step), sigma
    )


def minimise_sampson(
    start: State,
    derivatives: Callable[[State], tuple[np.ndarray, np.ndarray]],
    moved: Callable[[State, np.ndarray], State],
    sigma: float | np.ndarray,
) -> State:
    """Minimise the sum of e^2 / (e^2 + sigma^2) by Levenberg-Marquardt.

    Args:
        start: parameters.
        derivatives: of parameters, (M,) errors e and (M, N) their derivatives by a step.
        moved: parameters after a step (N,).
        sigma: error at which the loss (Geman-McClure) is half its maximum; of all matches, or (M,) of each.
    """
    state, damping = start, DAMPING
    e, J = derivatives(state)
    precision = np.broadcast_to(1 / np.square(sigma), len(e))
    cost = _geman_mcclure(e, precision)
    for _ in range(STEPS):
        weighted = J * (precision / (1 + e**2 * precision) ** 2)[:, None]
        H = weighted.T @ J
        try:
            step = -np.linalg.solve(H + damping * np.diag(np.diag(H) + 1e-12), weighted.T @ e)
        except np.linalg.LinAlgError:
            break
        new_state = moved(state, step)
        new_e, new_J = derivatives(new_state)
        new_cost = _geman_mcclure(new_e, precision)
        if new_cost < cost:
            is_done = cost - new_cost < CONVERGED * cost
            state, e, J, cost = new_state, new_e, new_J, new_cost
            damping = max(damping / 10, LEAST_DAMPING)
            if is_done:
                break
        elif (damping := damping * 10) > MOST_DAMPING:
            break
    return state


def losses(R: np.ndarray, t: np.ndarray, a: np.ndarray, b: np.ndarray, sigma: float | np.ndarray) -> np.ndarray:
    """(M,) squared Sampson errors / sigma^2, at most 1; 1 for matches whose point lies behind a camera."""
    e = sampson_derivatives(essential_matrix(R, t), a, b)[0]
    turned = a @ R.T
    # The depths z_a, z_b of the point nearest to both rays, z_b b = z_a R a + t, times a positive number.
    aa, bb, ab = (turned**2).sum(1), (b**2).sum(1), (turned * b).sum(1)
    z_a, z_b = ab * (b @ t) - bb * (turned @ t), aa * (b @ t) - ab * (turned @ t)
    return np.where((z_a > 0) & (z_b > 0), np.minimum((e / sigma) ** 2, 1), 1.0)


def relative_errors(a: Frames, b: Frames) -> np.ndarray:
    """(M,) expected errors of matches, of median 1: sqrt(1 + s^2) of the size s of both regions / the median size."""
    sizes = np.sqrt(a.half_widths * b.half_widths)
    errors = np.hypot(1, sizes / np.median(sizes))
    return np.asarray(errors / np.median(errors))


def agreeing_frames(a: Frames, b: Frames) -> np.ndarray:
    """(M,) bool: matches near the most frequent change of scale and rotation from frames of A to those of B."""
    scales = np.floor(np.log(b.half_widths / a.half_widths) / SCALE_BIN).astype(int)
    angles = np.floor((b.angles - a.angles) % (2 * np.pi) / (2 * np.pi) * ANGLE_BINS).astype(int) % ANGLE_BINS
    scales -= scales.min() - 1  # a row without matches before and after them
    counts = np.zeros((scales.max() + 2, ANGLE_BINS))
    np.add.at(counts, (scales, angles), 1)
    turns = counts + np.roll(counts, 1, 1) + np.roll(counts, -1, 1)
    around = turns + np.roll(turns, 1, 0) + np.roll(turns, -1, 0)
    scale, angle = np.unravel_index(around.argmax(), around.shape)
    return (np.abs(scales - scale) <= 1) & ((angles - angle + 1) % ANGLE_BINS <= 2)


def have_sizes(*frames: Frames) -> bool:
    """Whether all regions are finite and have an area."""
    return all(np.isfinite(one.shapes).all() and (one.half_widths > 0).all() for one in frames)


def _check(
    a: np.ndarray,
    b: np.ndarray,
    noise: float,
    estimator: str,
    ratios: np.ndarray | None,
    frames: tuple[Frames, Frames] | None,
) -> None:
    if a.ndim != 2 or a.shape[1] != 2 or a.shape != b.shape:
        raise ArgumentError(f"matches must be two arrays of (M, 2) rays, got {a.shape} and {b.shape}")
    if not 0 < noise < np.inf:
        raise ArgumentError(f"the expected error of matches must be positive and finite, got {noise!r}")
    if estimator not in get_args(Estimator):
        raise ArgumentError(f"no estimator {estimator!r}; there are {', '.join(get_args(Estimator))}")
    if ratios is not None and np.shape(ratios) != (len(a),):
        raise ArgumentError(f"{len(a)} matches need {len(a)} ratios, got shape {np.shape(ratios)}")
    if frames is not None and (len(frames[0]) != len(a) or len(frames[1]) != len(a)):
        raise ArgumentError(f"{len(a)} matches need {len(a)} frames, got {len(frames[0])} and {len(frames[1])}")


def _hypotheses(
    a: np.ndarray, b: np.ndarray, threshold: float, ratios: np.ndarray, frames: tuple[Frames, Frames] | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Poses R, t of OpenCV's RANSAC on all matches and on parts of them."""
    parts = [np.arange(len(a)), np.argsort(ratios, kind="stable")[: max(len(a) // 2, 2 * FEWEST)]]
    if frames is not None and not (agree := agreeing_frames(*frames)).all():
        parts.append(np.flatnonzero(agree))
    for part in parts:
        found = _ransac(a[part], b[part], threshold) if len(part) >= MINIMAL else None
        pose = None if found is None else decompose_essential(*found, a[part], b[part])
        if pose is not None:
            yield pose


def _of_a_plane(a: np.ndarray, b: np.ndarray, noise: float) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Poses R, t of the homography of a plane, if many matches lie on one: an essential matrix is uncertain then."""
    unit = 1 / noise  # OpenCV's MAGSAC++ finds no homography of points whose unit is much larger than a pixel
    found = fit_magsac("homography", a * unit, b * unit, PLANE * LIMIT, PLANE_ITERATIONS) if len(a) >= 4 else None
    if found is None:
        return
    _, rotations, translations, _ = need_opencv().decomposeHomographyMat(found[0], np.diag([unit, unit, 1]))
    for R, t in zip(rotations, translations, strict=True):
        length = np.linalg.norm(t)
        if np.isfinite(R).all() and np.linalg.det(R) > 0 and FLAT < length < np.inf:
            yield R, t.ravel() / length


def _ransac(a: np.ndarray, b: np.ndarray, threshold: float) -> tuple[np.ndarray, np.ndarray] | None:
    """An essential matrix and its inliers by OpenCV's RANSAC with graph-cut local optimisation; None if it fails."""
    cv2 = need_opencv()
    try:
        E, mask = cv2.findEssentialMat(a, b, np.eye(3), cv2.USAC_ACCURATE, CONFIDENCE, threshold, ITERATIONS)
    except cv2.error:  # its solvers fail on degenerate matches
        return None
    return None if E is None or mask is None or E.shape != (3, 3) else (E, mask.ravel() > 0)


def decompose_essential(
    E: np.ndarray, inliers: np.ndarray, a: np.ndarray, b: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Of the four poses R, t of E the one with the most inliers in front of both cameras; None if there are none."""
    cv2 = need_opencv()
    try:
        count, R, t, *_ = cv2.recoverPose(E, a[inliers], b[inliers], np.eye(3), FARTHEST)
    except cv2.error:
        return None
    return (R, t.ravel()) if count and np.isfinite(R).all() and np.isfinite(t).all() else None


def _pose_derivatives(R: np.ndarray, t: np.ndarray, a: np.ndarray, b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M,) signed Sampson errors, and (M, 5) their derivatives by the step of _moved."""
    E = essential_matrix(R, t)
    # dE of a turn about each axis, then of t in each direction of its tangent plane.
    D = np.stack(
        [E @ essential_matrix(np.eye(3), axis) for axis in np.eye(3)] + [essential_matrix(R, u) for u in _tangents(t)]
    )
    return sampson_derivatives(E, a, b, D)


def sampson_derivatives(
    E: np.ndarray, a: np.ndarray, b: np.ndarray, D: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """(M,) signed Sampson errors of (M, 3) homogeneous points, and (M, N) their derivatives if E moves along D.

    Args:
        E: (3, 3) essential or fundamental matrix.
        a: points of A.
        b: their matches in B.
        D: (N, 3, 3) directions (default: none).
    """
    lines_b, lines_a = a @ E.T, b @ E
    scale = 1 / np.sqrt(np.maximum((lines_b[:, :2] ** 2).sum(1) + (lines_a[:, :2] ** 2).sum(1), 1e-30))
    e = (b * lines_b).sum(1) * scale
    if D is None:
        return e, np.empty((len(e), 0))
    N = len(D)
    Da = (a @ D.reshape(3 * N, 3).T).reshape(-1, N, 3)
    Db = (b @ D.transpose(1, 0, 2).reshape(3, 3 * N)).reshape(-1, N, 3)
    gradients = (Da[:, :, :2] @ lines_b[:, :2, None] + Db[:, :, :2] @ lines_a[:, :2, None])[:, :, 0]
    return e, ((Da @ b[:, :, None])[:, :, 0] - (e * scale)[:, None] * gradients) * scale[:, None]


def _moved(R: np.ndarray, t: np.ndarray, step: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """R exp([w]x) and t + u, of length 1 again: w are the first three numbers, the others u in the tangent plane."""
    angle, W = float(np.linalg.norm(step[:3])), essential_matrix(np.eye(3), step[:3])
    turn = np.eye(3) + np.sinc(angle / np.pi) * W + np.sinc(angle / 2 / np.pi) ** 2 / 2 * W @ W
    moved = t + step[3:] @ _tangents(t)
    return R @ turn, moved / np.linalg.norm(moved)


def _tangents(t: np.ndarray) -> np.ndarray:
    """(2, 3) two directions at right angles to t and to each other."""
    u = np.cross(t, np.eye(3)[np.abs(t).argmin()])
    u /= np.linalg.norm(u)
    return np.stack([u, np.cross(t, u)])


def _geman_mcclure(e: np.ndarray, precision: np.ndarray) -> float:
    squares = e**2 * precision
    return float((squares / (1 + squares)).sum())
