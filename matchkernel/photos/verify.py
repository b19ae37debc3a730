"""Find the matches that agree on a homography or a fundamental matrix, and whether that can be chance.

Models are fitted by OpenCV's MAGSAC++. With geometry "auto" the homography is taken unless matches off its plane lie
together and agree on an epipolar geometry: then the scene has depth and the fundamental matrix is taken. When all is
decided, a fundamental matrix is refined (geometry.fundamental).

How surprising is it that so many matches agree on a model? The a-contrario test of Moisan and Stival: suppose that the
matches mean nothing: each point of image A is paired with a point of B by chance. Then a pair agrees with a given model
with a probability p. Of n matches, k agree with one of the models that can be fitted to them. The expected number of
models that have such support by chance, the number of false alarms, is at most

    (n - m) C(n, k) C(k, m) s p^(k - m),

where m matches determine s models. We report -log10 of it: a significance of 3 means that among a thousand pairs of
unrelated photos one such model is expected.
"""

from dataclasses import dataclass, replace
from functools import partial
from math import lgamma, log, pi
from numbers import Real
from typing import Literal, get_args

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.fundamental import refined_fundamental
from matchkernel.geometry.two_view import (
    ITERATIONS,
    check_homography,
    fit_magsac,
    sampson_distances,
    warp_frames,
    warp_points,
    within_sampson_distance,
)
from matchkernel.storage.work import in_threads, spare_threads

Model = Literal["homography", "fundamental"]
Geometry = Literal["auto", "homography", "fundamental"]

MIN_MATCHES = {"homography": 4, "fundamental": 8}  # number of distinct matches that a model needs
MINIMAL = {"homography": (4, 1), "fundamental": (7, 3)}  # matches that determine models, and how many models
NAMES = {"homography": "homography", "fundamental": "fundamental matrix"}
INLIER_PIXELS, MAX_PIXELS = 3.0, 100_000  # pixels
NOISE = 1 / 6  # expected error of right matches / maximum error of an inlier, for the refinement: 0.5 px of 3 px
FLAT = 1e-3  # points on a line: their spread across it is below this share of their spread along it
SIGNIFICANT = 2.0  # that a model needs: less than one false alarm in a hundred pairs of photos, see docs/match.md
MAX_SCALE, MAX_STRETCH = 30.0, 30.0  # of a homography at an inlier: change of size, and of one direction to another
STRICTER = (1.0, 0.5, 0.25)  # shares of the threshold at which support is counted; the most surprising one counts
NEAR = 5.0  # inaccurate matches of a plane may be this many times as far off as inliers
FEW = 0.1  # matches off the plane / on it: wrong ones from one repetition of a pattern to another are fewer
VOTERS = 5  # matches around one off the plane, which decide whether it is a wrong match on the plane
MAX_VOTERS = 4000  # in an image; of more, some are taken
MAX_POINTS = (200, 1000)  # points of A and of B between which the probability of chance is counted
NOT_THE_SAME = "these photos do not seem to show the same thing"


@dataclass(frozen=True)
class Verification:
    """The geometry that M matches agree on.

    Attributes:
        geometry: of the model: "homography" or "fundamental"; with "auto" None if there is no model.
        model: (3, 3) float64, or None if no model has more support than chance gives. A homography maps image A to
            image B; a fundamental matrix F satisfies x_B^T F x_A = 0. Coordinates: the centre of the top-left pixel is
            (0, 0).
        inliers: (M,) bool.
        errors: (M,) float64 pixels: distance in B from the mapped point of A, or Sampson distance; infinite if there
            is no model.
        significance: -log10 of how many models with such support are expected by chance; of the best one that was
            found, or None if none could be fitted.
        reason: why this geometry, or why none, in words.
    """

    geometry: Model | None
    model: np.ndarray | None
    inliers: np.ndarray
    errors: np.ndarray
    significance: float | None
    reason: str


