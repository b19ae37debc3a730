"""matchkernel demo"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import plain_table, stderr, stdout, user_errors
from matchkernel.images.demo import run_demo


def demo(out: Annotated[Path, typer.Option("--out", "-o", help="folder for the pictures")] = Path("out/demo")) -> None:
    """Match a stereo pair, and a turned, smaller copy, whose truth is known; draw the matches."""
    with user_errors():
        rows = run_demo(out, say=lambda line: stderr.print(line, markup=False))
        numbers = ("matches", "inliers", "truth known", "within 3 px", "share")
        table = plain_table("pair", "descriptor", *numbers, numbers=numbers)
        for row in rows:
            counts = (f"{count:,}" for count in (row.matches, row.inliers, row.known, row.right))
            table.add_row(row.pair, row.model, *counts, f"{100 * row.share:.1f} %")
        stdout.print(table)
        for row in rows:
            stderr.print(f"-> {row.picture}", markup=False)
