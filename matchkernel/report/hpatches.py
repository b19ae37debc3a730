"""HPatches results as sections: the three tasks with bars and tables, other conventions, values per sequence."""

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.report.blocks import RAISED, Block, Grid, PerSequence, ReportedMethod, Section
from matchkernel.report.runs import ScoredRun, value_at

NOISES = ("e", "h", "t")
SAFE = "_tie_safe"  # suffix of values with ties counted as errors
# Task -> the figure quoted in the literature, and its parts by noise level (means over several paths).
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
    "verification": {
        "verif. AUC": "mean/auc",
        "verif. AP step": "mean/ap_step",
        "verif. tie-safe": f"mean/ap_trapezoid{SAFE}",
    },
    "matching": {
        "match. AP step": "mean/all/ap_step",
        "match. rank 1": "mean/all/sr",
        "match. tie-safe": f"mean/all/ap_trapezoid{SAFE}",
    },
    "retrieval": {
        "retr. matlab 2000": "matlab/mean/2000/ap_step",
        "retr. matlab all": "matlab/mean/all/ap_step",
        "retr. tie-safe": f"python/mean/20000/ap_trapezoid{SAFE}",
    },
}
NOTES = {
    "verification": "mAP in %: mean of six imbalanced APs (inter, intra x e, h, t), trapezoid form.",
    "matching": "mAP in %: mean over image pairs, then over e, h, t, trapezoid form.",
    "retrieval": "mAP in %: pool of at most 20,000, the five positives included, mean over e, h, t, trapezoid form.",
}
HARDEST = "Sorted by the mean of all methods, the hardest last."
Part = tuple[str, tuple[str, ...], str]  # a split, its sequences, its digest
Key = tuple[str, str, tuple[Part, ...]]  # set, tasks done, and the splits: what must be the same to be compared
Scored = dict[tuple[ReportedMethod, str, int, str, str], list[ScoredRun]]  # method, training set, seed, set, tasks


def hpatches_sections(runs: Sequence[ScoredRun]) -> list[Section]:
    """One section for each set and choice of splits: methods scored on other data are never in one table."""
    scored: Scored = defaultdict(list)
    for run in runs:
        tasks = " ".join(task for task in HEADLINES if task in run.result)
        scored[(run.method, run.train_set, run.seed, _set_of(run, runs), tasks)].append(run)
    mixed = {name for (*_, name, _), members in scored.items() if _has_twins(members)}
    sections: dict[Key, dict[ReportedMethod, list[list[ScoredRun]]]] = defaultdict(lambda: defaultdict(list))
    for (method, train_set, _, name, tasks), members in scored.items():
        is_alone = len({training for other, training, *_ in scored if other == method}) == 1
        shown = method if is_alone else replace(method, name=f"{method.name}, {train_set or 'training unknown'}")
        for part in [[run] for run in members] if name in mixed else [members]:
            sections[name, tasks, _parts(part)][shown].append(part)
    for methods in sections.values():
        _check_seeds(methods)
    titles = Counter(_title(key) for key in sections)
    order = sorted(sections, key=lambda key: (not key[0], key))  # sets without a name last
    return [_section(key, sections[key], titles[_title(key)] > 1) for key in order]


def _set_of(run: ScoredRun, runs: Sequence[ScoredRun]) -> str:
    """The name of a run's set. For descriptor files scored without one: the only set with the same digest, if any."""
    if run.result.get("set") or not run.result.get("data_sha256"):
        return str(run.result.get("set") or "")
    same = [other for other in runs if all(other.result.get(k) == run.result[k] for k in ("split", "data_sha256"))]
    names = {str(other.result["set"]) for other in same if other.result.get("set")}
    return names.pop() if len(names) == 1 else ""


def _has_twins(members: Sequence[ScoredRun]) -> bool:
    """Whether a split occurs twice with different data: then two sets share a name, and no mean is taken."""
    digests: dict[str, set[str]] = defaultdict(set)
    for run in members:
        digests[run.result["split"]].add(_digest(run))
    return any(len(found) > 1 for found in digests.values())


def _parts(members: Sequence[ScoredRun]) -> tuple[Part, ...]:
    seen: dict[str, ScoredRun] = {}
    for run in members:
        split = str(run.result["split"])
        other = seen.setdefault(split, run)
        if other is not run:
            raise _twice(other, run)
    return tuple((split, tuple(run.result["sequences"]), _digest(run)) for split, run in sorted(seen.items()))


def _check_seeds(methods: Mapping[ReportedMethod, list[list[ScoredRun]]]) -> None:
    """Refuse a seed that occurs twice in a row of the table: it would make the deviation too small."""
    for seeds in methods.values():
        seen: dict[int, ScoredRun] = {}
        for run in (members[0] for members in seeds):
            if seen.setdefault(run.seed, run) is not run:
                raise _twice(seen[run.seed], run)


