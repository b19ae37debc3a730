"""PhotoTourism results as sections: false positives by training and test set (the paper's Table 2), ROC curves, mAP."""

from collections.abc import Mapping, Sequence
from statistics import fmean

from matchkernel.data.patch_set import PROTOCOL, kind_of, named_lists
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.scores import ReportedMethod
from matchkernel.report.blocks import Curves, Grid, Section
from matchkernel.report.runs import ScoredRun, refuse_conflicts, value_at

Columns = dict[str, tuple[str, str]]  # heading -> training set, test set
Table = dict[ReportedMethod, dict[str, dict[int, ScoredRun]]]  # method -> column -> seed -> its result
FPR_NOTE = "False positive rate at 95 % recall in %, lower is better; ties count as errors."
COMBINED_NOTE = (
    "A column names the training and the test set; a method trained on none of these sets has the same value for every "
    "training set. The mean is over all columns, its standard deviation over seeds."
)
AMONG_NOTE = f"Where a set has several lists, this is {PROTOCOL}, the one that papers report."
FPR = "telling wrong pairs (the share taken for right ones when 95 % of those are found)"
KINDS = {
    "m50": "Matches, and as many random pairs of different points.",
    "m50hard": "Matches, and as many pairs of different points that RootSIFT finds similar, a handicap for SIFT.",
}
MAP_NOTE = (
    "Mean average precision in %: each patch ranks all others of its set; the other patches of its point are correct."
)


def phototourism_sections(runs: Sequence[ScoredRun]) -> list[Section]:
    """A section for each pair list that the runs were scored on, by its short name, and one for retrieval."""
    refuse_conflicts(
        [run for run in runs if run.result.get("data_sha256")],
        same=lambda run: run.result["test_set"],
        must_agree=lambda run: run.result["data_sha256"],
        reason=lambda run: f"two different test sets of the name {run.result['test_set']!r}",
    )
    refuse_conflicts(  # a result without a training set would fit every column
        runs,
        same=lambda run: run.method,
        must_agree=lambda run: bool(run.train_set),
        reason=lambda run: f"only one of these results of {run.method.name!r} names a training set: rename one",
    )
    columns = _columns(runs)
    sections = []
    named = {run: named_lists(run.result["pairs"]) for run in runs}
    for short in sorted({short for own in named.values() for short in own}, key=lambda name: (len(name), name)):
        lists = {run: own[short] for run, own in named.items() if short in own}
        table = _table(list(lists), columns)
        grid = _grid("FPR@95", table, {run: f"pairs/{name}/fpr95" for run, name in lists.items()}, lower_is_better=True)
        combined = COMBINED_NOTE if any(train_set for train_set, _ in columns.values()) else ""
        among = AMONG_NOTE if any(len(named[run]) > 1 and name == PROTOCOL for run, name in lists.items()) else ""
        note = " ".join(text for text in (KINDS.get(kind_of(short)), among, FPR_NOTE, combined) if text)
        blocks = (grid, *_curves(table, lists, columns))
        sections.append(Section(f"Patch pairs, {short}", blocks, note, grid.summary(FPR)))
    ranked = [run for run in runs if run.result.get("retrieval_map") is not None]
    if ranked:
        refuse_conflicts(
            ranked,
            same=lambda run: None,
            must_agree=_queries,
            reason=lambda run: f"retrieval of different queries ({_queries(ranked[0])}; {_queries(run)})",
        )
        paths = dict.fromkeys(ranked, "retrieval_map")
        grid = _grid("Retrieval mAP", _table(ranked, columns), paths, lower_is_better=False)
        sections.append(Section("Retrieval in patch sets", (grid,), MAP_NOTE, grid.summary("retrieval (mAP)")))
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


def _table(runs: Sequence[ScoredRun], columns: Columns) -> Table:
    """The results by method, column and seed; a method trained elsewhere or not at all is in every column."""
    elsewhere = {run.train_set for run in runs} - {train_set for train_set, _ in columns.values()} | {""}
    table: Table = {run.method: {column: {} for column in columns} for run in runs}
    for run in runs:
        for column, (train_set, test_set) in columns.items():
            if run.result["test_set"] == test_set and run.train_set in (train_set, *elsewhere):
                other = table[run.method][column].setdefault(run.seed, run)
                if other is not run:
                    what = f"two results of {run.method.name!r} on {test_set!r}"
                    raise ArgumentError(f"{other.path} and {run.path}: {what}")
    return table


def _grid(title: str, table: Table, paths: Mapping[ScoredRun, str], *, lower_is_better: bool) -> Grid:
    rows: dict[ReportedMethod, dict[str, Spread]] = {}
    columns = next(iter(table.values()))
    for method, found in table.items():
        values = {c: {seed: value_at(run, paths[run]) for seed, run in by_seed.items()} for c, by_seed in found.items()}
        rows[method] = {column: Spread(tuple(part.values())) for column, part in values.items() if part}
        seeds = sorted(set.intersection(*map(set, values.values())))
        if seeds:
            rows[method]["mean"] = Spread(tuple(fmean(part[seed] for part in values.values()) for seed in seeds))
    shown = ("mean", *columns)
    bars = next(column for column in shown if any(column in row for row in rows.values()))
    what = f"mean of {len(columns)} columns" if len(columns) > 1 else next(iter(columns))
    what = what if bars == "mean" else f"chart of {bars}"
    note = f"{title} in %, {what}; {'lower' if lower_is_better else 'higher'} is better."
    return Grid(title, shown, rows, lower_is_better=lower_is_better, bars=bars, note=note)


def _queries(run: ScoredRun) -> str:
    """Which patches were queries: retrieval scores of different queries cannot be compared."""
    if "retrieval_queries" not in run.result:
        return "not recorded"
    queries = run.result["retrieval_queries"]
    return "all" if queries is None else f"at most {queries}, seed {run.result.get('retrieval_seed')}"


def _curves(table: Table, lists: Mapping[ScoredRun, str], columns: Columns) -> list[Curves]:
    """A chart for each column, of the first seed, where the results hold curves."""
    note = "Only the first seed is shown." if any(run.result.get("seed") is not None for run in lists) else ""
    charts = []
    for column in columns:
        first = {method: found[column][min(found[column])] for method, found in table.items() if found[column]}
        found = {method: run.result["pairs"][lists[run]].get("roc") for method, run in first.items()}
        curves = {method: (roc["fpr"], roc["tpr"]) for method, roc in found.items() if roc is not None}
        if curves:
            charts.append(Curves(f"ROC, {column}", curves, note=note))
    return charts
