"""matchkernel report"""

import json
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import answer, progress_bar, say


def report(
    results: Annotated[list[Path], typer.Argument(help="results of `matchkernel evaluate`, or folders of them")],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder for report.html, report.md and report.json")],
    title: Annotated[str | None, typer.Option(help="title of the page")] = None,
) -> None:
    """Gather results into one page of tables and charts."""
    from matchkernel.report.write import TITLE, report_results

    with progress_bar("gathering results"):
        page, _, numbers = report_results(results, out, title or TITLE)
    for section in json.loads(numbers.read_text(encoding="utf-8"))["sections"]:
        if section["summary"]:
            answer(section["summary"])
    say(f"open this in a browser: {page}")
