"""Match again with a geometry at hand: only keypoints that agree with it are compared, so more of them can be told."""

from collections.abc import Iterator

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.epipolar import within_sampson_distance
from matchkernel.geometry.homography import warp_points
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.filters import THRESHOLD, Filter, as_filter
from matchkernel.photos.verify import INLIER_PIXELS, NAMES, Model, check_pixels

PAIRS_AT_A_TIME = 2**20  # of keypoints, whose errors are held at once
ROWS_AT_A_TIME = 2**15  # of descriptors: 32 MiB in double precision


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
    """
    if geometry not in NAMES:
        raise ArgumentError(f"geometry must be homography or fundamental, got {geometry!r}")
    check_pixels(pixels)
    best_a, best_b = _Best(len(a)), _Best(len(b))
    for i, j in _agreeing_pairs(a, b, np.asarray(model, np.float64), geometry, pixels):
        squares = _squared_distances(a.descriptors, b.descriptors, i, j)
        best_a.offer(i, j, squares)
        best_b.offer(j, i, squares)
    rows = np.flatnonzero(best_a.index >= 0)
    rows = rows[best_b.index[best_a.index[rows]] == rows]
    partners = best_a.index[rows]
    ratios = np.maximum(best_a.ratios()[rows], best_b.ratios()[partners])
    found = Matches(np.column_stack([rows, partners]), np.sqrt(best_a.nearest[rows]), ratios)
    if filter is None:
        filter = "both" if any(side.settings.get(THRESHOLD) is not None for side in (a, b)) else "ratio"  # noqa: A001
    kept = as_filter(filter).keep(found, a, b)
    if first is not None:
        kept |= np.isin(_numbers(found.indices, len(b)), _numbers(first.indices, len(b)))
    return found[kept]


class _Best:
    """The nearest partner of each row so far, and the two smallest squared distances; the lowest index among ties."""

    def __init__(self, count: int) -> None:
        self.index = np.full(count, -1)
        self.nearest = np.full(count, np.inf)
        self.second = np.full(count, np.inf)

    def offer(self, rows: np.ndarray, partners: np.ndarray, squares: np.ndarray) -> None:
        """Take in pairs, each of which is offered once."""
        order = np.lexsort((partners, squares, rows))
        rows, partners, squares = rows[order], partners[order], squares[order]
        is_first = np.r_[True, rows[1:] != rows[:-1]] if len(rows) else np.zeros(0, bool)
        starts = np.flatnonzero(is_first)
        has_next = starts + 1 < np.r_[starts[1:], len(rows)]
        own = rows[starts]
        here, after = squares[starts], np.full(len(starts), np.inf)
        after[has_next] = squares[starts[has_next] + 1]
        old, old_index = self.nearest[own], self.index[own]
        is_better = (here < old) | ((here == old) & (partners[starts] < old_index)) | (old_index < 0)
        self.second[own] = np.minimum(np.minimum(self.second[own], after), np.maximum(here, old))
        self.nearest[own] = np.minimum(here, old)
        self.index[own] = np.where(is_better, partners[starts], old_index)

    def ratios(self) -> np.ndarray:
        """Of nearest to second-nearest distance, as `match` gives them: 0 if there is no second, 1 if both are 0."""
        with np.errstate(invalid="ignore"):
            return np.where(self.second > 0, np.sqrt(self.nearest) / np.sqrt(self.second), 1.0)


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
            agrees = _squared(mapped[part], points_b) <= pixels**2
        else:
            agrees = within_sampson_distance(model, points_a[part], points_b, pixels)
        i, j = np.nonzero(agrees)
        for first in range(0, len(i), ROWS_AT_A_TIME):
            some = slice(first, first + ROWS_AT_A_TIME)
            yield used_a[part][i[some]], used_b[j[some]]


def _squared(mapped: np.ndarray, points: np.ndarray) -> np.ndarray:
    """(K, L) squared distances of points in the plane."""
    return (mapped[:, None, 0] - points[None, :, 0]) ** 2 + (mapped[:, None, 1] - points[None, :, 1]) ** 2


def _squared_distances(rows_a: np.ndarray, rows_b: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
    difference = rows_a[i].astype(np.float64) - rows_b[j].astype(np.float64)
    return np.einsum("kd,kd->k", difference, difference)


def _numbers(indices: np.ndarray, count: int) -> np.ndarray:
    """One number for each pair of indices."""
    return indices[:, 0] * count + indices[:, 1]
