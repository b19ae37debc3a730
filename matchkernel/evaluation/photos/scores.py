"""From the rows of image pairs to scores: mAA of poses, accuracy of matches and of homographies, means over scenes."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scenes import EvaluationScene
from matchkernel.evaluation.uncertainty import Spread, estimate, paired_difference, too_few

POSES = ("maa5", "maa10")
SCORES = {"poses": POSES, "homographies": ("accuracy", "h1", "h3", "h5")}
COUNTS = {"poses": ("matches", "inliers"), "homographies": ("matches", "right", "inliers")}
DISTANCE, RIGHT, RATIO = 0, 1, 2  # columns of matches to calibrate on
RATIOS = (0.75, 0.8, 0.85, 0.9, 0.95)
BEFORE = {"estimator": "magsac"}  # of results that name none


def accuracy(errors: Sequence[float] | np.ndarray, limit: int) -> float:
    """mAA of errors in degrees: the mean over 1, 2, ..., `limit` of the share of errors that are at most so large."""
    errors = np.asarray(errors, np.float64)
    return float(np.mean([(errors <= degrees).mean() for degrees in range(1, limit + 1)])) if len(errors) else 0.0


def errors_of(row: Mapping[str, Any]) -> np.ndarray:
    """Pose errors of a row in degrees, the larger of rotation and direction, one for each order of its matches."""
    both = zip(row["rotation"], row["direction"], strict=True)
    return np.array([np.inf if one is None or two is None else max(one, two) for one, two in both])


def score_of(pairs: Sequence[Mapping[str, Any]], name: str) -> np.ndarray:
    """(P,) a score of each pair from 0 to 1, the mean over orders of its matches.

    Args:
        pairs: their rows.
        name: `maa5` or `maa10`, mAA up to so many degrees; `accuracy`, the share of right matches; `h1`, `h3` or `h5`,
            the share of homographies with a mean corner error of at most so many pixels.
    """
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


def mean_score(scenes: Mapping[str, Any], name: str) -> dict[str, float | None]:
    """Mean of a score over scenes, its standard deviation over bootstrap samples, and its 95 % interval.

    They are numbers for any number of pairs; mean_of and difference show them only if there are enough.
    """
    found = estimate(scores_by_scene(scenes, name))
    return {"mean": found.mean, "std": found.std, "low": found.low, "high": found.high}


def pairs_with(result: Mapping[str, Any], name: str) -> int:
    """How many pairs of a result have a score."""
    return sum(len(scene["pairs"]) for scene in result["scenes"].values() if name in SCORES[scene["kind"]])


def protocol_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """How the matches of a result were scored."""
    return {**BEFORE, **result["protocol"]}


def measure_of(result: Mapping[str, Any]) -> dict[str, Any]:
    """The protocol but for the estimator, which each method may have its own of: only equal ones are compared."""
    return {key: value for key, value in protocol_of(result).items() if key != "estimator"}


def mean_of(result: Mapping[str, Any], name: str) -> Spread:
    """The mean of a score in percent, with its deviation if there are enough pairs."""
    found = result["mean"][name]
    return Spread((100 * found["mean"],), None if too_few(pairs_with(result, name)) else 100 * found["std"])


def difference(result: Mapping[str, Any], other: Mapping[str, Any], name: str) -> Spread:
    """The paired difference of two results in a score, over the scenes that have it; of too few pairs the mean only."""
    if measure_of(result) != measure_of(other):
        raise ArgumentError("the two results are of different protocols, and cannot be compared")
    mine, theirs = (scores_by_scene(each["scenes"], name) for each in (result, other))
    for scene in mine.keys() & theirs.keys():
        one, two = ([list(row["images"]) for row in each["scenes"][scene]["pairs"]] for each in (result, other))
        if one != two:
            raise ArgumentError(f"{scene}: the two results are of different pairs, and cannot be compared")
    found = paired_difference(mine, theirs)
    return Spread(found.values) if too_few(pairs_with(result, name)) else found


def summary(
    rows: Mapping[str, list[dict[str, Any]]],
    scenes: Sequence[EvaluationScene],
    trained_on: frozenset[str] = frozenset(),
    warnings: Sequence[str] = (),
) -> dict[str, Any]:
    """`scenes` with their scores and rows, `mean` of each score, `trained_on` (scenes), `calibration`, `warnings`.

    `trained_on` are the scenes that the method learned from, and `warnings` are those of the method.
    """
    seen = [np.array(row.pop("seen")) for part in rows.values() for row in part if "seen" in row]
    parts = {}
    for scene in scenes:
        pairs = rows[scene.name]
        scores = {name: float(np.mean(score_of(pairs, name))) for name in SCORES[scene.kind]}
        counts = {name: float(np.mean([np.mean(row[name]) for row in pairs])) for name in COUNTS[scene.kind]}
        parts[scene.name] = {"kind": scene.kind, "images": len(scene.images), **scores, **counts, "pairs": pairs}
    kinds = dict.fromkeys(scene.kind for scene in scenes)
    found = {
        "scenes": parts,
        "mean": {name: mean_score(parts, name) for kind in kinds for name in SCORES[kind]},
        "trained_on": [scene.name for scene in scenes if scene.name in trained_on],
        "warnings": [*_warnings(scenes, trained_on), *warnings],
    }
    if seen:
        distance, ratio = threshold_of(seen), threshold_of(seen, RATIO)
        found["calibration"] = {
            "match_threshold": None if distance is None else round(distance, 3),
            "match_ratio": None if ratio is None else round(ratio, 3),
            "right_below_ratio": shares_of_right(seen),
        }
    return found


def _warnings(scenes: Sequence[EvaluationScene], trained_on: frozenset[str]) -> list[str]:
    known = [scene.name for scene in scenes if scene.name in trained_on]
    about = f"trained on {', '.join(known)}, so that scores there are too high: expect lower ones on other photos"
    warnings = [about] if known else []
    for scene in scenes:
        unknown = {name for name, camera in scene.cameras.items() if camera.model is None}
        count = sum(not unknown.isdisjoint(pair) for pair in scene.pairs)
        if count:
            warnings.append(
                f"{scene.name}: {count} of {len(scene.pairs)} pairs have a camera without intrinsics: their pose is "
                "derived from a fundamental matrix with an assumed focal length of 1.2 times the longer side"
            )
    return warnings


def threshold_of(parts: Sequence[np.ndarray], column: int = DISTANCE) -> float | None:
    """The distance (or ratio) up to which right matches most outnumber wrong ones; None without matches.

    Args:
        parts: for each pair of images (M, 3) distances of its mutual nearest neighbours, 1 where they are right, and
            ratios. Every pair of images counts the same.
        column: DISTANCE or RATIO.
    """
    rows, weights = _weighted(parts)
    if not len(rows):
        return None
    order = np.argsort(rows[:, column], kind="stable")
    gain = np.cumsum((weights * np.where(rows[:, RIGHT] > 0, 1, -1))[order])
    return float(rows[order[gain.argmax()], column])


def shares_of_right(parts: Sequence[np.ndarray]) -> dict[str, float]:
    """Share of right matches among those below each of RATIOS; a ratio without matches is left out."""
    rows, weights = _weighted(parts)
    kept = {ratio: weights * (rows[:, RATIO] < ratio) for ratio in RATIOS}
    return {str(ratio): float((part * rows[:, RIGHT]).sum() / part.sum()) for ratio, part in kept.items() if part.any()}


def _weighted(parts: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The matches of all pairs, and their weights."""
    parts = [np.asarray(part, np.float64).reshape(-1, 3) for part in parts if len(part)]
    if not parts:
        return np.empty((0, 3)), np.empty(0)
    return np.concatenate(parts), np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])
