"""What a report is made of: methods, their scores, and the blocks that show them; independent of any file format.

Every block has a title, a note, a `table` (None if it has none) and its `numbers` for report.json.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.scores import ReportedMethod

RAISED = "‡"
RAISED_NOTE = (
    f"{RAISED} The order of tied distances alone raises this value; its tie-safe value is the one that is compared."
)
NOTHING = "–"  # in a cell without a value


class Best(str):
    """The text of a cell with the best value of its column."""


Table = tuple[Sequence[str], Sequence[Sequence[str]]]  # headings and rows


@dataclass(frozen=True)
class Block:
    """A part of a section."""

    title: str
    note: str = field(default="", kw_only=True)

    @property
    def footnote(self) -> str:
        """Said below its chart and table."""
        return ""

    def table(self) -> Table | None:
        """Headings and rows of text."""
        return None

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
    bars: str | None = None
    marks: tuple[str, ...] = ()  # further columns to mark on the bars, such as e, h, t
    safe: Mapping[ReportedMethod, Mapping[str, Spread]] = field(default_factory=dict)  # the values with ties as errors

    def is_raised(self, method: ReportedMethod, column: str) -> bool:
        """True if ties raise a cell by a visible amount: such a value is marked and never the best."""
        safe = self.safe.get(method, {}).get(column)
        return safe is not None and self.methods[method][column].mean - safe.mean > 0.5 * 10.0**-self.digits

    @property
    def footnote(self) -> str:
        """What the mark means, if a cell has it."""
        is_any = any(self.is_raised(method, column) for method, scores in self.methods.items() for column in scores)
        return RAISED_NOTE if is_any else ""

    def best(self, column: str) -> float | None:
        """The best mean of a column, rounded as printed; None where there is only one value.

        A value that is raised by ties counts with its tie-safe value.
        """
        means = [
            round((self.safe[method] if self.is_raised(method, column) else scores)[column].mean, self.digits)
            for method, scores in self.methods.items()
            if column in scores
        ]
        if len(means) < 2:
            return None
        return min(means) if self.lower_is_better else max(means)

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
    """One curve per method: (fpr, tpr) in [0, 1], both rising."""

    methods: Mapping[ReportedMethod, tuple[Sequence[float], Sequence[float]]]

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

    def table(self) -> Table:
        """One row per sequence."""
        methods = by_parameters(self.methods)
        columns = [[NOTHING if v is None else f"{v:.1f}" for v in self.methods[method]] for method in methods]
        rows = [list(row) for row in zip(self.sequences, *columns, strict=True)]
        return ["sequence", *(method.name for method in methods)], rows

    def numbers(self) -> dict[str, Any]:
        """Every value."""
        methods = [{**asdict(m), "values": list(self.methods[m])} for m in by_parameters(self.methods)]
        return {"kind": "sequences", "sequences": list(self.sequences), "methods": methods}


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
class Scatter(Block):
    """A score in percent, with its deviation, against a cost, which has a logarithmic axis; one point per method."""

    cost: str  # name of the axis
    methods: Mapping[ReportedMethod, tuple[float, Spread]]

    def numbers(self) -> dict[str, Any]:
        """Cost and score of every method."""
        points = [
            {**asdict(method), "cost": cost, "mean": score.mean, "std": score.std}
            for method, (cost, score) in sorted(self.methods.items(), key=lambda item: item[0].name)
        ]
        return {"kind": "scatter", "cost": self.cost, "points": points}


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


@dataclass(frozen=True)
class Report:
    """A complete report; `facts` record where its figures come from."""

    title: str
    sections: tuple[Section, ...]
    facts: tuple[tuple[str, str], ...] = ()
    warnings: tuple[str, ...] = ()


def by_parameters(methods: Iterable[ReportedMethod]) -> list[ReportedMethod]:
    """Sort by the number of parameters, unknown ones last; among equals, hand-crafted methods first, then by name."""
    return sorted(methods, key=lambda m: (m.parameters is None, m.parameters or 0, not m.hand_crafted, m.name))
