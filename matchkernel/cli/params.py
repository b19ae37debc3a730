"""matchkernel params"""

import dataclasses
import json

import typer

from matchkernel.cli.console import answer, plain_table, show_table
from matchkernel.cli.options import Json


def params(as_json: Json = False) -> None:
    """Count the parameters of the paper's Table 1 from their shapes, next to the paper's own numbers."""
    from matchkernel.runtime.overview import table_1

    rows = table_1()
    if as_json:
        print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
    else:
        headings = ("descriptor", "s", "N", "conv", "M, m / W", "total", "paper", "same at any N")
        table = plain_table(headings, text=("descriptor", "same at any N"))
        for row in rows:
            counts = [f"{count:,}" for count in (row.convolutions, row.head, row.total, row.paper_total)]
            free = "yes" if row.independent_of_size else "no"
            table.add_row(row.variant, str(row.s or "-"), str(row.patch_size), *counts, free)
        show_table(table)
    agreeing = sum(row.agrees for row in rows)
    answer(f"{agreeing} of {len(rows)} rows agree with the paper (M, m / W and total)", as_json)
    if agreeing < len(rows):
        raise typer.Exit(1)