def verify(
    points_a: np.ndarray,
    points_b: np.ndarray,
    geometry: Geometry = "auto",
    *,
    threshold: float = INLIER_PIXELS,
    iterations: int = ITERATIONS,
    size_b: tuple[int, int] | None = None,
    ratios: np.ndarray | None = None,
    frames: tuple[Frames, Frames] | None = None,
) -> Verification:
    """Fit a model to matches and find its inliers; the same matches always give the same answer.

    If there are too few different matches, if they lie on one line, or if as many would agree by chance, there is no
    model and there are no inliers.

    Args:
        points_a: (M, 2) x, y in image A.
        points_b: (M, 2) their matches in image B.
        geometry: what to fit; "auto" for a homography or a fundamental matrix, whichever the matches call for.
        threshold: maximum error of an inlier in pixels.
        iterations: maximum number of iterations.
        size_b: width and height of image B (default: the extent of its points), for the probability of chance.
        ratios: (M,) of the matches, and
        frames: of their keypoints in A and in B, for the refinement of a fundamental matrix (default: not known).

    Example:
        >>> import numpy as np
        >>> from matchkernel import verify
        >>> points = np.random.default_rng(0).uniform(0, 300, (50, 2))
        >>> found = verify(points, points + [20, 10])
        >>> found.geometry, int(found.inliers.sum())
        ('homography', 50)
    """
    if geometry not in get_args(Geometry):
        raise ArgumentError(f"geometry must be one of {', '.join(get_args(Geometry))}, got {geometry!r}")
    check_pixels(threshold)
    if iterations < 1:
        raise ArgumentError(f"iterations must be 1 or more, got {iterations}")
    a, b = _points(points_a, points_b)
    for what, given in (
        ("ratios", ratios),
        ("frames of A", frames and frames[0]),
        ("frames of B", frames and frames[1]),
    ):
        if given is not None and len(given) != len(a):
            raise ArgumentError(f"{len(a)} matches need as many {what}, got {len(given)}")
    size = _extent(b) if size_b is None else (float(size_b[0]), float(size_b[1]))
    fit = partial(_verified, a, b, size=size, threshold=threshold, iterations=iterations)
    refined = partial(_refined, a=a, b=b, threshold=threshold, ratios=ratios, frames=frames)
    if geometry != "auto":
        return refined(fit(geometry))
    plane, depth = in_threads(fit, get_args(Model), min(2, spare_threads()))
    if plane.model is None and depth.model is None:
        best = max(plane, depth, key=lambda found: -np.inf if found.significance is None else found.significance)
        return replace(best, geometry=None)
    if plane.model is None:
        return replace(refined(depth), reason="only an epipolar geometry explains the matches: a scene in depth")
    if depth.model is None:
        return replace(plane, reason="only a homography explains the matches")
    off, beyond_chance = _off_the_plane(a, b, plane, depth, threshold, size)
    if beyond_chance >= SIGNIFICANT:
        reason = f"{off:,} matches off a plane agree on an epipolar geometry: a scene in depth"
        return replace(refined(depth), reason=reason)
    return replace(plane, reason="no sign of depth: a flat scene, or a camera that only turned")


def _refined(
    found: Verification,
    a: np.ndarray,
    b: np.ndarray,
    threshold: float,
    ratios: np.ndarray | None,
    frames: tuple[Frames, Frames] | None,
) -> Verification:
    """A better fundamental matrix, and its inliers; whether there is one was decided before, and its significance."""
    if found.model is None or found.geometry != "fundamental":
        return found
    F = refined_fundamental(found.model, a, b, NOISE * threshold, ratios=ratios, frames=frames)
    errors = ERRORS["fundamental"](F, a, b)
    inliers = errors <= threshold
    if not _determine(a[inliers], b[inliers], "fundamental"):
        return found
    return replace(found, model=F, errors=errors, inliers=inliers)


def check_pixels(threshold: float) -> None:
    """Refuse a maximum inlier error that is not positive, or larger than any image."""
    if not isinstance(threshold, Real) or not 0 < float(threshold) <= MAX_PIXELS:
        raise ArgumentError(
            f"the maximum error of an inlier must be above 0 and at most {MAX_PIXELS:,} pixels, got {threshold!r}"
        )


