"""matchkernel report"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import stderr, user_errors
from matchkernel.report.write import TITLE, report_results


def report(
    results: Annotated[list[Path], typer.Argument(help="results of `matchkernel evaluate`, or folders of them")],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for report.html, report.md and report.json")],
    title: Annotated[str, typer.Option(help="of the page")] = TITLE,
) -> None:
    """Gather results into one page of tables and charts."""
    with user_errors():
        page, *_ = report_results(results, out, title)
        stderr.print(f"-> {page}", markup=False)
