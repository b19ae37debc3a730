"""What a report is made of: methods, their scores, and the blocks that show them; independent of any file format."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from matchkernel.evaluation.uncertainty import Spread

RAISED = "‡"
RAISED_NOTE = (
    f"{RAISED} The order of tied distances alone raises this value; its tie-safe value is the one that is compared."
)


@dataclass(frozen=True)
class ReportedMethod:
    """A descriptor as the report names it."""

    name: str
    parameters: int | None = None  # number of learned parameters; None if unknown
    hand_crafted: bool = False
    is_ours: bool = False
    configuration: str = ""  # of this package, if it is ours: a name must not stand for two configurations


@dataclass(frozen=True)
class Grid:
    """Methods by columns: a table, and a bar chart of the column named by `bars`."""

    title: str
    columns: tuple[str, ...]
    rows: Mapping[ReportedMethod, Mapping[str, Spread]]
    digits: int = 2
    lower_is_better: bool = False
    bars: str | None = None
    marks: tuple[str, ...] = ()  # further columns to mark on the bars, such as e, h, t
    note: str = ""
    safe: Mapping[ReportedMethod, Mapping[str, Spread]] = field(default_factory=dict)  # the values with ties as errors

    def is_raised(self, method: ReportedMethod, column: str) -> bool:
        """Whether ties raise a cell by a visible amount: such a value is marked and never the best."""
        safe = self.safe.get(method, {}).get(column)
        return safe is not None and self.rows[method][column].mean - safe.mean > 0.5 * 10.0**-self.digits

    @property
    def footnote(self) -> str:
        """What the mark means, if a cell has it."""
        is_any = any(self.is_raised(method, column) for method, scores in self.rows.items() for column in scores)
        return RAISED_NOTE if is_any else ""


@dataclass(frozen=True)
class Curves:
    """One curve per method: (fpr, tpr) in [0, 1], both rising."""

    title: str
    curves: Mapping[ReportedMethod, tuple[Sequence[float], Sequence[float]]]
    note: str = ""


@dataclass(frozen=True)
class PerSequence:
    """One value per method and sequence, in percent; None where a method has none."""

    title: str
    sequences: tuple[str, ...]
    values: Mapping[ReportedMethod, tuple[float | None, ...]]
    note: str = ""


@dataclass(frozen=True)
class TextTable:
    """A table of strings: the first column left-aligned, the others right-aligned."""

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""


@dataclass(frozen=True)
class Scatter:
    """A score in percent, with its deviation, against a cost, which has a logarithmic axis; one point per method."""

    title: str
    cost: str  # name of the axis
    points: Mapping[ReportedMethod, tuple[float, Spread]]
    note: str = ""


@dataclass(frozen=True)
class Picture:
    """A PNG, shown on the page only."""

    title: str
    png: bytes = field(repr=False)
    note: str = ""


Block = Grid | Curves | PerSequence | TextTable | Scatter | Picture


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


def by_parameters(methods: Sequence[ReportedMethod]) -> list[ReportedMethod]:
    """Sort by the number of parameters, unknown ones last; among equals, hand-crafted methods first, then by name."""
    return sorted(methods, key=lambda m: (m.parameters is None, m.parameters or 0, not m.hand_crafted, m.name))


def say_parameters(method: ReportedMethod) -> str:
    """The number of learned parameters as text: 433,568, or a dash if unknown."""
    return "–" if method.parameters is None else f"{method.parameters:,}"


def best_of(grid: Grid, column: str) -> float | None:
    """The best mean of a column, rounded as printed; None where there is only one value.

    A value that is raised by ties counts with its tie-safe value.
    """
    means = [
        round((grid.safe[method] if grid.is_raised(method, column) else scores)[column].mean, grid.digits)
        for method, scores in grid.rows.items()
        if column in scores
    ]
    if len(means) < 2:
        return None
    return min(means) if grid.lower_is_better else max(means)
