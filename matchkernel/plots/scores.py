"""Scores sorted by the number of parameters, as in the paper's Figures 3 and 4: as bars, or as points close up."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.uncertainty import Spread
from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, ORANGE, add_legend, mathtext, new_figure, plain
from matchkernel.runtime.config import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_BARS = 60
SAFE = "‡"  # after a name


@dataclass(frozen=True)
class ReportedMethod:
    """A descriptor as tables and charts name it."""

    name: str
    parameters: int | None = None  # number of learned parameters; None if unknown
    hand_crafted: bool = False  # nothing in it but perhaps a whitening is learned: a striped bar
    is_ours: bool = False  # trained by this package; others are set apart
    configuration: str = ""  # of this package, if it is ours: a name must not stand for two configurations


@dataclass(frozen=True)
class Bar:
    """A method with its scores in percent."""

    method: ReportedMethod
    scores: Sequence[Spread | None]  # one for each panel; None where there is none
    is_tie_safe: bool = False  # ties would raise a score: its tie-safe value is shown, marked
    # Letters of further scores, such as those of easy, hard and tough patches; for charts of one panel.
    marks: Mapping[str, float] = field(default_factory=dict)


def draw_scores(
    bars: Sequence[Bar], panels: Sequence[str], title: str = "", zoom: bool = False, width: float | None = None
) -> "Figure":
    """A panel for each score, a row for each method: others above, ours below, each sorted by parameters.

    With `zoom`, points on an axis that spans the scores, instead of bars from 0.
    """
    if not 0 < len(bars) <= MAX_BARS:
        raise ArgumentError(f"a chart shows 1 to {MAX_BARS} methods, got {len(bars)}")
    order = sorted(bars, key=lambda bar: (bar.method.parameters is None, bar.method.parameters or 0))
    others, ours = ([bar for bar in order if bar.method.is_ours == own] for own in (False, True))
    places = [*range(len(others)), *(len(others) + (0.8 if others and ours else 0) + k for k in range(len(ours)))]
    rows = [*others, *ours]
    row = 0.42 if any(bar.marks for bar in bars) else 0.27  # inches
    figure = new_figure(width or 3.4 * len(panels) + 2.4, row * (max(places) + 1) + 1.0)
    sheets = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for number, (axes, name) in enumerate(zip(sheets, panels, strict=True)):
        for place, bar in zip(places, rows, strict=True):
            _draw_score(axes, place, bar, bar.scores[number], zoom)
            for letter, value in bar.marks.items():
                axes.text(value, place + 0.36, letter, ha="center", va="top", fontsize=7)
        axes.set_title(name, fontsize=11, loc="left")
        shown = [score for bar in rows if (score := bar.scores[number]) is not None]
        low, high = _limits(shown, zoom)
        axes.set_xlim(low, max([high, *(1.05 * value for bar in rows for value in bar.marks.values())]))
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="x", color=GRAY, alpha=0.25, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(axis="y", length=0)
        note = "; not from 0" if zoom else ""
        note += f"; {SAFE}: ties as errors" if any(bar.is_tie_safe for bar in rows) else ""
        axes.set_xlabel(f"mAP (%{note})" if width is None else note.removeprefix("; "), fontsize=9)
    sheets[0].set_yticks(places, [_label(bar, 60 if width is None else 24) for bar in rows], fontsize=9)
    sheets[0].invert_yaxis()
    sheets[0].set_ylim(max(places) + 0.6, -0.6)
    kinds = dict.fromkeys(_kind(bar.method) for bar in rows)
    handles = [sheets[0].barh(0, 0, color=colour, hatch=hatch, edgecolor=GRAY) for _, colour, hatch in kinds]
    add_legend(figure, len(kinds), "lower", 9, handles=handles, labels=[name for name, *_ in kinds])
    figure.suptitle(plain(title, 200), fontsize=12)
    return figure


def _label(bar: Bar, longest: int) -> str:
    name = f"{bar.method.name} {SAFE}" if bar.is_tie_safe else bar.method.name
    parameters = "–" if bar.method.parameters is None else f"{bar.method.parameters:,}"
    return f"{plain(name, longest)}{_symbol(bar.method)}   {parameters}"


def _symbol(method: ReportedMethod) -> str:
    """The paper's, of its descriptors: sums without codes (s = 0) have none."""
    variant, *settings = method.configuration.split("-")
    return f"  {mathtext(VARIANTS[variant].symbol)}" if variant in VARIANTS and "s0" not in settings else ""


def _kind(method: ReportedMethod) -> tuple[str, str, str | None]:
    """What the legend calls it, its colour, and its hatch."""
    if method.configuration.startswith("fc-"):  # the paper's baseline
        return "this package: fc (HardNet+)", ORANGE, None
    if method.is_ours:
        return "this package", BLUE, None
    if method.hand_crafted:
        return "hand-crafted", "white", "////"
    return ("descriptor files", GRAY, None) if method.parameters is None else ("others, learned", GREEN, None)


def _limits(scores: Sequence[Spread], zoom: bool) -> tuple[float, float]:
    """The ends of an axis, with room for the values."""
    high = max([1.0, *(score.mean + (score.std or 0) for score in scores)])
    if not zoom:
        return 0.0, 1.13 * high
    low = min([high - 1.0, *(score.mean - (score.std or 0) for score in scores)])
    return low - 0.06 * (high - low), high + 0.18 * (high - low)


def _draw_score(axes: "Axes", place: float, bar: Bar, score: Spread | None, zoom: bool) -> None:
    if score is None:
        return
    _, colour, hatch = _kind(bar.method)
    if zoom:
        axes.plot(score.mean, place, "o", color=colour, markeredgecolor=GRAY, markersize=7)
    else:
        axes.barh(place, score.mean, height=0.74, color=colour, linewidth=0.8, hatch=hatch, edgecolor=GRAY)
    if score.std is not None:
        axes.errorbar(score.mean, place, xerr=score.std, color=BLACK, linewidth=1.1, capsize=2)
    end, offset = (score.mean + (score.std or 0), place), (6 if zoom else 4, 0)
    axes.annotate(f"{score.mean:.1f}", end, offset, textcoords="offset points", va="center", fontsize=8)
