"""matchkernel info"""

import dataclasses
import json
from typing import Annotated, Any

import typer

from matchkernel.cli.console import plain_table, stdout, user_errors
from matchkernel.overview import card_facts, overview, trained_weights

FIRST = ("parameters", "config", "trained_on", "licence", "metrics", "match_threshold")


def info(
    weights: Annotated[str | None, typer.Argument(help="tell all about these weights: a name, or a file")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON instead of a table")] = False,
) -> None:
    """List the descriptors and the trained weights that came along, or tell what a weight file says of itself."""
    with user_errors():
        if weights is not None:
            _tell(card_facts(weights), as_json)
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


def _tell(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=2, ensure_ascii=False))
        return
    for key in (*FIRST, *(key for key in facts if key not in FIRST)):
        value = facts.get(key)
        if isinstance(value, dict):
            value = ", ".join(f"{name} {word}" for name, word in value.items() if not isinstance(word, dict))
        if value is not None and not isinstance(value, list):  # --json prints all
            stdout.print(f"{key}: {value}", markup=False, highlight=False, soft_wrap=True)
