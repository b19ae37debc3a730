"""The stored results as numbers: scores in percent of all trainings of a model, and means over pairs of photos."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, variance
from typing import Any

import numpy as np
import torch
from data import RESULTS, SEQUENCES, sequences_of
from score import AUC_UNITS
from score import DRAWS as GEOMETRY_DRAWS

from matchkernel.evaluation.uncertainty import Spread
from matchkernel.model.descriptors import build

Result = dict[str, Any]  # what run.py writes of one model
FULL, SHORT = "full", "descriptors"  # experiments of 39,060 and of 10,000 updates
FULL_LARGE, FULL_TURNED = "full_large", "full_turned"
TASKS = ("verification", "matching", "retrieval")
NOISES = {"e": "easy", "h": "hard", "t": "tough"}
CHANGES = {"shift": "half sides", "rotation": "degrees", "scale": "octaves"}  # of tolerance, with their units


DRAWS = 10_000  # bootstrap samples of sequences, patches and trainings


@dataclass(frozen=True)
class Interval:
    """A difference with the middle 95 % of its bootstrap samples, in points."""

    mean: float
    low: float
    high: float

    @property
    def width(self) -> float:
        """From end to end."""
        return self.high - self.low

    def text(self, digits: int = 2) -> str:
        """`+1.20 [+0.80, +1.60]`."""
        ends = ", ".join(signed(end, digits) for end in (self.low, self.high))
        return f"{signed(self.mean, digits)} [{ends}]"


@dataclass(frozen=True)
class TaskScore(Spread):
    """A score on the test sequences; `sequences` are the means over trainings on each of them."""

    sequences: tuple[float, ...] = ()


@cache
def read(name: str) -> dict[str, Any]:
    """A file of experiments/results."""
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def runs(experiment: str, name: str) -> list[Result]:
    """All trainings of a model, by seed."""
    found = {job: result for job, result in read(experiment).items() if re.sub(r"-seed\d+$", "", job) == name}
    if not found:
        raise KeyError(f"{experiment} has no results of {name}")
    return [found[job] for job in sorted(found)]


def has(experiment: str, name: str, key: str) -> bool:
    """Whether a model was trained, and all its trainings have this score."""
    found = [result for job, result in read(experiment).items() if re.sub(r"-seed\d+$", "", job) == name]
    return bool(found) and all(key in result["scores"] for result in found)


def look(result: Result, *keys: str) -> Any:
    """One of the scores of a model."""
    found: Any = result["scores"]
    for key in keys:
        found = found[key]
    return found


def percent(shares: Iterable[float]) -> Spread:
    """Shares of several trainings as a score in percent."""
    return Spread(tuple(100 * share for share in shares))


def score(experiment: str, name: str, *keys: str) -> Spread:
    """A score over the seeds of a model."""
    return percent(look(run, *keys) for run in runs(experiment, name))


def three_tasks(experiment: str, name: str) -> list[TaskScore]:
    """Verification, matching and retrieval of a model on the test sequences."""
    sequences = sorted(look(runs(experiment, name)[0], "test", "by_sequence"))
    return [
        TaskScore(
            score(experiment, name, "test", task).values,
            sequences=tuple(score(experiment, name, "test", "by_sequence", s, task).mean for s in sequences),
        )
        for task in TASKS
    ]


def scene_mean(experiment: str, name: str, *keys: str) -> Spread:
    """The mean over the validation scenes, of every seed."""
    return percent(
        fmean(look(run, "scenes", scene, *keys) for scene in look(run, "scenes")) for run in runs(experiment, name)
    )


def kind_mean(found: Iterable[Result], kind: str) -> Spread:
    """Matching, mean over the test sequences of a kind of change."""
    names = SEQUENCES["test"][kind]
    return percent(fmean(look(run, "test", "by_sequence", name, "matching") for name in names) for run in found)


def transfer(name: str, *keys: str) -> Spread:
    """The mean of the six combinations of the paper's Table 2, of every seed."""
    models = {"A": runs(SHORT, f"{name}-n32"), **{g: runs("transfer", f"{name}-on-{g}") for g in "BC"}}
    seeds = zip(*models.values(), strict=True)
    pairs = [(k, test) for k, train in enumerate(models) for test in "ABC" if test != train]
    return percent(fmean(look(seed[k], "groups", test, *keys) for k, test in pairs) for seed in seeds)


def paired(
    ours: list[Result], theirs: list[Result], change: str, what: str, *, by_trainings_only: bool = False
) -> Interval:
    """How much better one model tells changed patches from others, in percent: patch by patch, over all changes.

    Samples are of sequences, of patches of each, and of trainings: patches of one sequence are alike.

    Args:
        ours: trainings of a model.
        theirs: of another.
        change: shift, rotation, scale, or pole.
        what: "first", share found first, or "auc", share of other patches that are less similar.
        by_trainings_only: samples are of trainings, all with the same patches.
    """
    sides = [by_patch(found, change, what) for found in (ours, theirs)]
    one, two = sides
    weights = np.full((1, one.shape[1]), 1 / one.shape[1], np.float32) if by_trainings_only else _samples(one.shape[1])
    random, means = np.random.default_rng(1), []
    for part in sides:
        drawn = random.integers(len(part), size=(DRAWS, len(part)))
        scores = np.broadcast_to(weights @ part.T.astype(np.float32), drawn.shape)  # by sample and training
        means.append(np.take_along_axis(scores, drawn, 1).mean(1))
    return Interval(float(one.mean() - two.mean()), *map(float, np.quantile(means[0] - means[1], [0.025, 0.975])))


