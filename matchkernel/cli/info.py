"""matchkernel info"""

import dataclasses
import json
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from matchkernel.cli.console import plain_table, say, show_table, stdout, visible
from matchkernel.cli.options import Json


def info(
    weights: Annotated[
        str | None, typer.Argument(help="show these in detail: name of trained weights, or a .safetensors file")
    ] = None,
    as_json: Json = False,
) -> None:
    """List the descriptors and the trained weights, or show the contents of a weight file."""
    from matchkernel.runtime.overview import card_facts, overview

    if as_json:
        facts = [dataclasses.asdict(row) for row in overview()] if weights is None else card_facts(weights)
        print(json.dumps(facts, indent=2, ensure_ascii=False))
    elif weights is None:
        _list_descriptors()
        _list_weights()
    else:
        _show_card(weights, card_facts(weights))


def _list_descriptors() -> None:
    from matchkernel.runtime.overview import overview

    headings = ("descriptor", "symbol", "parameters", "D", "patch sizes")
    table = plain_table(headings, text=("descriptor", "symbol", "patch sizes"))
    for row in overview():
        table.add_row(row.variant, row.symbol, f"{row.parameters:,}", str(row.D), row.sizes)
    show_table(table)


def _list_weights() -> None:
    from matchkernel.runtime.overview import trained_weights

    headings = ("weights", "descriptor", "parameters", "patch", "matching", "steps x pairs")
    caption = "matching: mAP on validation photos, see docs/models.md; `info NAME` shows more"
    table = plain_table(headings, ("weights", "descriptor", "steps x pairs"), caption)
    for row in trained_weights():
        matching = "-" if row.matching is None else f"{row.matching:.1f}"
        table.add_row(row.name, row.descriptor, f"{row.parameters:,}", str(row.patch_size), matching, row.training)
    if table.row_count:
        show_table(table)


def _show_card(weights: str, facts: dict[str, Any]) -> None:
    from matchkernel.runtime.overview import card_sections

    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", max_width=30)
    table.add_column(overflow="fold")
    table.add_row(Text("weights", style="bold"), Text(visible(weights)))
    for heading, section in card_sections(facts).items():
        table.add_row()
        if list(section) != [heading]:
            table.add_row(Text(heading, style="bold"))
        for name, value in section.items():
            label = Text(name, style="bold") if name == heading else Text(visible(f"  {name}"))
            is_count = name == "parameters" and isinstance(value, int)
            table.add_row(label, Text(f"{value:,}" if is_count else visible(_readable(value))))
    stdout.print(table)
    say("--json prints everything the file records")


def _readable(value: Any, depth: int = 2) -> str:
    """A value of a card as text; tables nested deeper than `depth` are shown as dots."""
    if isinstance(value, dict | list) and not depth:
        return "..."
    if isinstance(value, dict):
        return ", ".join(f"{name} {_readable(part, depth - 1)}" for name, part in value.items())
    if isinstance(value, list):
        return ", ".join(_readable(part, depth - 1) for part in value) or "none"
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    return f"{value:.6g}" if isinstance(value, float) else str(value)
