"""Result files, each with its method, seed and training set."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.results import read_result
from matchkernel.plots.scores import ReportedMethod
from matchkernel.storage.settings import differences, short_repr


@dataclass(frozen=True, eq=False)
class ScoredRun:
    """One result file."""

    path: Path
    method: ReportedMethod
    seed: int
    train_set: str  # empty if nothing was trained, or if it is not recorded
    result: Mapping[str, Any]


def read_runs(paths: Sequence[str | Path]) -> list[ScoredRun]:
    """Read result files, or every .json under a folder; sorted by name of method, training set and seed."""
    files = result_files(paths)
    if not files:
        raise ArgumentError("a report needs results: files that `matchkernel evaluate` wrote, or a folder of them")
    runs = [_run(file, read_result(file)) for file in files]
    refuse_conflicts(  # two methods of one name would share a row
        runs,
        same=lambda run: run.method.name,
        must_agree=lambda run: run.method,
        reason=lambda run: f"the name {run.method.name!r} stands for two methods: rename one",
    )
    _refuse_two_recipes(runs)
    return sorted(runs, key=_order)


def _refuse_two_recipes(runs: Iterable[ScoredRun]) -> None:
    """Refuse to average over runs that were trained with different settings; earlier results do not say."""
    seen: dict[tuple[str, str], ScoredRun] = {}
    for run in runs:
        if not isinstance(run.result.get("recipe"), Mapping):
            continue
        other = seen.setdefault((run.method.name, run.train_set), run)
        for name, theirs, mine in differences(other.result["recipe"], run.result["recipe"]):
            if theirs == mine or None in (theirs, mine):  # versions differ in the settings that they have
                continue
            raise ArgumentError(
                f"{other.path} and {run.path}: {run.method.name!r} was trained with {name} = {short_repr(theirs)} and"
                f" {short_repr(mine)}, which is no average over runs: score one of them under another name (--name)"
            )


def _order(run: ScoredRun) -> tuple[str | int, ...]:
    """Sort key without the path, so that the report does not depend on where the files are."""
    where = run.result.get("split") or run.result.get("test_set")
    return run.method.name, run.train_set, run.seed, str(run.result["kind"]), str(where), run.path.name


def value_at(run: ScoredRun, path: str) -> float:
    """A number of a result by its path, in percent; a FileError if it is missing or not from 0 to 1."""
    content: Any = run.result
    for key in path.split("/"):
        content = content.get(key) if isinstance(content, Mapping) else None
    if isinstance(content, bool) or not isinstance(content, int | float) or not 0 <= content <= 1:
        raise FileError(f"{run.path}: not a complete result ({path} is missing or not from 0 to 1)")
    return 100 * float(content)


def result_files(paths: Sequence[str | Path]) -> list[Path]:
    """The files given, and every .json under the folders given, except reports that were written there."""
    named = [file for path in map(Path, paths) for file in (sorted(path.rglob("*.json")) if path.is_dir() else [path])]
    return [file for file in dict.fromkeys(named) if not _is_report(file)]


def _is_report(file: Path) -> bool:
    return file.name == "report.json" and file.is_file() and b'"sections": [' in file.read_bytes()


def _run(path: Path, result: Mapping[str, Any]) -> ScoredRun:
    if result["kind"] == "photos":
        name = f"{result['descriptor']}, {result['keypoints']:,} keypoints, {result['filter']}"
        return ScoredRun(path, ReportedMethod(name), 0, "", result)
    whitening = result.get("whitening") or "none"
    name = f"{result['descriptor']}{'' if whitening == 'none' else f' + {whitening}'}"
    name += ", l1" * (result["distance"] == "l1")
    configuration = result.get("configuration") or ""
    is_crafted = bool(result.get("hand_crafted"))
    method = ReportedMethod(name, result.get("parameters"), is_crafted, bool(configuration), configuration)
    return ScoredRun(path, method, result.get("seed") or 0, result.get("train_set") or "", result)


def refuse_conflicts(
    runs: Iterable[ScoredRun],
    same: Callable[[ScoredRun], object],
    reason: Callable[[ScoredRun], str],
    must_agree: Callable[[ScoredRun], object] = lambda run: run,
) -> None:
    """Refuse two runs with equal `same` and different `must_agree` (default: any two): they cannot be in one report."""
    seen: dict[object, ScoredRun] = {}
    for run in runs:
        other = seen.setdefault(same(run), run)
        if must_agree(other) != must_agree(run):
            raise ArgumentError(f"{other.path} and {run.path}: {reason(run)}")
