"""A report as files: one HTML page, Markdown, and the figures as JSON."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matchkernel.errors import WriteError
from matchkernel.report.blocks import Block, Curves, Grid, Method, Report, by_parameters
from matchkernel.report.page import HOW_TO_READ, html_page
from matchkernel.report.tables import grid_markdown, sequences_markdown
from matchkernel.storage.files import replacing

KIND = "report"  # tells report.json from results
FILES = ("report.html", "report.md", "report.json")


def write_report(report: Report, folder: str | Path) -> list[Path]:
    """Write report.html, report.md and report.json into a folder, each whole or not at all; returns their paths.

    The same report gives the same bytes: no date, no random names, sorted keys.
    """
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be made ({error.strerror or error})") from None
    contents = (html_page(report), markdown(report), json_text(report))
    for name, content in zip(FILES, contents, strict=True):
        with replacing(folder / name) as part:
            part.write_text(content, encoding="utf-8", newline="\n")
    return [folder / name for name in FILES]


def markdown(report: Report) -> str:
    """The report as Markdown: every table; curves are left to the page."""
    lines = [f"# {report.title}", ""]
    lines += [word for warning in report.warnings for word in (f"> **Note.** {warning}", "")]
    for section in report.sections:
        lines += [f"## {section.title}", "", *([section.note, ""] if section.note else [])]
        for block in section.blocks:
            lines += [f"### {block.title}", "", *([block.note, ""] if block.note else []), _block_markdown(block), ""]
    if report.facts:
        lines += ["## Where the figures come from", "", *(f"- {key}: {value}" for key, value in report.facts), ""]
    return "\n".join([*lines, HOW_TO_READ, ""])


def json_text(report: Report) -> str:
    """The report's figures as JSON: full precision, every run."""
    content = {
        "kind": KIND,
        "title": report.title,
        "facts": [list(pair) for pair in report.facts],
        "warnings": list(report.warnings),
        "sections": [
            {"title": section.title, "note": section.note, "blocks": [_block_json(block) for block in section.blocks]}
            for section in report.sections
        ],
    }
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _block_markdown(block: Block) -> str:
    if isinstance(block, Grid):
        return grid_markdown(block)
    return "(curves: see report.html)" if isinstance(block, Curves) else sequences_markdown(block)


def _block_json(block: Block) -> dict[str, Any]:
    if isinstance(block, Grid):
        rows = [
            _method_json(method)
            | {
                "scores": {
                    column: {"mean": score.mean, "std": score.std, "runs": list(score.values)}
                    | ({"tie_safe": list(safe.values)} if (safe := block.safe.get(method, {}).get(column)) else {})
                    for column, score in block.rows[method].items()
                }
            }
            for method in by_parameters(list(block.rows))
        ]
        return {"kind": "table", "title": block.title, "note": block.note, "columns": list(block.columns), "rows": rows}
    if isinstance(block, Curves):
        return {"kind": "curves", "title": block.title, "note": block.note, "curves": list(_curves_json(block))}
    values = [_method_json(m) | {"values": list(block.values[m])} for m in by_parameters(list(block.values))]
    words = {"kind": "sequences", "title": block.title, "note": block.note}
    return words | {"sequences": list(block.sequences), "methods": values}


def _curves_json(block: Curves) -> Iterator[dict[str, Any]]:
    for method in by_parameters(list(block.curves)):
        rates, recalls = block.curves[method]
        yield _method_json(method) | {"fpr": [float(x) for x in rates], "tpr": [float(y) for y in recalls]}


def _method_json(method: Method) -> dict[str, Any]:
    return {
        "name": method.name,
        "parameters": method.parameters,
        "hand_crafted": method.hand_crafted,
        "is_ours": method.is_ours,
        "configuration": method.configuration,
    }
