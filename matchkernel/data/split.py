"""Split the patches of a scene into training, validation and test, so that no photo and no place is in two parts.

Two parallel planes cut the scene into three slabs. A point belongs to the slab that contains its region, a ball around
it; a point whose ball touches a plane is left out, so that regions of two parts never overlap. Every photo belongs to
one part too, and a patch is kept if its photo and its point belong to the same part. The planes are perpendicular to
the principal axis of the points that keeps the most patches; no score of a model influences the choice.

LEAST_PHOTOS and LEAST_POINTS were fixed before anything was measured: with 100 points, the mean of scores from 0 to 1
has a standard error of at most 5 percentage points, and the difference of two models on the same points a fraction of
that.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from matchkernel.data.pairs import PatchPlaces
from matchkernel.errors import ArgumentError

PARTS = ("training", "validation", "test")
SHARES = (0.6, 0.2, 0.2)  # of the patches on each side of the planes, and of the photos
LEAST_PHOTOS = {"training": 3, "validation": 2, "test": 2}
LEAST_POINTS = {"training": 300, "validation": 100, "test": 100}
LEFT_OUT = -1
CORNER = np.sqrt(2)  # from the centre of a square region to its corner, in half widths


@dataclass(frozen=True)
class Counts:
    """How much a part has."""

    photos: int
    points: int
    patches: int

    def __str__(self) -> str:
        return f"{self.photos:,} photos, {self.points:,} points, {self.patches:,} patches"


def split_places(where: PatchPlaces) -> np.ndarray:
    """(K,) the part of each patch, an index of PARTS, or LEFT_OUT."""
    parts = np.full(len(where.labels), LEFT_OUT)
    usable = np.flatnonzero(np.isfinite(where.places).all(1) & np.isfinite(where.sizes))
    if len(usable):
        here = where[usable]
        candidates = [_split_along(here, here.places @ axis) for axis in _axes(here.places)]
        parts[usable] = max(
            candidates, key=lambda found: min((found == k).sum() / SHARES[k] for k in range(len(PARTS)))
        )
    return parts


def count_parts(where: PatchPlaces, parts: np.ndarray) -> dict[str, Counts]:
    """Photos, points and patches of every part."""
    found = {}
    for number, name in enumerate(PARTS):
        here = where[np.flatnonzero(parts == number)]
        found[name] = Counts(len(np.unique(here.photos)), len(np.unique(here.labels)), len(here.labels))
    return found


def check_enough(counts: Mapping[str, Counts], what: str) -> None:
    """Refuse parts that are too small for a reliable comparison, naming the first and what it lacks."""
    for name in PARTS:
        found, photos, points = counts[name], LEAST_PHOTOS[name], LEAST_POINTS[name]
        if found.photos < photos or found.points < points:
            raise ArgumentError(
                f"{what}: too little for a reliable comparison: {name} has {found.photos} photos and {found.points}"
                f" points of its own, {photos} and {points} are needed; take more photos of more places"
            )


def _axes(places: np.ndarray) -> np.ndarray:
    """(3, 3) principal axes of the points as rows, without the influence of the few that lie far away."""
    low, high = np.percentile(places, (5, 95), axis=0)
    inner = places[((places >= low) & (places <= high)).all(1)]
    inner = inner if len(inner) > 3 else places
    scale = max(float(np.abs(inner).max()), np.finfo(float).tiny)
    centred = inner / scale - (inner / scale).mean(0)
    return np.asarray(np.linalg.eigh(centred.T @ centred)[1].T[::-1])


def _split_along(where: PatchPlaces, along: np.ndarray) -> np.ndarray:
    """The part of each patch with planes across this direction: validation, training, test from one end to the other.

    Training lies in the middle, so that validation and test are as far apart as possible.
    """
    training, validation, test = range(len(PARTS))
    lower, upper = np.quantile(along, (SHARES[validation], 1 - SHARES[test]))
    group = np.unique(where.labels, return_inverse=True)[1]
    reach = np.zeros(group.max() + 1)
    np.maximum.at(reach, group, CORNER * np.abs(where.sizes))
    near, far = along - reach[group], along + reach[group]
    places = np.full(len(along), LEFT_OUT)
    places[far < lower] = validation
    places[(near > lower) & (far < upper)] = training
    places[near > upper] = test
    # Rounding may put patches of a point into different slabs; such a point is left out.
    agreed = np.full((len(reach), 2), [len(PARTS), LEFT_OUT])
    np.minimum.at(agreed[:, 0], group, places)
    np.maximum.at(agreed[:, 1], group, places)
    places[agreed[group, 0] != agreed[group, 1]] = LEFT_OUT
    parts = np.where(_photo_parts(where.photos, places) == places, places, LEFT_OUT)
    return _seen_twice(where, parts)


def _photo_parts(photos: np.ndarray, places: np.ndarray) -> np.ndarray:
    """(K,) the part of each patch's photo: test and validation get the photos that show the most of their points."""
    names, number = np.unique(photos, return_inverse=True)
    shown = np.zeros((len(names), len(PARTS)))
    np.add.at(shown, (number[places != LEFT_OUT], places[places != LEFT_OUT]), 1)
    shown /= np.maximum(shown.sum(1, keepdims=True), 1)
    chosen = np.zeros(len(names), np.int64)
    free = np.ones(len(names), bool)
    for part in (2, 1):
        count = max(LEAST_PHOTOS[PARTS[part]], round(SHARES[part] * len(names)))
        ranked = np.lexsort((np.arange(len(names)), -np.where(free, shown[:, part], -1)))[:count]
        ranked = ranked[free[ranked]]
        chosen[ranked] = part
        free[ranked] = False
    return np.asarray(chosen[number])


def _seen_twice(where: PatchPlaces, parts: np.ndarray) -> np.ndarray:
    """Leave out points that fewer than two photos of their part show."""
    result = parts.copy()
    rows = np.flatnonzero(parts != LEFT_OUT)
    group = np.unique(where.labels[rows], return_inverse=True)[1]
    pairs = np.unique(np.column_stack([group, where.photos[rows]]), axis=0)
    seen = np.bincount(pairs[:, 0], minlength=int(group.max(initial=-1)) + 1)
    result[rows[seen[group] < 2]] = LEFT_OUT
    return result
