"""matchkernel params"""

import dataclasses
import json
from typing import Annotated

import typer
from rich.table import Table

from matchkernel.cli.console import stdout, user_errors
from matchkernel.paper import table_1


def params(
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Count the paper's Table 1 from live models, beside the paper's own numbers."""
    with user_errors():
        rows = table_1()
        if as_json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
        else:
            table = Table(
                "descriptor", "symbol", "s", "N", "convolutions", "M, m or W", "total", "paper", "depends on N"
            )
            for row in rows:
                depends = "no" if row.independent_of_size else "yes"
                counts = [f"{count:,}" for count in (row.convolutions, row.head, row.total, row.paper_total)]
                table.add_row(row.variant, row.symbol, str(row.s or "-"), str(row.patch_size), *counts, depends)
            stdout.print(table)
        if not all(row.agrees for row in rows):
            raise typer.Exit(1)
