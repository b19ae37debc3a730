"""matchkernel demo"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import plain_table, say, show_table


def demo(out: Annotated[Path, typer.Option("--out", "-o", help="folder for the pictures")] = Path("out/demo")) -> None:
    """Match a stereo pair and a rotated, smaller copy, both with known ground truth, and draw the matches."""
    from matchkernel.plots.demo import PIXELS, run_demo

    rows = run_demo(out)
    headings = ("pair", "descriptor", "correct", "share", "truth known", "matches", "inliers")
    caption = f"correct: within {PIXELS:g} px of the truth; share: of the matches for which the truth is known"
    table = plain_table(headings, ("pair", "descriptor"), caption)
    for row in rows:
        correct, *others = (f"{count:,}" for count in (row.correct, row.known, row.matches, row.inliers))
        table.add_row(row.pair, row.model, correct, f"{100 * row.share:.1f} %", *others)
    show_table(table)
    for row in rows:
        say(f"-> {row.picture}")