def transfer_errors(H: np.ndarray, points_a: np.ndarray, points_b: np.ndarray) -> np.ndarray:
    """(M,) distance in image B of H x_A from x_B; infinite on and behind the horizon."""
    mapped, in_front = warp_points(H, points_a)
    return np.where(in_front, np.linalg.norm(mapped - points_b, axis=1), np.inf)


ERRORS = {"homography": transfer_errors, "fundamental": sampson_distances}


def within_transfer_error(H: np.ndarray, points_a: np.ndarray, points_b: np.ndarray, pixels: float) -> np.ndarray:
    """(K, L) bool: whether the transfer error of a point of A and a point of B is at most `pixels`."""
    return _squared_distances(warp_points(H, points_a)[0], points_b) <= pixels**2  # False for NaN: not visible


WITHIN = {"homography": within_transfer_error, "fundamental": within_sampson_distance}


def _verified(
    a: np.ndarray, b: np.ndarray, geometry: Model, *, size: tuple[float, float], threshold: float, iterations: int
) -> Verification:
    """One kind of model, if the matches determine one and chance does not explain its support."""
    nothing = Verification(geometry, None, np.zeros(len(a), bool), np.full(len(a), np.inf), None, "")
    if not _determine(a, b, geometry):
        return replace(nothing, reason=f"too few different matches for a {NAMES[geometry]}, or all on a line")
    model = _fit(a, b, geometry, threshold, iterations)
    errors = nothing.errors if model is None else ERRORS[geometry](model, a, b)
    inliers = errors <= threshold
    if model is None or not _determine(a[inliers], b[inliers], geometry):
        return replace(nothing, reason=f"no {NAMES[geometry]} fits the matches")
    if geometry == "homography" and _distorts(model, a[inliers]):
        return replace(nothing, reason="the best homography distorts too much to be one of two photos")
    found = Verification(geometry, model, inliers, errors, None, "as asked for")
    significance = _significance(a, b, found, threshold, size)
    if significance < SIGNIFICANT:
        support = f"{int(inliers.sum()):,} of {len(a):,} matches agree on a {NAMES[geometry]}"
        return replace(nothing, significance=significance, reason=f"{support}, as many as chance can give")
    return replace(found, significance=significance)


def _determine(a: np.ndarray, b: np.ndarray, geometry: Model) -> bool:
    """Whether there are enough distinct matches that do not lie on one line in either image."""
    distinct_rows = np.unique(np.round(np.concatenate([a, b], 1), 3), axis=0)
    if len(distinct_rows) < MIN_MATCHES[geometry]:
        return False
    for points in (np.unique(distinct_rows[:, :2], axis=0), np.unique(distinct_rows[:, 2:], axis=0)):
        spread = np.linalg.svd(points - points.mean(0), compute_uv=False)
        if len(points) < MIN_MATCHES[geometry] or spread[1] <= FLAT * spread[0]:
            return False
    return True


def _fit(a: np.ndarray, b: np.ndarray, geometry: Model, threshold: float, iterations: int) -> np.ndarray | None:
    found = fit_magsac(geometry, a, b, threshold, iterations)
    if found is None:
        return None
    if geometry == "fundamental":
        return found[0] / np.linalg.norm(found[0])
    try:
        H = check_homography(found[0])
    except ArgumentError:  # singular
        return None
    return H / H[2, 2] if abs(H[2, 2]) > 1e-12 else H


def _distorts(H: np.ndarray, points: np.ndarray) -> bool:
    """Whether H, at some of these points, mirrors the image or distorts it more than two photos of a plane can."""
    squares = Frames.turned_squares(points, np.ones(len(points)), np.zeros(len(points)))
    shapes = warp_frames(H, squares)[0].shapes
    stretches = np.linalg.svd(shapes, compute_uv=False)
    scale = np.sqrt(stretches.prod(1))
    is_mirrored = (np.linalg.det(shapes) <= 0).any()
    return bool(
        is_mirrored
        or scale.max() > MAX_SCALE
        or scale.min() < 1 / MAX_SCALE
        or (stretches[:, 0] > MAX_STRETCH * stretches[:, 1]).any()
    )


