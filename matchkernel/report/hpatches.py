"""HPatches results as sections: the three tasks with bars and tables, other conventions, values per sequence."""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.report.blocks import Block, Grid, Method, PerSequence, Score, Section
from matchkernel.report.runs import Run, value_at

NOISES = ("e", "h", "t")
# Task -> the figure of the literature, and its parts by noise (the mean of several paths).
HEADLINES: dict[str, tuple[str, dict[str, list[str]]]] = {
    "verification": (
        "mean/ap_trapezoid",
        {n: [f"noise/{n}/{kind}/imbalanced/ap_trapezoid" for kind in ("inter", "intra")] for n in NOISES},
    ),
    "matching": ("mean/all/ap_trapezoid", {n: [f"mean/{n}/ap_trapezoid"] for n in NOISES}),
    "retrieval": (
        "python/mean/20000/ap_trapezoid",
        {n: [f"python/noise/{n}/20000/ap_trapezoid"] for n in NOISES},
    ),
}
OTHERS = {
    "verification": {"verif. AUC": "mean/auc", "verif. AP step": "mean/ap_step"},
    "matching": {"match. AP step": "mean/all/ap_step", "match. rank 1": "mean/all/sr"},
    "retrieval": {
        "retr. matlab 2000": "matlab/mean/2000/ap_step",
        "retr. matlab all": "matlab/mean/all/ap_step",
        "retr. tie-safe": "python/mean/20000/ap_trapezoid_tie_safe",
    },
}
NOTES = {
    "verification": "mAP in %: mean of six imbalanced APs (inter, intra x e, h, t), trapezoid form.",
    "matching": "mAP in %: mean over image pairs, then over e, h, t, trapezoid form.",
    "retrieval": "mAP in %: pool of at most 20,000, the five positives included, mean over e, h, t, trapezoid form.",
}
HARDEST = "Sorted by the mean of all methods, the hardest last."
Key = tuple[tuple[str, tuple[str, ...], str, str], ...]  # split, its sequences, tasks done, data: what can be compared


def hpatches_sections(runs: Sequence[Run]) -> list[Section]:
    """One section for each choice of splits: methods scored on other splits or sequences are never in one table."""
    scored: dict[tuple[Method, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        scored[(run.method, run.train_set, run.seed)].append(run)
    sections: dict[Key, dict[Method, list[list[Run]]]] = defaultdict(lambda: defaultdict(list))
    for (method, train_set, _), members in scored.items():
        is_alone = len({training for other, training, _ in scored if other == method}) == 1
        shown = method if is_alone else replace(method, name=f"{method.name}, {train_set or 'untold training'}")
        sections[_key(members)][shown].append(members)
    return [_section(key, methods) for key, methods in sorted(sections.items())]


def _key(members: Sequence[Run]) -> Key:
    seen: dict[str, Run] = {}
    for run in members:
        split = str(run.result["split"])
        other = seen.setdefault(split, run)
        if other is not run:
            raise ArgumentError(f"{other.path} and {run.path}: two results of {run.method.name!r} on split {split!r}")
    return tuple(
        (
            split,
            tuple(map(str, run.result["sequences"])),
            " ".join(task for task in HEADLINES if task in run.result),
            str(run.result.get("data_sha256") or ""),
        )
        for split, run in sorted(seen.items())
    )


def _section(key: Key, methods: Mapping[Method, list[list[Run]]]) -> Section:
    names = [split for split, *_ in key]
    tasks = key[0][2].split()
    count = len({sequence for _, sequences, *_ in key for sequence in sequences})
    blocks: list[Block] = [_grid(task, methods) for task in tasks if all(task in part.split() for _, _, part, _ in key)]
    blocks.append(_conventions(tasks, methods))
    blocks += [_per_sequence(task, methods) for task in tasks]
    splits = f"split {names[0]}" if len(names) == 1 else f"mean of splits {', '.join(names)}"
    runs = [run for seeds in methods.values() for members in seeds for run in members]
    sets = sorted({str(run.result["set"]) for run in runs if run.result.get("set")})
    return Section(", ".join(["HPatches tasks", *sets, splits]), tuple(blocks), f"{count} test sequences.")


def _grid(task: str, methods: Mapping[Method, list[list[Run]]]) -> Grid:
    headline, parts = HEADLINES[task]
    paths = {"mean": [headline], **parts}
    rows = {
        method: {column: _score(seeds, [f"{task}/{path}" for path in paths[column]]) for column in paths}
        for method, seeds in methods.items()
    }
    return Grid(
        task.capitalize(),
        tuple(paths),
        rows,
        bars="mean",
        marks=NOISES,
        note=f"{NOTES[task]} The letters mark easy, hard and tough patches alone.",
    )


def _conventions(tasks: Sequence[str], methods: Mapping[Method, list[list[Run]]]) -> Grid:
    paths = {column: f"{task}/{path}" for task in tasks for column, path in OTHERS[task].items()}
    rows = {method: {c: _score(seeds, [path]) for c, path in paths.items()} for method, seeds in methods.items()}
    return Grid("The same in other conventions (%)", tuple(paths), rows)


def _score(seeds: Sequence[Sequence[Run]], paths: Sequence[str]) -> Score:
    """The mean over paths and splits for each seed; the spread is over seeds alone."""
    return Score(tuple(_mean([value_at(run, path) for run in splits for path in paths]) for splits in seeds))


def _per_sequence(task: str, methods: Mapping[Method, list[list[Run]]]) -> PerSequence:
    of_one: Callable[[Any], list[float]] = _matching_values if task == "matching" else _task_values
    where = "per_pair" if task == "matching" else "per_sequence"
    values: dict[Method, dict[str, list[float]]] = {}
    for method, seeds in methods.items():
        found: dict[str, list[float]] = defaultdict(list)
        for run in (run for splits in seeds for run in splits):
            for sequence, part in dict(run.result[task].get(where) or {}).items():
                found[sequence] += of_one(part)
        values[method] = found
    sequences = tuple(sorted({sequence for found in values.values() for sequence in found}))
    shown = {m: tuple(_mean(found[s]) if found.get(s) else None for s in sequences) for m, found in values.items()}
    return PerSequence(f"{task.capitalize()} by sequence", sequences, shown, f"mAP in %, mean over e, h, t. {HARDEST}")


def _matching_values(part: Mapping[str, Any]) -> list[float]:
    return [100 * pair["ap_trapezoid"] for noise in part.values() for pair in noise.values()]


def _task_values(part: Any) -> list[float]:
    """Every trapezoid AP under a sequence, whatever it is nested in; of verification the imbalanced ones alone."""
    if not isinstance(part, Mapping):
        return []
    if "ap_trapezoid" in part:
        return [100 * float(part["ap_trapezoid"])]
    return [value for key, inner in part.items() if key != "balanced" for value in _task_values(inner)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
