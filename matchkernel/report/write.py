"""From result files to a report in files (one HTML page, Markdown, and the figures as JSON)."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.report.blocks import (
    Block,
    Curves,
    Grid,
    PerSequence,
    Picture,
    Report,
    ReportedMethod,
    Scatter,
    TextTable,
    by_parameters,
)
from matchkernel.report.hpatches import hpatches_sections
from matchkernel.report.page import HOW_TO_READ, html_page
from matchkernel.report.photos import photo_sections
from matchkernel.report.phototourism import phototourism_sections
from matchkernel.report.runs import ScoredRun, read_runs, result_files
from matchkernel.report.tables import grid_markdown, sequences_markdown, text_markdown
from matchkernel.storage.files import check_folder, replacing

KIND = "report"  # distinguishes report.json from results
FILES = ("report.html", "report.md", "report.json")
TITLE = "Local descriptors compared"
SECTIONS = {"phototourism": phototourism_sections, "hpatches": hpatches_sections, "photos": photo_sections}


def report_results(paths: Sequence[str | Path], folder: str | Path, title: str = TITLE) -> list[Path]:
    """Gather results into report.html, report.md and report.json.

    Args:
        paths: result files, or folders of them.
        folder: where to write; created if missing.
        title: of the page.

    Returns:
        The files written. The same results give the same bytes, wherever they are. An earlier report among the results
        is skipped.
    """
    check_folder(folder)
    target = Path(folder) / FILES[-1]
    if target.resolve() in {file.resolve() for file in result_files(paths)}:
        raise ArgumentError(f"{target}: is one of the results, and the report would replace it: choose another folder")
    try:
        return write_report(gather(paths, title), folder)
    except MatchKernelError:
        raise
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:  # files edited by hand
        named = ", ".join(str(path) for path in paths)
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise FileError(f"{named}: a value in these results is not one that an evaluation writes ({reason})") from error


def gather(paths: Sequence[str | Path], title: str = TITLE) -> Report:
    """Read results and lay them out; methods scored on different data are never in one table."""
    runs = read_runs(paths)
    of_kind = {kind: [run for run in runs if run.result["kind"] == kind] for kind in SECTIONS}
    sections = [section for kind, make in SECTIONS.items() if of_kind[kind] for section in make(of_kind[kind])]
    warnings = dict.fromkeys(
        f"{run.method.name}{_place(run)}: {word}" for run in runs for word in run.result["warnings"]
    )
    return Report(title, tuple(sections), tuple(_facts(runs)), tuple(warnings))


def write_report(report: Report, folder: str | Path) -> list[Path]:
    """Write report.html, report.md and report.json to a folder, each atomically; returns their paths.

    The same report gives the same bytes: no date, no random names, sorted keys.
    """
    folder = Path(folder)
    contents = (html_page(report), markdown(report), json_text(report))
    for name, content in zip(FILES, contents, strict=True):
        with replacing(folder / name) as part:
            part.write_text(content, encoding="utf-8", newline="\n")
    return [folder / name for name in FILES]


def markdown(report: Report) -> str:
    """The report as Markdown: every table, but no curves."""
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
    if isinstance(block, TextTable):
        return text_markdown(block)
    return sequences_markdown(block) if isinstance(block, PerSequence) else f"({_kind(block)}: see report.html)"


def _kind(block: Block) -> str:
    return "picture" if isinstance(block, Picture) else "chart"


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
    if isinstance(block, Picture):
        return {"kind": "picture", "title": block.title, "note": block.note}
    if isinstance(block, TextTable):
        table = {"head": list(block.head), "rows": [list(row) for row in block.rows]}
        return {"kind": "text", "title": block.title, "note": block.note, **table}
    if isinstance(block, Scatter):
        points = [
            _method_json(m) | {"cost": cost, "mean": score.mean, "std": score.std}
            for m, (cost, score) in sorted(block.points.items(), key=lambda item: item[0].name)
        ]
        return {"kind": "scatter", "title": block.title, "note": block.note, "cost": block.cost, "points": points}
    values = [_method_json(m) | {"values": list(block.values[m])} for m in by_parameters(list(block.values))]
    words = {"kind": "sequences", "title": block.title, "note": block.note}
    return words | {"sequences": list(block.sequences), "methods": values}


def _curves_json(block: Curves) -> Iterator[dict[str, Any]]:
    for method in by_parameters(list(block.curves)):
        rates, recalls = block.curves[method]
        yield _method_json(method) | {"fpr": [float(x) for x in rates], "tpr": [float(y) for y in recalls]}


def _method_json(method: ReportedMethod) -> dict[str, Any]:
    return {
        "name": method.name,
        "parameters": method.parameters,
        "hand_crafted": method.hand_crafted,
        "is_ours": method.is_ours,
        "configuration": method.configuration,
    }


def _facts(runs: Sequence[ScoredRun]) -> list[tuple[str, str]]:
    """For each method how it was computed, and the files of its results with the start of their sha256."""
    files: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        words = [f"{run.result['dimension']}-D {run.result['distance']}"] if "distance" in run.result else []
        words += [run.result["licence"]] if "licence" in run.result else []
        words += [f"trained on {run.train_set}"] if run.train_set else []
        words += [f"seed {run.seed}"] if run.result.get("seed") is not None else []
        words += [f"weights {run.result['weights']}"] if run.result.get("weights") else []
        settings = run.result.get("settings")
        words += [f"{key}: {value}" for key, value in sorted(settings.items())] if isinstance(settings, dict) else []
        digest = hashlib.sha256(run.path.read_bytes()).hexdigest()[:12]
        name = run.path.name.encode(errors="replace").decode()
        files.setdefault((run.method.name, "; ".join(words)), []).append(f"{name} {digest}")
    return [(name, f"{words}. Results: {', '.join(listed)}") for (name, words), listed in files.items()]


def _place(run: ScoredRun) -> str:
    where = run.result.get("split") or run.result.get("test_set")
    return f" on {where}" if where else ""
