"""What a report is made of: methods, their scores, and the blocks that show them; independent of any file format.

Every block has a title, a note, a table and a chart (None if it has none), and its `numbers` for report.json.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.canvas import BLACK, GRAY, add_legend, new_figure, plain
from matchkernel.plots.scores import SAFE, Bar, ReportedMethod, draw_scores
from matchkernel.report.headline import listed

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

RAISED = SAFE
RAISED_NOTE = (
    f"{RAISED} The order of tied distances alone raises this value; its tie-safe value is the one that is compared."
)
NOTHING = "–"  # in a cell without a value
WIDTH = 4.2  # inches of a chart, three of which stand side by side
LOWEST_RATE = 1e-4
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b08d00", "#e04050", "#333333", "#7a5bb5")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (7, 2, 1, 2)))


class Best(str):
    """The text of a cell with the best value of its column."""


Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # headings and rows
Chart = tuple["Figure", str]  # and a sentence that says what it shows
Series = Mapping[ReportedMethod, int]  # numbers the methods: each looks the same in every chart of a page


@dataclass(frozen=True)
class Block:
    """A part of a section."""

    title: str
    note: str = field(default="", kw_only=True)
    has_chart = False

    @property
    def footnote(self) -> str:
        """Said below its chart and table."""
        return ""

    def table(self) -> Table | None:
        """Headings and rows of text."""
        return None

    def chart(self, series: Series, width: float = WIDTH) -> Chart:
        """Its numbers as a picture, so many inches wide; of a block that has one."""
        raise NotImplementedError

    def numbers(self) -> dict[str, Any]:
        """What report.json holds besides title and note: full precision, every run."""
        raise NotImplementedError


@dataclass(frozen=True)
class Grid(Block):
    """Methods by columns: a table, and a bar chart of the column named by `bars`."""

    columns: tuple[str, ...]
    methods: Mapping[ReportedMethod, Mapping[str, Spread]]
    digits: int = 2
    lower_is_better: bool = False
    bars: str = ""
    marks: tuple[str, ...] = ()  # further columns to mark on the bars, such as e, h, t
    safe: Mapping[ReportedMethod, Mapping[str, Spread]] = field(default_factory=dict)  # the values with ties as errors

    @property
    def has_chart(self) -> bool:  # type: ignore[override]
        """True if a column is drawn."""
        return bool(self.bars)

    def is_raised(self, method: ReportedMethod, column: str) -> bool:
        """True if ties raise a cell by a visible amount: such a value is marked and never the best."""
        safe = self.safe.get(method, {}).get(column)
        return safe is not None and self.methods[method][column].mean - safe.mean > 0.5 * 10.0**-self.digits

    @property
    def footnote(self) -> str:
        """What the mark means, if a cell has it."""
        is_any = any(self.is_raised(method, column) for method, scores in self.methods.items() for column in scores)
        return RAISED_NOTE if is_any else ""

    def compared(self, method: ReportedMethod, column: str) -> Mapping[str, Spread]:
        """The scores of a method, the tie-safe ones where ties raise this column."""
        return (self.safe if self.is_raised(method, column) else self.methods)[method]

    def best(self, column: str) -> float | None:
        """The best mean of a column, rounded as printed; None where there is only one value."""
        known = [method for method, scores in self.methods.items() if column in scores]
        means = [round(self.compared(method, column)[column].mean, self.digits) for method in known]
        if len(means) < 2:
            return None
        return min(means) if self.lower_is_better else max(means)

    def summary(self, what: str) -> str:
        """A sentence such as `dual is best in matching: 51.24 %, sift 42.90 %.` on the best methods in the chart.

        Several are named together if they print equal, or if their deviations over runs overlap. They are compared with
        the best hand-crafted one of the others if they are learned, otherwise with the next.
        """
        bars = self.bars
        scores = {m: self.compared(m, bars)[bars] for m in self.methods if bars in self.methods[m]}
        order = sorted(scores, key=lambda m: (scores[m].mean if self.lower_is_better else -scores[m].mean, m.name))
        if len(order) < 2:
            return ""
        texts = {method: f"{scores[method].mean:.{self.digits}f} %" for method in order}
        first = order[0]
        best = [m for m in order if texts[m] == texts[first] or _overlap(scores[m], scores[first])]
        others = [method for method in order if method not in best]
        if not any(method.hand_crafted for method in best):
            others.sort(key=lambda method: not method.hand_crafted)
        found, last = texts[first], texts[best[-1]]
        verdict = "is best" if len(best) == 1 else "are best" if others else "are equally good"
        if last != found:
            found, verdict = f"{found} to {last}", "are no further apart than their runs"
        found = ", ".join([found, *(f"{method.name} {texts[method]}" for method in others[:1])])
        return f"{listed([method.name for method in best])} {verdict} in {what}: {found}."

    def table(self) -> Table:
        """One row per method; hand-crafted ones are marked with an h."""
        best = {column: self.best(column) for column in self.columns}
        rows = []
        for method in by_parameters(self.methods):
            cells = [method.name + " (h)" * method.hand_crafted, NOTHING]
            if method.parameters is not None:
                cells[1] = f"{method.parameters:,}"
            for column in self.columns:
                score = self.methods[method].get(column)
                text = NOTHING if score is None else score.text(self.digits)
                if score is not None and self.is_raised(method, column):
                    text = f"{text} {RAISED}"
                elif score is not None and round(score.mean, self.digits) == best[column]:
                    text = Best(text)
                cells.append(text)
            rows.append(cells)
        return ["method", "parameters", *self.columns], rows

    def chart(self, series: Series, width: float = WIDTH) -> Chart:
        """Bars sorted by parameters, with the deviation over runs; tie-safe values where ties raise one."""
        column = self.bars
        bars, seen = [], []
        for method in by_parameters([method for method, scores in self.methods.items() if column in scores]):
            scores = self.compared(method, column)
            marks = {mark: scores[mark].mean for mark in self.marks if mark in scores}
            bars.append(Bar(method, [scores[column]], is_tie_safe=self.is_raised(method, column), marks=marks))
            seen.append(f"{method.name} {scores[column].text(self.digits)}")
        better = "lower is better" if self.lower_is_better else "higher is better"
        figure = draw_scores(bars, [f"{column} (%)"], width=width)
        return figure, f"Bars of {column}, {better}: {', '.join(seen)}."

    def numbers(self) -> dict[str, Any]:
        """Mean, deviation and runs of every cell."""
        rows = []
        for method in by_parameters(self.methods):
            scores: dict[str, Any] = {}
            for column, score in self.methods[method].items():
                scores[column] = {"mean": score.mean, "std": score.std, "runs": list(score.values)}
                if column in self.safe.get(method, {}):
                    scores[column]["tie_safe"] = list(self.safe[method][column].values)
            rows.append({**asdict(method), "scores": scores})
        return {"kind": "table", "columns": list(self.columns), "rows": rows}


@dataclass(frozen=True)
class Curves(Block):
    """One ROC curve per method: (fpr, tpr) in [0, 1], both rising."""

    methods: Mapping[ReportedMethod, tuple[Sequence[float], Sequence[float]]]
    has_chart = True

    def chart(self, series: Series, width: float = WIDTH) -> Chart:
        """The false positive rate on a logarithmic axis, with a line at a recall of 95 %."""
        figure, axes = _axes(width, 3.6)
        for method in by_parameters(self.methods):
            rates, recalls = self.methods[method]
            dashes: Any = DASHES[series[method] // len(COLOURS) % len(DASHES)]
            shown = [max(100 * rate, 100 * LOWEST_RATE) for rate in rates]
            curve = axes.plot(shown, [100 * recall for recall in recalls], label=plain(method.name, 24), linewidth=1.6)
            curve[0].set(color=COLOURS[series[method] % len(COLOURS)], linestyle=dashes)
        axes.axhline(95, color=BLACK, linewidth=0.8, linestyle=(0, (4, 3)))
        axes.set(xscale="log", xlim=(100 * LOWEST_RATE, 100), xlabel="false positive rate (%)", ylabel="recall (%)")
        add_legend(figure, len(self.methods), "upper", 10)
        return figure, f"Recall over false positive rate for {', '.join(method.name for method in self.methods)}."

    def numbers(self) -> dict[str, Any]:
        """Every point."""
        curves = []
        for method in by_parameters(self.methods):
            rates, recalls = (list(map(float, side)) for side in self.methods[method])
            curves.append({**asdict(method), "fpr": rates, "tpr": recalls})
        return {"kind": "curves", "curves": curves}


@dataclass(frozen=True)
class PerSequence(Block):
    """One value per method and sequence, in percent; None where a method has none."""

    sequences: tuple[str, ...]
    methods: Mapping[ReportedMethod, tuple[float | None, ...]]
    has_chart = True

    def table(self) -> Table:
        """One row per sequence."""
        methods = by_parameters(self.methods)
        columns = [[NOTHING if v is None else f"{v:.1f}" for v in self.methods[method]] for method in methods]
        rows = [[name, *bold_best(row)] for name, *row in zip(self.sequences, *columns, strict=True)]
        return ["sequence", *(method.name for method in methods)], rows

    def chart(self, series: Series, width: float = WIDTH) -> Chart:
        """One row per sequence, one point per method, sequences sorted by their mean, the hardest last."""
        methods, count = by_parameters(self.methods), len(self.sequences)
        order = sorted(range(count), key=lambda k: (-self._mean(k), self.sequences[k]))
        figure, axes = _axes(width, 0.2 * count + 1.2)
        for method in methods:
            values = [math.nan if (value := self.methods[method][k]) is None else value for k in order]
            axes.plot(values, range(count), linestyle="", label=plain(method.name, 24), **_point(series[method]))
        axes.set_yticks(range(count), [plain(self.sequences[k], 24) for k in order], fontsize=8)
        axes.set(xlim=(0, 100), ylim=(count - 0.4, -0.6), xlabel="%")
        add_legend(figure, len(methods), "upper", 10)
        names = ", ".join(method.name for method in methods)
        return figure, f"One row for each of {count} sequences with a point for each of {names}."

    def _mean(self, k: int) -> float:
        known = [value for values in self.methods.values() if (value := values[k]) is not None]
        return math.fsum(known) / len(known) if known else -1.0

    def numbers(self) -> dict[str, Any]:
        """Every value."""
        methods = [{**asdict(m), "values": list(self.methods[m])} for m in by_parameters(self.methods)]
        return {"kind": "sequences", "sequences": list(self.sequences), "methods": methods}


@dataclass(frozen=True)
class Scatter(Block):
    """A score in percent, with its deviation, against a cost; one point per method."""

    cost: str  # name of the axis, logarithmic where costs differ by more than a factor of ten
    methods: Mapping[ReportedMethod, tuple[float, Spread]]
    score: str  # name of the other axis
    has_chart = True

    def chart(self, series: Series, width: float = WIDTH) -> Chart:
        """One point per method, its deviation as a vertical line."""
        figure, axes = _axes(width, 3.8)
        seen = []
        for method in by_parameters(self.methods):
            cost, score = self.methods[method]
            look = {**_point(series[method]), "label": plain(method.name, 24), "linestyle": ""}
            axes.errorbar(cost, score.mean, yerr=score.std, ecolor=look["color"], **look)
            seen.append(f"{method.name} {score.text(1)} at {cost:.3g}")
        costs = [cost for cost, _ in self.methods.values()]
        axes.set(xlabel=self.cost, ylabel=self.score)
        if max(costs) > 10 * min(costs):
            axes.set_xscale("log", subs=())
            if max(costs) < 1000 * min(costs):
                axes.set_xticks([digit * 10.0**k for k in range(-5, 7) for digit in (1, 2, 5)])
            axes.set_xlim(min(costs) / 1.4, max(costs) * 1.4)
        axes.xaxis.set_major_formatter("{x:g}")
        add_legend(figure, len(self.methods), "upper", 10)
        return figure, f"Points, up and to the left is better: {', '.join(seen)}."

    def numbers(self) -> dict[str, Any]:
        """Cost and score of every method."""
        points = [
            {**asdict(method), "cost": cost, "mean": score.mean, "std": score.std}
            for method, (cost, score) in sorted(self.methods.items(), key=lambda item: item[0].name)
        ]
        return {"kind": "scatter", "cost": self.cost, "points": points}


@dataclass(frozen=True)
class TextTable(Block):
    """A table of strings: the first column left-aligned, the others right-aligned."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def table(self) -> Table:
        """Its head and rows."""
        return self.head, self.rows

    def numbers(self) -> dict[str, Any]:
        """Its head and rows."""
        return {"kind": "text", "head": list(self.head), "rows": [list(row) for row in self.rows]}


