"""HPatches results as sections: the three tasks with bars and tables, other conventions, values per sequence."""

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.scores import Bar, ReportedMethod
from matchkernel.report.blocks import RAISED, Grid, PerSequence, Section
from matchkernel.report.runs import ScoredRun, read_runs, refuse_conflicts, value_at

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
SHOWN = ("matching", "retrieval", "verification")  # whose result begins the page, if it was scored
HARDEST = "Sorted by the mean of all methods, the hardest last."
Part = tuple[str, tuple[str, ...], str]  # a split, its sequences, its digest
Key = tuple[str, str, tuple[Part, ...]]  # set, tasks done, and the splits: what must be the same to be compared
Seeds = list[list[ScoredRun]]  # for each seed the results of its splits
Methods = Mapping[ReportedMethod, Seeds]


def hpatches_sections(runs: Sequence[ScoredRun]) -> list[Section]:
    """One section for each set and choice of splits: methods scored on other data are never in one table."""
    scored: dict[tuple[ReportedMethod, str, int, str, str], list[ScoredRun]] = defaultdict(list)
    for run in runs:
        tasks = " ".join(task for task in HEADLINES if task in run.result)
        scored[run.method, run.train_set, run.seed, _set_of(run, runs), tasks].append(run)
    # Two sets of one name: a split occurs twice with different data, and no mean over splits is taken.
    mixed = {
        key[3]
        for key, members in scored.items()
        if len({(run.result["split"], _digest(run)) for run in members}) > len({run.result["split"] for run in members})
    }
    sections: dict[Key, dict[ReportedMethod, Seeds]] = defaultdict(lambda: defaultdict(list))
    for (method, train_set, _, name, tasks), members in scored.items():
        is_alone = len({training for other, training, *_ in scored if other == method}) == 1
        shown = method if is_alone else replace(method, name=f"{method.name}, {train_set or 'training unknown'}")
        for splits in [[run] for run in members] if name in mixed else [members]:
            _refuse_twins(splits, same=lambda run: run.result["split"])
            parts = sorted((str(r.result["split"]), tuple(r.result["sequences"]), _digest(r)) for r in splits)
            sections[name, tasks, tuple(parts)][shown].append(splits)
    for methods in sections.values():
        for seeds in methods.values():  # a seed that occurs twice would make the deviation too small
            _refuse_twins([splits[0] for splits in seeds], same=lambda run: run.seed)
    titles = Counter(_title(key) for key in sections)
    order = sorted(sections, key=lambda key: (not key[0], key))  # sets without a name last
    return [_section(key, sections[key], titles[_title(key)] > 1) for key in order]


def score_bars(paths: Sequence[str | Path]) -> tuple[list[Bar], list[str]]:
    """Bars of HPatches results for `plots.scores`, and the tasks they are scored in.

    The files, or folders of them, must be on the same set, splits and tasks.
    """
    sections = hpatches_sections([run for run in read_runs(paths) if run.result["kind"] == "hpatches"])
    if not sections:
        raise ArgumentError("no results of `matchkernel evaluate hpatches` among these files")
    if len(sections) > 1:
        titles = "; ".join(section.title for section in sections)
        raise ArgumentError(
            f"these results cannot share a chart: {titles}; give those of one set, split, distance and choice of tasks"
        )
    grids = {block.title.lower(): block for block in sections[0].blocks if isinstance(block, Grid)}
    tasks = [task for task in HEADLINES if task in grids]
    shown = [grids[task] for task in tasks]
    bars = []
    for method in shown[0].methods:
        scores = [grid.compared(method, "mean").get("mean") for grid in shown]
        bars.append(Bar(method, scores, is_tie_safe=any(grid.is_raised(method, "mean") for grid in shown)))
    return bars, tasks


def _set_of(run: ScoredRun, runs: Sequence[ScoredRun]) -> str:
    """The name of a run's set. For descriptor files scored without one: the only set with the same digest, if any."""
    if run.result.get("set") or not run.result.get("data_sha256"):
        return str(run.result.get("set") or "")
    same = [other for other in runs if all(other.result.get(k) == run.result[k] for k in ("split", "data_sha256"))]
    names = {str(other.result["set"]) for other in same if other.result.get("set")}
    return names.pop() if len(names) == 1 else ""