def _significance(
    a: np.ndarray, b: np.ndarray, found: Verification, threshold: float, size: tuple[float, float]
) -> float:
    """The significance of a model, at the threshold or at a stricter one."""
    assert found.geometry is not None
    minimal, models = MINIMAL[found.geometry]
    values = []
    for limit in (share * threshold for share in STRICTER):
        agree = _distinct(found.errors <= limit, a, b, threshold)
        others = _distinct(found.errors > limit, a, b, threshold)
        n, k = int((agree | others).sum()), int(agree.sum())
        if k <= minimal:  # nothing agrees beyond the minimal set
            values.append(-_log10_tests(max(n, minimal), minimal, minimal, models * len(STRICTER)))
            continue
        log10_chance = float(np.log10(_chance(found, a[agree], b[agree], limit, size)))
        values.append(-_log10_tests(n, k, minimal, models * len(STRICTER)) - (k - minimal) * log10_chance)
    return max(values)


def _off_the_plane(
    a: np.ndarray, b: np.ndarray, plane: Verification, depth: Verification, threshold: float, size: tuple[float, float]
) -> tuple[int, float]:
    """How many matches off the plane lie on their epipolar lines, and the significance of that.

    With the homography given, two matches off its plane determine the epipolar geometry. Those far off may be wrong
    matches, which lie on their lines by chance. Those near it may be inaccurate matches of the plane: r pixels off in
    any direction, they lie on their lines, of half width w, with probability 2/pi asin(w / r).

    Where a pattern repeats, wrong matches are no chance: they go from one repetition to another, in few directions,
    and those of one direction agree on an epipolar geometry. But they are scattered among right matches on the plane,
    while points off the plane lie beside each other. So if the matches that agree are few and most of them scattered,
    only those count that others off the plane surround.
    """
    off = 2**0.5 * threshold  # in B, of a Sampson distance in both images
    is_far, is_near = plane.errors > NEAR * off, (plane.errors > off) & (plane.errors <= NEAR * off)
    on_the_plane = _distinct(plane.inliers, a, b, threshold)
    found = [0.0]
    for limit in (share * threshold for share in STRICTER):
        agree = _distinct((is_far | is_near) & (depth.errors <= limit), a, b, threshold)
        others = _distinct((is_far | is_near) & (depth.errors > limit), a, b, threshold)
        if agree.sum() < FEW * on_the_plane.sum():
            together = _lie_together(a, agree, on_the_plane)
            agree = together if together.sum() < agree.sum() / 2 else agree
        far = is_far & agree
        line = _chance(depth, a[far], b[far], limit, size) if far.any() else _chance_by_area(depth, limit, size)
        width = 2**0.5 * limit / np.maximum(plane.errors, off)
        logs = np.log10(np.where(is_far, line, 2 / np.pi * np.arcsin(np.minimum(1, width))))
        for part in (is_far, is_near, is_far | is_near):
            n, k = int((part & (agree | others)).sum()), int((part & agree).sum())
            if k > 2:
                tests = _log10_tests(n, k, 2, models=3 * len(STRICTER))
                found.append(-tests - float(np.sort(logs[part & agree])[2:].sum()))
    return int(((is_far | is_near) & depth.inliers).sum()), max(found)


def _log10_tests(n: int, k: int, minimal: int, models: int) -> float:
    """log10 of the number of models and supports that are tried: (n - m) s C(n, k) C(k, m)."""
    return log(max(n - minimal, 1) * models) / log(10) + _log10_binomial(n, k) + _log10_binomial(k, minimal)


def _log10_binomial(n: int, k: int) -> float:
    return (lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)) / log(10)


