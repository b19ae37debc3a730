"""matchkernel params"""

import dataclasses
import json
from typing import Annotated

import typer

from matchkernel.cli.console import plain_table, stderr, stdout, user_errors
from matchkernel.model.table_1 import table_1


def params(
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """Count the paper's Table 1 from live models, beside the paper's own numbers."""
    with user_errors():
        rows = table_1()
        numbers = ("s", "N", "conv", "M, m / W", "total", "paper")
        table = plain_table("descriptor", *numbers, "same at any N", numbers=numbers)
        for row in rows:
            counts = [f"{count:,}" for count in (row.convolutions, row.head, row.total, row.paper_total)]
            free = "yes" if row.independent_of_size else "no"
            table.add_row(row.variant, str(row.s or "-"), str(row.patch_size), *counts, free)
        if as_json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
        else:
            stdout.print(table)
        agreeing = sum(row.agrees for row in rows)
        stderr.print(f"{agreeing} of {len(rows)} rows are the paper's, M, m / W and total", markup=False)
        if agreeing < len(rows):
            raise typer.Exit(1)
