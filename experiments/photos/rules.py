"""The rules of docs/photos.md, applied to the stored measurements."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from candidates import (
    BEFORE,
    DECIDE_FILTERS,
    DESDIS,
    LATER,
    MAGNIFICATIONS,
    MEASURED_AT,
    ON_TRAINING,
    ON_VALIDATION,
    OURS,
    RATIO,
    RATIOS,
    SCENES,
    SIMPLEST_FIRST,
    WIDE_AT_HALF,
    Candidate,
    family,
    keypoint_settings,
)
from measured import Measured, Scores, mean_of, minus, read
from own_jobs import FROM_POSES, PACKAGE  # of experiments/paper
from results import read as read_paper

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.uncertainty import Estimate, estimate
from matchkernel.photos.filters import LEARNED_RATIO

Setting = tuple[str, str, float]
ALLOWED = 1.05  # seconds per photo / those of the default before: the limit, and a twentieth for the noise of timing
MOST_TIMES = 2.0  # seconds of other frames / those of the choice of step 3


@dataclass(frozen=True)
class Ranked:
    """A candidate with its value in percent, how far it is below the best, and the standard error of that."""

    name: Any
    value: float
    below: float
    error: float
    cost: Any

    @property
    def ties(self) -> bool:
        """Whether it is within one standard error of the best."""
        return self.below <= self.error


def ranked(values: Mapping[Any, list[Scores]], cost: Mapping[Any, Any]) -> list[Ranked]:
    """Candidates, the best first.

    Args:
        values: for each candidate one set of scores per group of scenes; the value is the mean of their means.
        cost: that decides between ties.
    """
    if not values:
        raise ArgumentError("no candidate was measured on all scenes that decide")
    means = {name: _mean(groups) for name, groups in values.items()}
    best = max(means, key=lambda name: means[name])
    found = []
    for name, groups in values.items():
        parts = [estimate(minus(one, other)) for one, other in zip(values[best], groups, strict=True)]
        error = math.sqrt(sum(part.std**2 for part in parts)) / len(parts)
        found.append(Ranked(name, 100 * means[name], 100 * (means[best] - means[name]), 100 * error, cost[name]))
    return sorted(found, key=lambda row: -row.value)


def _mean(groups: list[Scores]) -> float:
    return sum(estimate(group).mean for group in groups) / len(groups)


def taken(rows: list[Ranked]) -> Ranked:
    """The cheapest of those that tie with the best; of equally cheap ones the best."""
    return min((row for row in rows if row.ties), key=lambda row: (row.cost, -row.value))


def measured(name: str, folder: Path | None) -> Measured:
    """The measurements of a step, which must be there."""
    found = read(name, folder)
    if not found.rows:
        raise FileError(f"{found.path}: not measured yet; see the commands in docs/photos.md")
    return found


# Step 1


def rank_keypoints(found: Measured, seconds: Mapping[Setting, float]) -> list[Ranked]:
    """Ways to fill the budget by the mean of training and validation scenes, of those that were measured."""
    values = {}
    for setting, changes in keypoint_settings().items():
        keys = {m: Candidate(m, changes, f"ratio:{RATIO}").key for m in ON_VALIDATION}
        groups = {"training": [keys[m] for m in ON_TRAINING], "validation": list(keys.values())}
        if all(found.has(key, SCENES[group]) for group, part in groups.items() for key in part):
            values[setting] = [mean_of(found.scores(k, SCENES[group]) for k in part) for group, part in groups.items()]
    return ranked(values, {setting: seconds.get(setting, math.inf) for setting in values})


def taken_keypoints(folder: Path | None = None) -> dict[str, Any]:
    """The fields of Detector that step 1 takes."""
    rows = rank_keypoints(measured("keypoints", folder), detection_seconds(folder))
    best = taken(rows)
    return keypoint_settings()[best.name]


def detection_seconds(folder: Path | None = None) -> dict[Setting, float]:
    """Seconds of detection per photo of each way to fill the budget, as seconds.py measured them."""
    found = measured("seconds", folder).rows
    keys = {setting: Candidate("detect", changes).key for setting, changes in keypoint_settings().items()}
    return {setting: found[key]["seconds"] for setting, key in keys.items() if key in found}


# Step 2


def calibrated_ratio(found: Measured, method: str, changes: dict[str, Any]) -> float:
    """The ratio with the best mAA on validation after averaging each with its two neighbours."""
    values = [_value(found, Candidate(method, changes, f"ratio:{ratio}")) for ratio in RATIOS]
    smooth = [sum(values[k - 1 : k + 2]) for k in range(1, len(values) - 1)]
    return RATIOS[1 + smooth.index(max(smooth))]


def _value(found: Measured, candidate: Candidate) -> float:
    return _mean([found.scores(candidate.key, SCENES["validation"])])


def kinds_of(found: Measured, method: str, changes: dict[str, Any]) -> dict[str, str]:
    """Kind of filter -> the filter of a method with its limits, of those that were measured."""
    kinds = {"ratio": f"ratio:{calibrated_ratio(found, method, changes)}"}
    start = Candidate(method, changes).key.removesuffix("none")
    for key in found.rows:
        kind = key.removeprefix(start).partition(":")[0]
        if key.startswith(start) and kind != "ratio":
            kinds[kind] = key.removeprefix(start)
    return kinds


def rank_filters(found: Measured, changes: dict[str, Any]) -> list[Ranked]:
    """Filters by the mean of our models on validation; the simpler one wins a tie."""
    by_method = {method: kinds_of(found, method, changes) for method in DECIDE_FILTERS}
    values = {
        kind: [
            mean_of(
                found.scores(Candidate(method, changes, by_method[method][kind]).key, SCENES["validation"])
                for method in DECIDE_FILTERS
            )
        ]
        for kind in SIMPLEST_FIRST
        if all(kind in kinds for kinds in by_method.values())
    }
    return ranked(values, {kind: SIMPLEST_FIRST.index(kind) for kind in values})


def taken_filters(folder: Path | None = None) -> dict[str, str]:
    """Method -> its filter; those whose ratio was not calibrated use that of the package."""
    found = measured("filters", folder)
    kind = taken(rank_filters(found, MEASURED_AT)).name
    filters = {method: kinds_of(found, method, MEASURED_AT)[kind] for method in DECIDE_FILTERS}
    for method in ("sift", "rootsift", DESDIS):
        filters[method] = f"ratio:{calibrated_ratio(found, method, MEASURED_AT)}"
    filters |= {method: f"ratio:{calibrated_ratio(found, method, MEASURED_AT)}" for method in LATER}
    filters["light-wide"] = kinds_of(found, WIDE_AT_HALF, MEASURED_AT)[kind]
    return {**dict.fromkeys(OURS, f"ratio:{LEARNED_RATIO}"), **filters}


# Step 3


def rank_models(found: Measured, seconds: Mapping[str, float], limit: float = math.inf) -> list[Ranked]:
    """Models and magnifications on validation, those up to a limit of seconds; `name` is the key of the candidate.

    A tie goes to the cheaper architecture, then to the better score on validation patches.
    """
    scores = patch_scores()
    affordable = [key for key in found.rows if seconds[family(key)] <= limit]
    values = {key: [found.scores(key, SCENES["validation"])] for key in affordable}
    return ranked(values, {key: (seconds[family(key)], -scores.get(method_of(key), 0.0)) for key in values})


def method_of(key: str) -> str:
    """The method of a candidate's key."""
    return key.split(" | ")[0]