@dataclass(frozen=True)
class Picture(Block):
    """A PNG, shown on the page only."""

    png: bytes = field(repr=False)

    def numbers(self) -> dict[str, Any]:
        """None: a picture is for people."""
        return {"kind": "picture"}


@dataclass(frozen=True)
class Section:
    """A heading, a note, and the blocks under it."""

    title: str
    blocks: tuple[Block, ...]
    note: str = ""
    summary: str = ""  # what was found, for the beginning of the page


@dataclass(frozen=True)
class Report:
    """A complete report; `facts` record where its figures come from."""

    title: str
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def lead(self) -> tuple[str, ...]:
        """What was found, one or two sentences of each section: the beginning of the page."""
        return tuple(section.summary for section in self.sections if section.summary)

    def how_to_read(self) -> str:
        """What bars, marks and bold values mean, as far as the page has them."""
        blocks = [block for section in self.sections for block in section.blocks]
        grids = [block for block in blocks if isinstance(block, Grid)]
        bars = [method for grid in grids if grid.has_chart for method in grid.methods]
        spread = any(len(s.values) > 1 for grid in grids for scores in grid.methods.values() for s in scores.values())
        said = {
            "Bars are sorted by the number of learned parameters.": len(set(bars)) > 1,
            "Those of this package are below the others.": len({method.is_ours for method in bars}) > 1,
            "Hatched bars are hand-crafted.": any(method.hand_crafted for method in bars),
            "Whiskers and ± are one standard deviation over runs, with n - 1.": spread,
            "(h) marks hand-crafted methods.": any(method.hand_crafted for grid in grids for method in grid.methods),
            "Bold is the best value.": any(
                isinstance(cell, Best) for grid in grids for row in grid.table()[1] for cell in row
            ),
            f"{RAISED} marks values that ties raise: their bars show the tie-safe value, and they are never bold.": any(
                grid.footnote for grid in grids
            ),
        }
        return " ".join(sentence for sentence, is_here in said.items() if is_here)

    @property
    def series(self) -> Series:
        """The number of each method in all charts."""
        blocks = [block for section in self.sections for block in section.blocks]
        methods = {method for block in blocks for method in getattr(block, "methods", ())}
        return {method: number for number, method in enumerate(by_parameters(methods))}


