"""matchkernel info"""

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from matchkernel.cli.console import plain_table, stderr, stdout, user_errors
from matchkernel.model.overview import card_facts, card_sections, overview, trained_weights


def info(
    weights: Annotated[str | None, typer.Argument(help="tell all about these weights: a name, or a file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """List the descriptors and the trained weights that came along, or tell what a weight file says of itself."""
    with user_errors():
        if weights is not None:
            _tell(weights, card_facts(weights), as_json)
            return
        rows = overview()
        if as_json:
            print(json.dumps([dataclasses.asdict(row) for row in rows], indent=2, ensure_ascii=False))
            return
        numbers = ("parameters", "D")
        table = plain_table("descriptor", "symbol", *numbers, "patch sizes", "trained weights", numbers=numbers)
        for row in rows:
            names = ", ".join(row.weights) or "none"
            table.add_row(row.variant, row.symbol, f"{row.parameters:,}", str(row.D), row.sizes, names)
        stdout.print(table)
        _list_weights()


def _list_weights() -> None:
    """The weights of the package, one row each."""
    numbers = ("parameters", "patch", "matching")
    table = plain_table("weights", "descriptor", *numbers, "steps x pairs", numbers=numbers)
    for row in trained_weights():
        matching = "-" if row.matching is None else f"{row.matching:.1f}"
        table.add_row(row.name, row.descriptor, f"{row.parameters:,}", str(row.patch_size), matching, row.training)
    if table.row_count:
        table.caption, table.caption_justify = (
            "matching: mAP on validation photos, see docs/models.md; `info NAME` tells more",
            "left",
        )
        stdout.print(table)


def _tell(weights: str, facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=30)
    table.add_column(overflow="fold")
    table.add_row(Text("weights", style="bold"), Text(weights))
    for heading, section in card_sections(facts).items():
        table.add_row()
        if list(section) != [heading]:
            table.add_row(Text(heading, style="bold"))
        for name, value in section.items():
            label = Text(name, style="bold") if name == heading else Text(f"  {name}")
            is_count = name == "parameters" and isinstance(value, int)
            table.add_row(label, Text(f"{value:,}" if is_count else _words(value)))
    stdout.print(table)
    stderr.print("--json prints all that the file says", markup=False)


def _words(value: Any, depth: int = 2) -> str:
    """A value of a card for reading; what lies deeper than the tables of a training becomes dots."""
    if isinstance(value, dict | list) and not depth:
        return "..."
    if isinstance(value, dict):
        return ", ".join(f"{name} {_words(word, depth - 1)}" for name, word in value.items())
    if isinstance(value, list):
        return ", ".join(_words(word, depth - 1) for word in value) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