def patch_scores() -> dict[str, float]:
    """Models -> matching on the validation sequences' patches, as experiments/paper measured it."""
    found = {job: run for name in ("ship", "poses") for job, run in read_paper(name).items()}
    known = {job: 100 * run["scores"]["validation"]["matching"] for job, run in found.items()}
    return {**known, **{name: known[job] for name, job in PACKAGE.items()}}


def model_seconds(folder: Path | None = None) -> dict[str, float]:
    """Seconds per photo of `dual` and `light` at the keypoints taken."""
    found, changes = read("seconds", folder).rows, taken_keypoints(folder)
    return {name: found[Candidate(name, changes).key]["seconds"] for name in ("dual", "light")}


def taken_row(folder: Path | None = None) -> str:
    """The key of the model and magnification that step 3 takes."""
    seconds = model_seconds(folder)
    return str(taken(rank_models(measured("models", folder), seconds, seconds_limit(folder))).name)


def taken_model(folder: Path | None = None) -> Candidate:
    """The default: model, keypoints with magnification, and filter."""
    best, filters = taken_row(folder), taken_filters(folder)
    size = next(size for size in MAGNIFICATIONS if f"magnification={size} " in best)
    names = {job: name for name, job in (PACKAGE | FROM_POSES).items()}
    name = names.get(method_of(best), method_of(best))
    changes = {**taken_keypoints(folder), "magnification": size}
    return Candidate(name, changes, filters.get(name, f"ratio:{LEARNED_RATIO}"))


# Step 4


def rank_frames(found: Measured, default: Candidate) -> list[tuple[str, Estimate]]:
    """Candidates of step 4, and their paired differences to the choice of step 3."""
    base = found.scores(default.key, SCENES["validation"])
    return [
        (key, estimate(minus(found.scores(key, SCENES["validation"]), base)))
        for key in found.rows
        if key != default.key
    ]


def seconds_limit(folder: Path | None = None) -> float:
    """Seconds per photo that a candidate may take: those of the default before, and a little."""
    return ALLOWED * float(read("seconds", folder).rows[Candidate("dual", BEFORE).key]["seconds"])


def is_worth(difference: Estimate, seconds: float, before: float) -> bool:
    """Whether a change of frames is taken."""
    return difference.mean > difference.std and seconds <= min(MOST_TIMES * before, seconds_limit())