def _refuse_twins(runs: Sequence[ScoredRun], same: Callable[[ScoredRun], object]) -> None:
    refuse_conflicts(
        runs,
        same,
        reason=lambda run: f"two results of {run.method.name!r} on split {run.result['split']!r}",
    )


def _digest(run: ScoredRun) -> str:
    return str(run.result.get("data_sha256") or "")


def _title(key: Key) -> str:
    name, _, parts = key
    splits = [split for split, *_ in parts]
    which = f"split {splits[0]}" if len(splits) == 1 else f"mean of splits {', '.join(splits)}"
    return ", ".join(["HPatches tasks", *([name] if name else []), which])


def _section(key: Key, methods: Methods, is_shared: bool) -> Section:
    """A section; if another has the same title, the title includes the tasks and the data too."""
    tasks, parts = key[1].split(), key[2]
    count = len({sequence for _, sequences, _ in parts for sequence in sequences})
    grids = {task: _task(task, methods) for task in tasks}
    others = {column: [f"{task}/{path}"] for task in tasks for column, path in OTHERS[task].items()}
    official = {column: paths for column, paths in others.items() if not paths[0].endswith(SAFE)}
    conventions = Grid(
        "The same in other conventions (%)",
        tuple(others),
        _scores(methods, others),
        safe=_scores(methods, official, SAFE),
    )
    by_sequence = [_per_sequence(task, methods, grids[task]) for task in tasks]
    digests = " ".join(digest[:8] or "unknown" for *_, digest in parts)
    more = f" ({', '.join(tasks)}; {count} sequences; data {digests})" if is_shared else ""
    shown = next((task for task in SHOWN if task in grids), None)
    summary = grids[shown].summary(f"{shown} (mAP)") if shown else ""
    blocks = (*grids.values(), conventions, *by_sequence)
    return Section(_title(key) + more, blocks, f"{count} test sequences.", summary)


def _task(task: str, methods: Methods) -> Grid:
    headline, parts = HEADLINES[task]
    paths = {"mean": [headline], **parts}
    paths = {column: [f"{task}/{path}" for path in found] for column, found in paths.items()}
    note = f"{NOTES[task]} The letters mark the scores of easy, hard and tough patches."
    rows, safe = (_scores(methods, paths, suffix) for suffix in ("", SAFE))
    return Grid(task.capitalize(), tuple(paths), rows, bars="mean", marks=NOISES, note=note, safe=safe)


def _scores(
    methods: Methods, paths: Mapping[str, Sequence[str]], suffix: str = ""
) -> dict[ReportedMethod, dict[str, Spread]]:
    """For each method and column the mean over paths and splits of each seed; the spread is over seeds alone."""
    return {
        method: {
            column: Spread(
                tuple(fmean(value_at(run, path + suffix) for run in splits for path in found) for splits in seeds)
            )
            for column, found in paths.items()
        }
        for method, seeds in methods.items()
    }


def _per_sequence(task: str, methods: Methods, grid: Grid) -> PerSequence:
    where = "per_pair" if task == "matching" else "per_sequence"
    values: dict[ReportedMethod, dict[str, list[float]]] = {method: defaultdict(list) for method in methods}
    for method, seeds in methods.items():
        for run in (run for splits in seeds for run in splits):
            for sequence, part in dict(run.result[task].get(where) or {}).items():
                values[method][sequence] += _precisions(part)
    sequences = tuple(sorted({sequence for found in values.values() for sequence in found}))
    shown = {m: tuple(fmean(found[s]) if found.get(s) else None for s in sequences) for m, found in values.items()}
    raised = ", ".join(method.name for method in methods if grid.is_raised(method, "mean"))
    warning = f" {RAISED} The order of tied distances alone raises the values of {raised}." if raised else ""
    note = f"mAP in %, mean over e, h, t. {HARDEST}{warning}"
    return PerSequence(f"{task.capitalize()} by sequence", sequences, shown, note=note)


def _precisions(part: Any) -> list[float]:
    """Every trapezoid AP of a sequence, at any depth; for verification only the imbalanced ones."""
    if not isinstance(part, Mapping):
        return []
    if "ap_trapezoid" in part:
        return [100 * float(part["ap_trapezoid"])]
    return [value for key, inner in part.items() if key != "balanced" for value in _precisions(inner)]