def by_patch(found: Iterable[Result], change: str, what: str) -> np.ndarray:
    """(trainings, patches) shares of a change's amounts in percent; patches are in order of the sequences."""
    curves = [look(run, "pole" if change == "pole" else "separability", change) for run in found]
    if what == "auc":
        return 100 - 100 / AUC_UNITS * np.array([c["auc_missing_by_patch"].split() for c in curves], np.float64)
    changes = sum(amount != 0 for amount in curves[0]["amounts"])
    return 100 / changes * np.array([curve["first_by_patch"].split() for curve in curves], np.float64)


def found_by_sequence(name: str, what: str) -> np.ndarray:
    """The mean share over all changes of a descriptor of Figure 3 on each validation sequence."""
    shares = [by_patch(runs(FULL, f"{name}-n32"), change, what).mean(0) for change in CHANGES]
    return np.mean(shares, 0).reshape(len(sequences_of("validation")), -1).mean(1)


@cache
def _samples(patches: int) -> np.ndarray:
    """(DRAWS, patches) weights of patches in samples of sequences, which have as many patches each, and of theirs."""
    sequences, random = len(sequences_of("validation")), np.random.default_rng(0)
    rows, weights = np.arange(patches).reshape(sequences, -1), np.empty((DRAWS, patches), np.float32)
    for sample in weights:
        chosen = rows[random.integers(sequences, size=sequences)]
        drawn = np.take_along_axis(chosen, random.integers(rows.shape[1], size=rows.shape), 1)
        sample[:] = np.bincount(drawn.ravel(), minlength=patches) / patches
    return weights


def geometric(models: Sequence[tuple[str, str]], pairs: str) -> Spread:
    """FPR@95 of positives found by geometry: mean over the groups that models were trained on, and its deviation.

    Groups may have more trainings than others; the deviation is that of one training on each, if all have several.

    Args:
        models: experiment and name, one for each group to train on.
        pairs: ordinary or hard.
    """
    by_group = [[100 * value for value in values] for values in _geometric_values(models, pairs, 0)]
    several = all(len(values) > 1 for values in by_group)
    deviation = sum(map(variance, by_group)) ** 0.5 / len(by_group) if several else None
    return Spread((fmean(map(fmean, by_group)),), estimated=deviation)


def geometric_difference(ours: Sequence[tuple[str, str]], theirs: Sequence[tuple[str, str]], pairs: str) -> Interval:
    """FPR@95 of one kind of model less that of another, over samples of points and of the trainings on each group."""
    random, draws = np.random.default_rng(0), []
    for draw in range(1, 1 + GEOMETRY_DRAWS):
        sides = []
        for models in (ours, theirs):
            by_group = _geometric_values(models, pairs, draw)
            sides.append(fmean(fmean(random.choice(values, len(values))) for values in by_group))
        draws.append(100 * (sides[0] - sides[1]))
    mean = geometric(ours, pairs).mean - geometric(theirs, pairs).mean
    return Interval(mean, *map(float, np.quantile(draws, [0.025, 0.975])))


def _geometric_values(models: Sequence[tuple[str, str]], pairs: str, draw: int) -> list[list[float]]:
    """By model and seed, FPR@95 as mean over the groups it was tested on; `draw` from 1 is a sample, 0 is all pairs."""

    def value(run: Result) -> float:
        parts = [part[pairs] for part in look(run, "geometry").values()]
        return fmean(part["draws"][draw - 1] if draw else part["fpr95"] for part in parts)

    return [[value(run) for run in runs(*model)] for model in models]


@cache
def _count(configuration: str) -> int:
    with torch.device("meta"):  # shapes are enough to count
        return build(**json.loads(configuration)).config.parameters


def parameters(configuration: dict[str, Any]) -> int:
    """Learned numbers of a model, counted from one that is built."""
    return _count(json.dumps(configuration))


def photo_means(name: str) -> dict[str, dict[str, float]]:
    """Descriptor -> column -> mean over the pairs of a sequence, then over sequences, of a file of photo pairs."""
    cells: dict[str, dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for pair in read(name)["pairs"]:
        cells[pair["model"]][pair["sequence"]].append(pair)
    columns = ("matches", "right", "accuracy 3 px", "H 1 px", "H 3 px", "H 5 px")
    return {
        model: {c: fmean(fmean(row[c] for row in rows) for rows in parts.values()) for c in columns}
        for model, parts in cells.items()
    }


def signed(difference: float, digits: int = 2) -> str:
    """A difference with its sign."""
    return f"{difference:+.{digits}f}".replace("-", "−")
