"""matchkernel report"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say


def report(
    results: Annotated[list[Path], typer.Argument(help="results of `matchkernel evaluate`, or folders of them")],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for report.html, report.md and report.json")],
    title: Annotated[str | None, typer.Option(help="title of the page")] = None,
) -> None:
    """Gather results into one page of tables and charts."""
    from matchkernel.report.write import TITLE, report_results

    with progress_bar("gathering results"):
        page, *_ = report_results(results, out, title or TITLE)
    say(f"-> {page}")
