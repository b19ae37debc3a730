"""The charts of a report: bars of scores, ROC curves, one row of points per sequence, scores against costs.

Each returns a figure and a sentence that says what it shows.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchkernel.errors import ArgumentError
from matchkernel.plots.canvas import BLACK, GRAY, new_figure, plain
from matchkernel.plots.scores import Bar, ReportedMethod, draw_scores
from matchkernel.report.blocks import Curves, Grid, PerSequence, Scatter, by_parameters
from matchkernel.report.hpatches import HEADLINES, hpatches_sections
from matchkernel.report.runs import read_runs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 4.2  # inches
LOWEST_RATE = 1e-4
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b08d00", "#e04050", "#333333", "#7a5bb5")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1, 2)))
Series = Mapping[ReportedMethod, int]  # numbers the methods: each looks the same in every chart of a page


def score_bars(paths: Sequence[str | Path]) -> tuple[list[Bar], list[str]]:
    """Bars of HPatches results for `plots.scores`, and the tasks they are scored in.

    Args:
        paths: results of `matchkernel evaluate hpatches`, or folders of them; all on the same set, splits and tasks.
    """
    runs = [run for run in read_runs(paths) if run.result["kind"] == "hpatches"]
    if not runs:
        raise ArgumentError("no results of `matchkernel evaluate hpatches` among these files")
    sections = hpatches_sections(runs)
    if len(sections) > 1:
        titles = "; ".join(section.title for section in sections)
        raise ArgumentError(
            f"these results cannot share a chart: {titles}; give those of one set, split, distance and choice of tasks"
        )
    grids = {block.title.lower(): block for block in sections[0].blocks if isinstance(block, Grid)}
    tasks = [task for task in HEADLINES if task in grids]
    bars = [_bar(method, [grids[task] for task in tasks], "mean") for method in grids[tasks[0]].methods]
    return bars, tasks


def bar_chart(grid: Grid, series: Series) -> tuple["Figure", str]:
    """Bars of one column, sorted by parameters, with the deviation over runs; tie-safe values where ties raise one."""
    column = grid.bars or grid.columns[0]
    methods = by_parameters([method for method, scores in grid.methods.items() if column in scores])
    bars = [_bar(method, [grid], column) for method in methods]
    seen = ", ".join(f"{bar.method.name} {bar.scores[0].text(grid.digits)}" for bar in bars if bar.scores[0])
    better = "lower is better" if grid.lower_is_better else "higher is better"
    return draw_scores(bars, [f"{column} (%)"], width=WIDTH), f"Bars of {column}, {better}: {seen}."


def _bar(method: ReportedMethod, grids: Sequence[Grid], column: str) -> Bar:
    raised = [grid.is_raised(method, column) for grid in grids]
    rows = [(grid.safe if is_raised else grid.methods)[method] for grid, is_raised in zip(grids, raised, strict=True)]
    marks = {mark: rows[0][mark].mean for mark in grids[0].marks if mark in rows[0]} if len(grids) == 1 else {}
    return Bar(method, [row.get(column) for row in rows], is_tie_safe=any(raised), marks=marks)


def curve_chart(block: Curves, series: Series) -> tuple["Figure", str]:
    """ROC curves, the false positive rate on a logarithmic axis, with a line at a recall of 95 %."""
    figure, axes = _axes(3.6)
    for method in by_parameters(block.methods):
        rates, recalls = block.methods[method]
        dashes: Any = DASHES[series[method] // len(COLOURS) % len(DASHES)]
        shown = [max(100 * rate, 100 * LOWEST_RATE) for rate in rates]
        curve = axes.plot(shown, [100 * recall for recall in recalls], label=plain(method.name, 24), linewidth=1.6)
        curve[0].set(color=COLOURS[series[method] % len(COLOURS)], linestyle=dashes)
    axes.axhline(95, color=BLACK, linewidth=0.8, linestyle=(0, (4, 3)))
    axes.set(xscale="log", xlim=(100 * LOWEST_RATE, 100), xlabel="false positive rate (%)", ylabel="recall (%)")
    _legend(figure, len(block.methods))
    return figure, f"Recall over false positive rate for {', '.join(method.name for method in block.methods)}."


def sequence_chart(block: PerSequence, series: Series) -> tuple["Figure", str]:
    """One row per sequence, one point per method, sequences sorted by their mean, the hardest last."""
    methods, count = by_parameters(block.methods), len(block.sequences)
    order = sorted(range(count), key=lambda k: (-_row_mean(block, k), block.sequences[k]))
    figure, axes = _axes(0.2 * count + 1.2)
    for method in methods:
        values = [math.nan if (value := block.methods[method][k]) is None else value for k in order]
        axes.plot(values, range(count), linestyle="", label=plain(method.name, 24), **_point(series[method]))
    axes.set_yticks(range(count), [plain(block.sequences[k], 24) for k in order], fontsize=8)
    axes.set(xlim=(0, 100), ylim=(count - 0.4, -0.6), xlabel="%")
    _legend(figure, len(methods))
    names = ", ".join(method.name for method in methods)
    return figure, f"One row for each of {count} sequences with a point for each of {names}; a table has the values."


def _row_mean(block: PerSequence, k: int) -> float:
    known = [value for values in block.methods.values() if (value := values[k]) is not None]
    return math.fsum(known) / len(known) if known else -1.0


def scatter_chart(block: Scatter, series: Series) -> tuple["Figure", str]:
    """One point per method, its deviation as a vertical line; up and to the left is better."""
    figure, axes = _axes(3.8)
    methods = by_parameters(block.methods)
    for method in methods:
        cost, score = block.methods[method]
        look = _point(series[method])
        axes.errorbar(
            cost, score.mean, yerr=score.std, label=plain(method.name, 24), linestyle="", ecolor=look["color"], **look
        )
    axes.set(xscale="log", xlabel=block.cost, ylabel="%")
    axes.xaxis.set_major_formatter("{x:g}")
    _legend(figure, len(methods))
    seen = ", ".join(f"{m.name} {block.methods[m][1].text(1)} at {block.methods[m][0]:.3g}" for m in methods)
    return figure, f"Points, up and to the left is better: {seen}."


CHARTS: dict[type, Callable[[Any, Series], tuple["Figure", str]]] = {
    Grid: bar_chart, Curves: curve_chart, PerSequence: sequence_chart, Scatter: scatter_chart,
}  # fmt: skip


def _axes(height: float) -> tuple["Figure", "Axes"]:
    figure = new_figure(WIDTH, height)
    axes = figure.subplots()
    axes.grid(color=GRAY, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _legend(figure: "Figure", count: int) -> None:
    figure.legend(loc="outside upper center", ncols=min(count, 2), frameon=False, fontsize=8)


def _point(number: int) -> dict[str, Any]:
    """Colours repeat after eight, shapes after seven: fifty-six looks, and those from eight on are hollow."""
    colour = COLOURS[number % len(COLOURS)]
    filling = colour if number < len(COLOURS) else "white"
    return {"marker": MARKERS[number % len(MARKERS)], "color": colour, "markerfacecolor": filling, "markersize": 5}
