"""Scores from the rows of pairs that a result keeps: mAA of poses, accuracy of matches and of homographies."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.bootstrap import Estimate, estimate, paired_difference

LIMITS = (5, 10)  # degrees: mAA(5°) and mAA(10°)
CORNER_PIXELS = (1, 3, 5)  # limits of the mean corner error of a homography that is called right
POSES = tuple(f"maa{limit}" for limit in LIMITS)
HOMOGRAPHIES = ("accuracy", *(f"h{pixels}" for pixels in CORNER_PIXELS))
SCORES = {"poses": POSES, "homographies": HOMOGRAPHIES}
COUNTS = {"poses": ("matches", "inliers"), "homographies": ("matches", "right", "inliers")}
ERRORS = {"poses": ("rotation", "direction"), "homographies": ("corners",)}  # per order of the matches; null: infinite


def accuracy(errors: Sequence[float] | np.ndarray, limit: int) -> float:
    """mAA of errors in degrees: the mean over 1, 2, ..., `limit` of the share of errors that are at most so large."""
    errors = np.asarray(errors, np.float64)
    return float(np.mean([(errors <= degrees).mean() for degrees in range(1, limit + 1)])) if len(errors) else 0.0


def errors_of(row: Mapping[str, Any]) -> np.ndarray:
    """Pose errors of a row in degrees, the larger of rotation and direction, one for each order of its matches."""
    both = zip(row["rotation"], row["direction"], strict=True)
    return np.array([np.inf if one is None or two is None else max(one, two) for one, two in both])


def score_of(pairs: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """(P,) a score of each pair from 0 to 1, the mean over orders of its matches."""
    if name in POSES:
        limit = int(name.removeprefix("maa"))
        return np.array([accuracy(errors_of(row), limit) for row in pairs])
    if name == "accuracy":
        return np.array([row["right"] / row["matches"] if row["matches"] else 0.0 for row in pairs])
    pixels = int(name.removeprefix("h"))
    return np.array([np.mean([value is not None and value <= pixels for value in row["corners"]]) for row in pairs])


def scores_by_scene(scenes: Mapping[str, Any], name: str) -> dict[str, np.ndarray]:
    """A score of each pair of the scenes that have it."""
    return {scene: score_of(part["pairs"], name) for scene, part in scenes.items() if name in SCORES[part["kind"]]}


def mean_score(scenes: Mapping[str, Any], name: str) -> Estimate:
    """Mean of a score over scenes."""
    return estimate(scores_by_scene(scenes, name))


def difference(result: Mapping[str, Any], other: Mapping[str, Any], name: str) -> Estimate:
    """The paired difference of two results in a score, over the scenes that have it."""
    mine, theirs = (scores_by_scene(each["scenes"], name) for each in (result, other))
    for scene in mine.keys() & theirs.keys():
        one, two = ([list(row["images"]) for row in each["scenes"][scene]["pairs"]] for each in (result, other))
        if one != two:
            raise ArgumentError(f"{scene}: the two results are of different pairs, and cannot be compared")
    return paired_difference(mine, theirs)


def is_row(row: object, kind: str) -> bool:
    """Whether something is the row of a pair: two names, counts that fit each other, errors of at least one order."""
    if not isinstance(row, Mapping):
        return False
    images, orders = row.get("images"), row.get(ERRORS[kind][0])
    matches, right = row.get("matches"), row.get("right", 0)
    return (
        isinstance(images, list)
        and len(images) == 2
        and all(isinstance(name, str) for name in images)
        and type(matches) is type(right) is int
        and 0 <= right <= matches < 2**31
        and ("right" in row or kind == "poses")
        and isinstance(orders, list)
        and len(orders) > 0
        and all(_are_errors(row.get(key), len(orders)) for key in ERRORS[kind])
    )


def _are_errors(values: object, count: int) -> bool:
    if not isinstance(values, list) or len(values) != count:
        return False
    return all(value is None or (type(value) in (int, float) and 0 <= value < 1e15) for value in values)
