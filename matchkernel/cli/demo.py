"""matchkernel demo"""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table

from matchkernel.cli.console import plain_table, stderr, stdout, user_errors
from matchkernel.images.demo import PIXELS, DemoRow, run_demo


def demo(out: Annotated[Path, typer.Option("--out", "-o", help="folder for the pictures")] = Path("out/demo")) -> None:
    """Match a stereo pair, and a turned, smaller copy, whose truth is known; draw the matches."""
    with user_errors():
        rows = run_demo(out, say=lambda line: stderr.print(line, markup=False))
        stdout.print(results_table(rows))
        for row in rows:
            stderr.print(f"-> {row.picture}", markup=False)


def results_table(rows: list[DemoRow]) -> Table:
    """How many matches are right, then their share: of few matches a larger share may be right, and still be fewer."""
    numbers = ("right matches", "share", "truth known", "matches", "inliers")
    table = plain_table("pair", "descriptor", *numbers, numbers=numbers)
    for row in rows:
        right, *others = (f"{count:,}" for count in (row.right, row.known, row.matches, row.inliers))
        table.add_row(row.pair, row.model, right, f"{100 * row.share:.1f} %", *others)
    table.caption = f"right: within {PIXELS:g} px of the truth; share: of the matches whose truth is known"
    table.caption_justify = "left"
    return table