def _chance(
    found: Verification, points_a: np.ndarray, points_b: np.ndarray, pixels: float, size: tuple[float, float]
) -> float:
    """Probability that a point of A and a point of B agree with a model, by area or as counted, whichever is larger.

    Counted is the share of agreeing pairs if the points of A are paired with those of other matches. Keypoints are not
    spread evenly: where a model predicts the places where the points of B crowd (in the extreme, all places in one
    spot), much more agrees by chance than the area says. The points are those of the matches that agree.
    """
    assert found.geometry is not None
    assert found.model is not None
    here, there = (_spread_out(len(points_a), limit) for limit in MAX_POINTS)
    others = _squared_distances(points_b[here], points_b[there]) > (2 * pixels) ** 2
    agree = WITHIN[found.geometry](found.model, points_a[here], points_b[there], pixels)
    counted = float(agree[others].mean()) if others.any() else 1.0
    return max(counted, _chance_by_area(found, pixels, size))


def _chance_by_area(found: Verification, pixels: float, size: tuple[float, float]) -> float:
    """Probability that a point anywhere in image B is as near to its predicted place, or to a line across the image."""
    width, height = size
    if found.geometry == "homography":
        return min(1.0, pi * pixels**2 / (width * height))
    # A Sampson distance of `pixels` allows sqrt 2 times as much in B if both images have the same scale.
    return min(1.0, 2 * 2**0.5 * pixels * float(np.hypot(width, height)) / (width * height))


def _squared_distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(K, L) squared distances between (K, 2) and (L, 2) points."""
    return np.asarray((a[:, :1] - b[:, 0]) ** 2 + (a[:, 1:] - b[:, 1]) ** 2)


def _distinct(chosen: np.ndarray, a: np.ndarray, b: np.ndarray, cell: float) -> np.ndarray:
    """(M,) bool: of the chosen matches, one for each place in A and in B, where a place is a square of side `cell`.

    Keypoints of several scales or directions repeat a match.
    """
    kept = np.zeros(len(a), bool)
    seen_a: set[complex] = set()
    seen_b: set[complex] = set()
    cells = ((np.floor(points[chosen] / cell) @ [1, 1j]).tolist() for points in (a, b))
    for number, place_a, place_b in zip(np.flatnonzero(chosen), *cells, strict=True):
        if place_a not in seen_a and place_b not in seen_b:
            kept[number] = True
            seen_a.add(place_a)
            seen_b.add(place_b)
    return kept


def _lie_together(points: np.ndarray, chosen: np.ndarray, others: np.ndarray) -> np.ndarray:
    """(M,) bool: those of the chosen points most of whose nearest neighbours, of the chosen and the others, are chosen.

    A point can be both, and is chosen then.
    """
    result, voters = np.zeros(len(points), bool), np.flatnonzero(chosen | others)
    voters = voters[_spread_out(len(voters), MAX_VOTERS)]
    if len(voters) <= VOTERS:
        return result
    for one in voters[chosen[voters]]:
        squares = ((points[voters] - points[one]) ** 2).sum(1)
        squares[voters == one] = np.inf
        result[one] = chosen[voters[np.argpartition(squares, VOTERS)[:VOTERS]]].mean() > 0.5
    return result


def _spread_out(count: int, limit: int) -> np.ndarray:
    """At most `limit` of the indices below `count`, evenly spread."""
    return np.arange(count) if count <= limit else np.linspace(0, count - 1, limit).astype(int)


def _extent(points: np.ndarray) -> tuple[float, float]:
    """Width and height of the box around points, at least one pixel each."""
    width, height = np.ptp(points, axis=0) if len(points) else (0, 0)
    return max(1.0, float(width)), max(1.0, float(height))


def _points(points_a: np.ndarray, points_b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    a, b = np.asarray(points_a, np.float64), np.asarray(points_b, np.float64)
    if a.ndim != 2 or a.shape[1] != 2 or a.shape != b.shape:
        raise ArgumentError(f"matches must be two arrays of (M, 2) points, got {a.shape} and {b.shape}")
    is_bad = ~np.isfinite(np.concatenate([a, b], 1)).all(1)
    if is_bad.any():
        raise ArgumentError(f"match {int(is_bad.argmax())} has a coordinate that is not finite")
    return a, b