def _twice(one: ScoredRun, two: ScoredRun) -> ArgumentError:
    where = f"split {two.result['split']!r}"
    return ArgumentError(f"{one.path} and {two.path}: two results of {two.method.name!r} on {where}")


def _digest(run: ScoredRun) -> str:
    return str(run.result.get("data_sha256") or "")


def _title(key: Key) -> str:
    name, _, parts = key
    splits = [split for split, *_ in parts]
    words = f"split {splits[0]}" if len(splits) == 1 else f"mean of splits {', '.join(splits)}"
    return ", ".join(["HPatches tasks", *([name] if name else []), words])


def _section(key: Key, methods: Mapping[ReportedMethod, list[list[ScoredRun]]], is_shared: bool) -> Section:
    """A section; if another has the same title, the title includes the tasks and the data too."""
    _, done, parts = key
    tasks = done.split()
    count = len({sequence for _, sequences, _ in parts for sequence in sequences})
    grids = {task: _grid(task, methods) for task in tasks}
    by_sequence = [_per_sequence(task, methods, grids[task]) for task in tasks]
    blocks: list[Block] = [*grids.values(), _conventions(tasks, methods), *by_sequence]
    digests = " ".join(digest[:8] or "unknown" for *_, digest in parts)
    more = f" ({', '.join(tasks)}; {count} sequences; data {digests})" if is_shared else ""
    return Section(_title(key) + more, tuple(blocks), f"{count} test sequences.")


def _grid(task: str, methods: Mapping[ReportedMethod, list[list[ScoredRun]]]) -> Grid:
    headline, parts = HEADLINES[task]
    paths = {"mean": [headline], **parts}
    rows = {
        method: {column: _score(seeds, [f"{task}/{path}" for path in paths[column]]) for column in paths}
        for method, seeds in methods.items()
    }
    safe = {
        method: {column: _score(seeds, [f"{task}/{path}{SAFE}" for path in paths[column]]) for column in paths}
        for method, seeds in methods.items()
    }
    return Grid(
        task.capitalize(),
        tuple(paths),
        rows,
        bars="mean",
        marks=NOISES,
        note=f"{NOTES[task]} The letters mark the scores of easy, hard and tough patches.",
        safe=safe,
    )


def _conventions(tasks: Sequence[str], methods: Mapping[ReportedMethod, list[list[ScoredRun]]]) -> Grid:
    paths = {column: f"{task}/{path}" for task in tasks for column, path in OTHERS[task].items()}
    rows = {method: {c: _score(seeds, [path]) for c, path in paths.items()} for method, seeds in methods.items()}
    official = {column: path for column, path in paths.items() if not path.endswith(SAFE)}
    safe = {
        method: {column: _score(seeds, [path + SAFE]) for column, path in official.items()}
        for method, seeds in methods.items()
    }
    return Grid("The same in other conventions (%)", tuple(paths), rows, safe=safe)


def _score(seeds: Sequence[Sequence[ScoredRun]], paths: Sequence[str]) -> Spread:
    """The mean over paths and splits for each seed; the spread is over seeds alone."""
    return Spread(tuple(_mean([value_at(run, path) for run in splits for path in paths]) for splits in seeds))


def _per_sequence(task: str, methods: Mapping[ReportedMethod, list[list[ScoredRun]]], grid: Grid) -> PerSequence:
    of_one: Callable[[Any], list[float]] = _matching_values if task == "matching" else _task_values
    where = "per_pair" if task == "matching" else "per_sequence"
    values: dict[ReportedMethod, dict[str, list[float]]] = {}
    for method, seeds in methods.items():
        found: dict[str, list[float]] = defaultdict(list)
        for run in (run for splits in seeds for run in splits):
            for sequence, part in dict(run.result[task].get(where) or {}).items():
                found[sequence] += of_one(part)
        values[method] = found
    sequences = tuple(sorted({sequence for found in values.values() for sequence in found}))
    shown = {m: tuple(_mean(found[s]) if found.get(s) else None for s in sequences) for m, found in values.items()}
    raised = ", ".join(method.name for method in methods if grid.is_raised(method, "mean"))
    words = f" {RAISED} The order of tied distances alone raises the values of {raised}." if raised else ""
    note = f"mAP in %, mean over e, h, t. {HARDEST}{words}"
    return PerSequence(f"{task.capitalize()} by sequence", sequences, shown, note)


def _matching_values(part: Mapping[str, Any]) -> list[float]:
    return [100 * pair["ap_trapezoid"] for noise in part.values() for pair in noise.values()]


def _task_values(part: Any) -> list[float]:
    """Every trapezoid AP of a sequence, at any depth; for verification only the imbalanced ones."""
    if not isinstance(part, Mapping):
        return []
    if "ap_trapezoid" in part:
        return [100 * float(part["ap_trapezoid"])]
    return [value for key, inner in part.items() if key != "balanced" for value in _task_values(inner)]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
