"""Results to a report: what the command `matchkernel report` does."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from matchkernel.errors import ArgumentError
from matchkernel.report.blocks import Report
from matchkernel.report.hpatches import hpatches_sections
from matchkernel.report.phototourism import phototourism_sections
from matchkernel.report.runs import Run, read_runs, result_files
from matchkernel.report.write import FILES, write_report

TITLE = "Local descriptors compared"


def report_results(paths: Sequence[str | Path], folder: str | Path, title: str = TITLE) -> list[Path]:
    """Gather results into report.html, report.md and report.json.

    Args:
        paths: result files, or folders of them.
        folder: where to write; made where it is missing.
        title: of the page.

    Returns:
        The files written. The same results give the same bytes, wherever they lie. An earlier report among the results
        is passed over.
    """
    target = Path(folder) / FILES[-1]
    if target.resolve() in {file.resolve() for file in result_files(paths)}:
        raise ArgumentError(f"{target}: is one of the results, and the report would replace it: choose another folder")
    return write_report(gather(paths, title), folder)


def gather(paths: Sequence[str | Path], title: str = TITLE) -> Report:
    """Read results and lay them out; methods that were not scored on the same data are never in one table."""
    runs = read_runs(paths)
    of_kind = {kind: [run for run in runs if run.result["kind"] == kind] for kind in ("phototourism", "hpatches")}
    sections = [
        *(phototourism_sections(of_kind["phototourism"]) if of_kind["phototourism"] else []),
        *(hpatches_sections(of_kind["hpatches"]) if of_kind["hpatches"] else []),
    ]
    warnings = dict.fromkeys(
        f"{run.method.name} on {_place(run)}: {word}" for run in runs for word in run.result["warnings"]
    )
    return Report(title, tuple(sections), tuple(_facts(runs)), tuple(warnings))


def _facts(runs: Sequence[Run]) -> list[tuple[str, str]]:
    """For each method how it was computed, and the files of its results with the start of their sha256."""
    files: dict[tuple[str, str], list[str]] = {}
    for run in runs:
        words = [f"{run.result['dimension']}-D {run.result['distance']}"]
        words += [f"trained on {run.train_set}"] if run.train_set else []
        words += [f"seed {run.seed}"] if run.result.get("seed") is not None else []
        words += [f"weights {run.result['weights']}"] if run.result.get("weights") else []
        settings = run.result.get("settings")
        words += [f"{key}: {value}" for key, value in sorted(settings.items())] if isinstance(settings, dict) else []
        digest = hashlib.sha256(run.path.read_bytes()).hexdigest()[:12]
        name = run.path.name.encode(errors="replace").decode()
        files.setdefault((run.method.name, "; ".join(words)), []).append(f"{name} {digest}")
    return [(name, f"{words}. Results: {', '.join(listed)}") for (name, words), listed in files.items()]


def _place(run: Run) -> str:
    return str(run.result.get("split") or run.result.get("test_set"))
