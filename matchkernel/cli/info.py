"""matchkernel info"""

import dataclasses
import json
from typing import Annotated

import typer

from matchkernel.cli.console import plain_table, stdout, user_errors
from matchkernel.overview import overview


def info(
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """List the descriptors: parameters, dimensions, patch sizes they accept, trained weights available."""
    with user_errors():
        rows = overview()
        if as_json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
            return
        numbers = ("parameters", "D")
        table = plain_table("descriptor", "symbol", *numbers, "patch sizes", "trained weights", numbers=numbers)
        for row in rows:
            weights = ", ".join(row.weights) or "none"
            table.add_row(row.variant, row.symbol, f"{row.parameters:,}", str(row.D), row.sizes, weights)
        stdout.print(table)
