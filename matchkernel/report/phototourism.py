"""PhotoTourism results as sections: false positives by training and test set (the paper's Table 2), ROC curves, mAP."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.report.blocks import Block, Curves, Grid, ReportedMethod, Section
from matchkernel.report.runs import ScoredRun, value_at

Columns = dict[str, tuple[str, str]]  # shown -> training set, test set
FPR_NOTE = "False positive rate at 95 % recall in %, lower is better; ties count as errors."
COMBINED_NOTE = (
    "A column names the training and the test set; a method trained on none of these sets has the same value for every "
    "training set. The mean is over all columns, its standard deviation over seeds."
)
KINDS = {
    "m50": "Matches, and as many random pairs of different points.",
    "m50hard": "Matches, and as many pairs of different points that RootSIFT finds similar, a handicap for SIFT.",
}
MAP_NOTE = (
    "Mean average precision in %: each patch ranks all others of its set; the other patches of its point are correct."
)


def phototourism_sections(runs: Sequence[ScoredRun]) -> list[Section]:
    """A section for each kind of pair list the runs were scored on, and one for retrieval.

    The kind of a list is its name before the first underscore: m50_100000_100000_0 and m50_50000_50000_0 are both m50.
    """
    _check_sets(runs)
    _check_training(runs)
    columns = _columns(runs)
    sections = []
    for kind in sorted({name.split("_")[0] for run in runs for name in run.result["pairs"]}):
        scored = {run: _list_of(run, kind) for run in runs if _list_of(run, kind)}
        blocks: list[Block] = [
            _grid("FPR@95", {run: f"pairs/{name}/fpr95" for run, name in scored.items()}, columns, lower_is_better=True)
        ]
        blocks += _curves(scored, columns)
        combined = COMBINED_NOTE if any(train_set for train_set, _ in columns.values()) else ""
        note = " ".join(word for word in (KINDS.get(kind), FPR_NOTE, combined) if word)
        sections.append(Section(f"Patch pairs, {kind}", tuple(blocks), note))
    ranked = [run for run in runs if run.result.get("retrieval_map") is not None]
    if ranked:
        _check_queries(ranked)
        grid = _grid("Retrieval mAP", dict.fromkeys(ranked, "retrieval_map"), columns, lower_is_better=False)
        sections.append(Section("Retrieval in patch sets", (grid,), MAP_NOTE))
    return sections


def _columns(runs: Sequence[ScoredRun]) -> Columns:
    """Every combination of training and test set; a test set by itself where nothing was trained for it.

    A training set gets columns if it is also a test set, or if one method was trained on several sets. A method
    trained on another set, or not trained at all, belongs in every column: it is never tested on its own data.
    """
    tests = {str(run.result["test_set"]) for run in runs}
    trained = {method: {run.train_set for run in runs if run.method == method} for method in {r.method for r in runs}}
    several = {name for sets in trained.values() if len(sets) > 1 for name in sets}
    sources = (tests | several) - {""}
    combined = sorted({(run.train_set, str(run.result["test_set"])) for run in runs if run.train_set in sources})
    alone = sorted(tests - {test for _, test in combined})
    return {f"{a} → {b}": (a, b) for a, b in combined} | {b: ("", b) for b in alone}


def _check_sets(runs: Sequence[ScoredRun]) -> None:
    """Refuse two test sets of the same name: scores on different data would share a column."""
    seen: dict[str, ScoredRun] = {}
    for run in runs:
        if run.result.get("data_sha256"):
            other = seen.setdefault(str(run.result["test_set"]), run)
            if other.result["data_sha256"] != run.result["data_sha256"]:
                raise ArgumentError(
                    f"{other.path} and {run.path}: two different test sets of the name {run.result['test_set']!r}"
                )


def _check_training(runs: Sequence[ScoredRun]) -> None:
    """Refuse results of one method of which only some name a training set: those without one would fit every column."""
    seen: dict[ReportedMethod, ScoredRun] = {}
    for run in runs:
        other = seen.setdefault(run.method, run)
        if bool(other.train_set) != bool(run.train_set):
            raise ArgumentError(
                f"{other.path} and {run.path}: only one of these results of {run.method.name!r} names a training set: "
                "rename one"
            )


def _check_queries(runs: Sequence[ScoredRun]) -> None:
    """Refuse retrieval scores of different queries: their number and the seed must be the same."""
    for run in runs[1:]:
        one, two = (_queries(each.result) for each in (runs[0], run))
        if one != two:
            raise ArgumentError(f"{runs[0].path} and {run.path}: retrieval of different queries ({one}; {two})")


def _queries(result: Mapping[str, Any]) -> str:
    if "retrieval_queries" not in result:
        return "not recorded"
    queries = result["retrieval_queries"]
    return "all" if queries is None else f"at most {queries}, seed {result.get('retrieval_seed')}"


def _grid(title: str, paths: Mapping[ScoredRun, str], columns: Columns, *, lower_is_better: bool) -> Grid:
    runs = list(paths)
    elsewhere = _elsewhere(runs, columns)
    rows: dict[ReportedMethod, dict[str, Spread]] = {}
    for method in dict.fromkeys(run.method for run in runs):
        members = [run for run in runs if run.method == method]
        by_seed = {shown: _by_seed(members, *pair, elsewhere) for shown, pair in columns.items()}
        values = {
            shown: {seed: value_at(run, paths[run]) for seed, run in part.items()} for shown, part in by_seed.items()
        }
        rows[method] = {shown: Spread(tuple(part.values())) for shown, part in values.items() if part}
        seeds = sorted(set.intersection(*(set(part) for part in values.values())))
        if seeds:
            rows[method]["mean"] = Spread(
                tuple(math.fsum(part[seed] for part in values.values()) / len(values) for seed in seeds)
            )
    shown = ("mean", *columns)
    is_whole = any("mean" in scores for scores in rows.values())
    bars = "mean" if is_whole else next(column for column in shown if any(column in row for row in rows.values()))
    words = f"mean of {len(columns)} columns" if len(columns) > 1 else next(iter(columns))
    words = words if bars == "mean" else f"chart of {bars}"
    note = f"{title} in %, {words}; {'lower' if lower_is_better else 'higher'} is better."
    return Grid(title, shown, rows, lower_is_better=lower_is_better, bars=bars, note=note)


def _list_of(run: ScoredRun, kind: str) -> str:
    """The run's list of that kind; empty where it has none."""
    names = [str(name) for name in run.result["pairs"] if name.split("_")[0] == kind]
    if len(names) > 1:
        raise ArgumentError(f"{run.path}: two pair lists of kind {kind!r}, {names[0]} and {names[1]}")
    return names[0] if names else ""


