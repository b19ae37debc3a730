"""Match again with a known geometry: only keypoints that agree with it are compared, so more matches are decided."""

from collections.abc import Iterator

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.two_view import warp_points, within_sampson_distance
from matchkernel.photos.features import THRESHOLD, Features, Matches
from matchkernel.photos.match import Filter, parse_filter
from matchkernel.photos.nearest import Nearest, exact_distances
from matchkernel.photos.verify import INLIER_PIXELS, NAMES, Model, check_pixels

PAIRS_AT_A_TIME = 2**20  # of keypoints, whose errors are held at once


def guided_matches(
    a: Features,
    b: Features,
    model: np.ndarray,
    geometry: Model,
    *,
    pixels: float = INLIER_PIXELS,
    filter: Filter | str | None = None,  # noqa: A002 - the name of the option
    first: Matches | None = None,
) -> Matches:
    """Mutual nearest neighbours among the pairs of keypoints that agree with a model; exact, in blocks.

    A match of all keypoints that agrees with the model is found again: it has fewer rivals here.

    Args:
        a: features of image A.
        b: features of image B.
        model: (3, 3) homography from A to B, or fundamental matrix.
        geometry: which of the two it is.
        pixels: maximum error of a pair, as in verify.
        filter: test that matches must pass; ratios are those to the second-nearest that agrees. The default is the
            ratio and, if one is recorded with the features, the distance: there may be no second, and a keypoint on the
            right line is not yet the right one.
        first: earlier matches; those that agree with the model are kept even if the filter would drop them.

    Example:
        >>> from matchkernel import match_images
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> from matchkernel.photos.guided import guided_matches
        >>> found = match_images(FOLDER / "left.png", FOLDER / "right.png", "sift", keypoints=500)
        >>> more = guided_matches(*found.features, found.model, found.geometry, first=found.matches)
        >>> bool(len(more) > found.inliers.sum())
        True
    """
    if geometry not in NAMES:
        raise ArgumentError(f"geometry must be homography or fundamental, got {geometry!r}")
    check_pixels(pixels)
    there, back = Nearest(len(a)), Nearest(len(b))
    for i, j in _agreeing_pairs(a, b, np.asarray(model, np.float64), geometry, pixels):
        squares = exact_distances(a.descriptors, b.descriptors, i, j, "l2")
        there.offer(i, j, squares)
        order = np.argsort(j, stable=True)
        back.offer(j[order], i[order], squares[order])
    rows = np.flatnonzero(there.first < np.inf)
    rows = rows[back.index[there.index[rows]] == rows]
    partners = there.index[rows]
    ratios = np.maximum(there.ratios[rows], back.ratios[partners])
    found = Matches(np.column_stack([rows, partners]), np.sqrt(there.first[rows]), ratios)
    if filter is None:
        filter = "both" if any(side.settings.get(THRESHOLD) is not None for side in (a, b)) else "ratio"  # noqa: A001
    kept = parse_filter(filter).keep(found, a, b)
    if first is not None:
        kept |= np.isin(_numbers(found.indices, len(b)), _numbers(first.indices, len(b)))
    return found[kept]


def _agreeing_pairs(
    a: Features, b: Features, model: np.ndarray, geometry: Model, pixels: float
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Indices of pairs that agree with the model, block by block; rows of zeros describe nothing and are left out."""
    used_a, used_b = (np.flatnonzero(side.descriptors.any(1)) for side in (a, b))
    points_a, points_b = a.keypoints[used_a], b.keypoints[used_b]
    step = max(1, PAIRS_AT_A_TIME // max(len(used_b), 1))
    mapped = warp_points(model, points_a)[0] if geometry == "homography" else None  # NaN where not visible
    for start in range(0, len(used_a), step):
        part = slice(start, start + step)
        if mapped is not None:
            dx, dy = (mapped[part, None, axis] - points_b[:, axis] for axis in (0, 1))
            agrees = dx**2 + dy**2 <= pixels**2
        else:
            agrees = within_sampson_distance(model, points_a[part], points_b, pixels)
        i, j = np.nonzero(agrees)
        yield used_a[part][i], used_b[j]


def _numbers(indices: np.ndarray, count: int) -> np.ndarray:
    """One number for each pair of indices."""
    return indices[:, 0] * count + indices[:, 1]
