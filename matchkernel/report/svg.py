"""Inline SVG written without a library: the same bytes every time. Colours come from the page's style sheet."""

import math
from collections.abc import Sequence
from html import escape
from statistics import fmean

COLOURS = 8  # --c0 to --c7 of the style sheet
DASHES = ("", "6 3", "2 2", "8 2 2 2")
WIDTH = 420  # of every chart, in CSS pixels at full size; a phone shows it at 0.85


def drawing(number: int, height: float, title: str, description: str, parts: Sequence[str]) -> str:
    """A complete picture with a text alternative.

    Args:
        number: unique on the page; used in its ids.
        height: in units of WIDTH.
        title: short.
        description: what the picture shows.
        parts: elements.
    """
    head = (
        f'<svg class="chart" role="img" viewBox="0 0 {WIDTH} {_short(height)}" aria-labelledby="t{number} d{number}">'
        f'<title id="t{number}">{escape(title)}</title><desc id="d{number}">{escape(description)}</desc>'
    )
    return "\n".join([head, *parts, "</svg>"])


def line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    """A straight line of a class of the style sheet."""
    return f'<line class="{kind}" x1="{_short(x1)}" y1="{_short(y1)}" x2="{_short(x2)}" y2="{_short(y2)}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    """Text whose baseline starts, is centred or ends at (x, y)."""
    return f'<text class="{kind}" x="{_short(x)}" y="{_short(y)}" text-anchor="{anchor}">{escape(words)}</text>'


def rectangle(x: float, y: float, width: float, height: float, kind: str, fill: str = "") -> str:
    """A rectangle; `fill` overrides the style sheet's, such as a pattern."""
    style = f' style="fill:{fill}"' if fill else ""
    place = f'x="{_short(x)}" y="{_short(y)}" width="{_short(width)}" height="{_short(height)}"'
    return f'<rect class="{kind}" {place}{style}/>'


def path(points: Sequence[tuple[float, float]], index: int) -> str:
    """A line through points in the colour and dash of a series."""
    words = "L".join(f"{_short(x)} {_short(y)}" for x, y in points)
    return (
        f'<path class="curve" style="stroke:var(--c{index % COLOURS})" stroke-dasharray="{dash(index)}" d="M{words}"/>'
    )


def dot(x: float, y: float, index: int, words: str) -> str:
    """A point of a series, identified by colour and shape; `words` is its tooltip."""
    colour = f"var(--c{index % COLOURS})"
    fill = colour if index < COLOURS else "var(--page)"
    corners = SHAPES[index % len(SHAPES)]
    points = " ".join(f"{_short(x + dx)},{_short(y + dy)}" for dx, dy in corners)
    style = f"fill:{fill};stroke:{colour}"
    return f'<polygon class="dot" points="{points}" style="{style}"><title>{escape(words)}</title></polygon>'


def dash(index: int) -> str:
    """The dash pattern of a series: a new one each time the colours repeat."""
    return DASHES[(index // COLOURS) % len(DASHES)]


def hatch(number: int, kind: str) -> str:
    """A pattern of slanted lines in the colour of a class, with the id `hatch<number>-<kind>`."""
    return (
        f'<defs><pattern id="hatch{number}-{kind}" width="6" height="6" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect class="hatch-back" width="6" height="6"/>'
        f'<rect class="{kind}" width="2.6" height="6"/></pattern></defs>'
    )


def ticks(top: float) -> list[float]:
    """Round numbers from 0 to at least `top`, at most five steps."""
    if not top > 1e-6:
        return [0.0, 1.0]
    size = 10.0 ** math.floor(math.log10(top))
    step = next(size * factor for factor in (0.1, 0.2, 0.5, 1, 2, 5) if top <= 5 * size * factor * (1 + 1e-9))
    return [round(step * k, 10) for k in range(math.ceil(top / step - 1e-9) + 1)]


def apart(places: Sequence[float], gap: float) -> list[float]:
    """Places in the same order, moved as little as possible so that any two are `gap` or more from each other."""
    order = sorted(range(len(places)), key=places.__getitem__)
    groups: list[list[float]] = []  # of neighbours that touch: where each would have the group begin
    for rank, k in enumerate(order):
        groups.append([places[k] - rank * gap])
        while len(groups) > 1 and fmean(groups[-2]) > fmean(groups[-1]):
            groups[-2:] = [groups[-2] + groups[-1]]
    begins = [fmean(group) for group in groups for _ in group]
    moved = {k: begin + rank * gap for rank, (k, begin) in enumerate(zip(order, begins, strict=True))}
    return [moved[k] for k in range(len(places))]


def shortened(words: str, most: int) -> str:
    """Text shortened to `most` characters by leaving out its middle."""
    return words if len(words) <= most else f"{words[: most // 2]}…{words[-(most - most // 2 - 1) :]}"


def _polygon(corners: int, turn: float, radius: float) -> tuple[tuple[float, float], ...]:
    angles = [2 * math.pi * (k + turn) / corners for k in range(corners)]
    return tuple((radius * math.sin(angle), -radius * math.cos(angle)) for angle in angles)


SHAPES = (
    _polygon(16, 0, 3.6),  # looks like a disc
    _polygon(4, 0.5, 4.4),
    _polygon(3, 0, 4.6),
    _polygon(4, 0, 4.6),
    _polygon(3, 0.5, 4.6),
)


def _short(value: float) -> str:
    """A coordinate with one decimal at most."""
    words = f"{value:.1f}".removesuffix(".0")
    return "0" if words == "-0" else words