def _elsewhere(runs: Sequence[ScoredRun], columns: Columns) -> set[str]:
    return {run.train_set for run in runs} - {train_set for train_set, _ in columns.values()} | {""}


def _by_seed(runs: Sequence[ScoredRun], train_set: str, test_set: str, elsewhere: set[str]) -> dict[int, ScoredRun]:
    """The runs of one method on a test set, by seed; a method trained elsewhere or not at all is in every column."""
    found: dict[int, ScoredRun] = {}
    for run in runs:
        if run.result["test_set"] == test_set and run.train_set in (train_set, *elsewhere):
            other = found.setdefault(run.seed, run)
            if other is not run:
                raise ArgumentError(f"{other.path} and {run.path}: two results of {run.method.name!r} on {test_set!r}")
    return found


def _curves(lists: Mapping[ScoredRun, str], columns: Columns) -> list[Curves]:
    """A chart for each column, of the first seed, where the results hold curves."""
    charts, runs = [], list(lists)
    elsewhere = _elsewhere(runs, columns)
    for shown, pair in columns.items():
        curves = {}
        for method in dict.fromkeys(run.method for run in runs):
            by_seed = _by_seed([run for run in runs if run.method == method], *pair, elsewhere)
            run = by_seed[min(by_seed)] if by_seed else None
            if run is not None and run.result["pairs"][lists[run]].get("roc") is not None:
                curves[method] = _curve(run, lists[run])
        if curves:
            has_seeds = any(run.result.get("seed") is not None for run in runs)
            charts.append(Curves(f"ROC, {shown}", curves, "Only the first seed is shown." if has_seeds else ""))
    return charts


def _curve(run: ScoredRun, name: str) -> tuple[list[float], list[float]]:
    roc: Any = run.result["pairs"][name]["roc"]
    rates, recalls = (_side(roc.get(key)) for key in ("fpr", "tpr")) if isinstance(roc, Mapping) else ([], [])
    if not rates or len(rates) != len(recalls):
        raise FileError(f"{run.path}: not a complete result (pairs/{name}/roc is not fpr and tpr, rising from 0 to 1)")
    return rates, recalls


def _side(values: object) -> list[float]:
    """One axis of a curve; empty if it does not rise from 0 to 1."""
    if not isinstance(values, list) or not all(isinstance(x, int | float) and 0 <= x <= 1 for x in values):
        return []
    return values if values == sorted(values) else []