def bold_best(texts: Sequence[str], lower_is_better: bool = False) -> list[str]:
    """Cells that are compared, the best marked; each begins with its number, or has none. One alone is not the best."""
    numbers = [float(text.split()[0]) for text in texts if text != NOTHING]
    best = (min if lower_is_better else max)(numbers) if len(numbers) > 1 else None
    return [Best(text) if text != NOTHING and float(text.split()[0]) == best else text for text in texts]


def by_parameters(methods: Iterable[ReportedMethod]) -> list[ReportedMethod]:
    """Sort by the number of parameters, unknown ones last; among equals, hand-crafted methods first, then by name."""
    return sorted(methods, key=lambda m: (m.parameters is None, m.parameters or 0, not m.hand_crafted, m.name))


def _overlap(one: Spread, other: Spread) -> bool:
    """True if the deviations of two scores over their runs overlap."""
    return abs(one.mean - other.mean) <= (one.std or 0) + (other.std or 0)


def _axes(width: float, height: float) -> tuple["Figure", "Axes"]:
    figure = new_figure(width, height)
    axes = figure.subplots()
    axes.grid(color=GRAY, alpha=0.3, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    return figure, axes


def _point(number: int) -> dict[str, Any]:
    """Colours repeat after eight, shapes after seven: fifty-six looks, and those from eight on are hollow."""
    colour = COLOURS[number % len(COLOURS)]
    filling = colour if number < len(COLOURS) else "white"
    return {"marker": MARKERS[number % len(MARKERS)], "color": colour, "markerfacecolor": filling, "markersize": 5}
