"""What all pictures share: the figure, the colours, and writing it as PNG or SVG."""

import io
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matchkernel.storage.extras import need
from matchkernel.storage.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BLACK, BLUE, ORANGE, GREEN, GRAY, PURPLE = "#1a1a1a", "#0072b2", "#d55e00", "#009e73", "#8a8a8a", "#cc79a7"
DIVERGING = "RdBu_r"


def new_figure(width: float, height: float) -> "Figure":
    """An empty figure of this size in inches, independent of pyplot and of any screen."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it would warn of a home that cannot be written
    figure: Figure = need("matplotlib.figure", "plots", "drawing pictures").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure


def add_legend(figure: "Figure", count: int, place: str, fontsize: int, **content: Any) -> None:
    """A legend above or below, in as many rows as its `count` entries need; the figure grows by all but the first."""
    columns = min(count, int(figure.get_figwidth() / 2))
    more = -(-count // columns) - 1
    figure.set_figheight(figure.get_figheight() + more * 1.6 * fontsize / 72)
    look: Any = {"loc": f"outside {place} center", "ncols": columns, "frameon": False, "fontsize": fontsize}
    figure.legend(**content, **look)


def mathtext(symbol: str) -> str:
    """A symbol of the paper, such as ⋆ψ^c, in matplotlib's notation."""
    base, caret, raised = symbol.partition("^")
    star = r"^{\bigstar}" * base.startswith("⋆")
    return rf"${star}\psi^{{{raised}}}$" if caret else symbol


def plain(text: str, longest: int = 60) -> str:
    """Text that matplotlib must not read as mathematics; the middle of a long one is left out."""
    if len(text) > longest:
        text = f"{text[: longest // 2]}…{text[-(longest - longest // 2 - 1) :]}"
    return text.replace("$", r"\$")


def save_png(figure: "Figure", path: str | Path) -> None:
    """Write a figure as PNG, atomically; the same figure gives the same bytes."""
    with replacing(path) as part:
        figure.savefig(part, dpi=120, format="png", metadata={"Software": None}, facecolor="white")


def svg_of(figure: "Figure") -> bytes:
    """A figure as SVG without scripts; the same figure gives the same bytes."""
    matplotlib = need("matplotlib", "plots", "drawing pictures")
    file = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "matchkernel"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return file.getvalue()
