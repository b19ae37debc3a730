"""From result files to a report in files: one HTML page, Markdown, and the numbers as JSON."""

import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.report.blocks import Best, Block, Picture, Report
from matchkernel.report.headline import listed
from matchkernel.report.hpatches import hpatches_sections
from matchkernel.report.page import html_page
from matchkernel.report.photos import photo_sections
from matchkernel.report.phototourism import phototourism_sections
from matchkernel.report.runs import ScoredRun, read_runs, result_files
from matchkernel.storage.files import check_folder, replacing

FILES = ("report.html", "report.md", "report.json")
TITLE = "Local descriptors compared"
EMPTY: tuple[Any, ...] = (None, "", [], {})
SHA256, DIGITS = re.compile(r"\b[0-9a-f]{64}\b"), 12  # of a digest, the first ones are shown
SECTIONS = {"phototourism": phototourism_sections, "hpatches": hpatches_sections, "photos": photo_sections}


def report_results(paths: Sequence[str | Path], folder: str | Path, title: str = TITLE) -> list[Path]:
    """Gather result files, or folders of them, into report.html, report.md and report.json; returns their paths.

    The same results give the same bytes, wherever they are. An earlier report among the results is skipped.
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
    said: dict[str, dict[str, None]] = {}  # the methods of each warning, which one line says of all of them
    for run in runs:
        name = run.result["descriptor"] if run.result["kind"] == "photos" else run.method.name
        for text in run.result["warnings"]:
            said.setdefault(f"{_place(run)}: {text}", {})[name] = None
    warnings = [f"{listed(list(names))}{text}" for text, names in said.items()]
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
    """The report as Markdown: every table, but no charts."""
    parts = [f"# {report.title}", *report.lead, *(f"> **Note.** {warning}" for warning in report.warnings)]
    for section in report.sections:
        parts += [f"## {section.title}", section.note]
        for block in section.blocks:
            parts += [f"### {block.title}", block.note, _markdown_table(block), block.footnote]
    if report.facts:
        parts += ["## Where the figures come from", "\n".join(f"- {key}: {value}" for key, value in report.facts)]
    return "\n\n".join(part for part in [*parts, report.how_to_read()] if part) + "\n"


def _markdown_table(block: Block) -> str:
    table = block.table()
    if table is None:
        return f"({'picture' if isinstance(block, Picture) else 'chart'}: see report.html)"
    head, rows = table
    bold = [[f"**{cell}**" if isinstance(cell, Best) else cell for cell in row] for row in rows]
    lines = [
        "| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in (head, *bold)
    ]
    return "\n".join([lines[0], "|---|" + "---:|" * (len(head) - 1), *lines[1:]])


def json_text(report: Report) -> str:
    """The report's figures as JSON: full precision, every run."""
    content = {
        "kind": "report",
        "title": report.title,
        "facts": report.facts,
        "warnings": report.warnings,
        "sections": [
            {
                "title": section.title,
                "note": section.note,
                "summary": section.summary,
                "blocks": [{"title": b.title, "note": b.note, **b.numbers()} for b in section.blocks],
            }
            for section in report.sections
        ],
    }
    return json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"


def _facts(runs: Sequence[ScoredRun]) -> list[tuple[str, str]]:
    """For each method how it was computed, and the files of its results with the start of their sha256."""
    files: dict[tuple[str, str], list[str]] = {}
    listed_settings = [_readable(run.result.get("protocol")) + _readable(run.result.get("settings")) for run in runs]
    shared = [text for text in listed_settings[0] if all(text in texts for texts in listed_settings[1:])]
    shared = shared if len({run.method.name for run in runs}) > 1 else []
    for run, settings in zip(runs, listed_settings, strict=True):
        result = run.result
        parts = [
            f"{result['dimension']}-D {result['distance']}" if "distance" in result else "",
            result.get("licence", ""),
            f"trained on {run.train_set}" if run.train_set else "",
            f"seed {run.seed}" if result.get("seed") is not None else "",
            f"weights {_plain(result['weights'])}" if result.get("weights") else "",
            *(text for text in settings if text not in shared),
        ]
        digest = hashlib.sha256(run.path.read_bytes()).hexdigest()[:DIGITS]
        name = run.path.name.encode(errors="replace").decode()
        how = "; ".join(part for part in parts if part)
        files.setdefault((run.method.name, how), []).append(f"{name} {digest}")
    facts = [(name, f"{how}. Results: {', '.join(names)}") for (name, how), names in files.items()]
    return [("all methods", "; ".join(shared)), *facts] if shared else facts


def _readable(settings: Any) -> list[str]:
    """`name: value` of the settings that have one; those that are off or empty are left out."""
    settings = settings if isinstance(settings, dict) else {}
    used = {key: value for key, value in sorted(settings.items()) if value is not False and value not in EMPTY}
    return [f"{key.replace('_', ' ')}: {_plain(value)}" for key, value in used.items()]


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return " ".join(f"{key} {_plain(part)}" for key, part in value.items() if part not in EMPTY)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return "yes" if value is True else SHA256.sub(lambda digest: digest[0][:DIGITS], str(value))


def _place(run: ScoredRun) -> str:
    where = run.result.get("split") or run.result.get("test_set")
    return f" on {where}" if where else ""
