"""Results as a folder of files with telling names, and as a short table."""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.evaluation.results import read_result, write_result
from matchkernel.storage.files import check_output

ALL_TASKS = 3  # of HPatches; a result of fewer has a digest in its name
OPTIONAL = ("train_set", "set", "seed", "configuration")  # what a result need not say, but what makes it another one
MANY_SETS = 3  # more names than so many are not listed in a table
WORDS = ("method", "trained on", "test set", "split")  # columns of a table that are not numbers
HPATCHES = {
    "verif. AP": ("verification", "mean", "ap_trapezoid"),
    "match. AP": ("matching", "mean", "all", "ap_trapezoid"),
    "retr. python": ("retrieval", "python", "mean", "20000", "ap_trapezoid"),
    "retr. matlab": ("retrieval", "matlab", "mean", "all", "ap_step"),
}
NOTES = {
    "hpatches": (
        "mAP in %. Verification: mean of six imbalanced APs; matching: mean over image pairs; both trapezoid. "
        "Retrieval python: pool of at most 20000, trapezoid; matlab: all distractors, step."
    ),
    "phototourism": "In %. FPR@95 with ties as errors; mAP of retrieval within the set: step, ties as errors.",
}


def check_target(out: str | Path, several: bool) -> None:
    """Refuse a place where results could not be written, before the work is done.

    Args:
        out: a .json file for one result, or a folder, made where it is missing.
        several: whether more than one result may come.
    """
    out = Path(out)
    if out.suffix == ".json":
        if several:
            raise ArgumentError(f"{out}: several results need a folder, this is the name of one file")
        check_output(out)
    elif out.exists() and not out.is_dir():
        raise FileError(f"{out}: results go into a folder or a .json file, this is another file")


def check_files(out: str | Path, plans: Sequence[Mapping[str, Any]]) -> None:
    """Refuse results that would take each other's place, or that of a file with other settings, before the work.

    Args:
        out: see check_target.
        plans: what each result will say of itself.
    """
    for path, plan in zip(_paths(out, plans), plans, strict=True):
        if not path.exists():
            continue
        there, wanted = read_result(path), json.loads(json.dumps(plan))
        other = [key for key in wanted if there.get(key) != wanted[key]]
        other += [key for key in OPTIONAL if key in there and key not in wanted]
        if other:
            raise FileError(f"{path}: holds another result ({other[0]} differs), it is not replaced")


def write_results(out: str | Path, results: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write results, each whole or not at all.

    Args:
        out: see check_target. In a folder the files are named after what was scored, on what; the same again is
            replaced (see check_files).
        results: of one evaluation.

    Returns:
        The files.
    """
    paths, out = _paths(out, results), Path(out)
    if out.suffix != ".json":
        try:
            out.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"{out}: could not be made ({error.strerror})") from None
    for path, result in zip(paths, results, strict=True):
        write_result(path, result)
    return paths


def file_name(result: Mapping[str, Any]) -> str:
    """What a result's file is called: kind, test set or split, descriptor, and how it was trained.

    Where that does not say all, since a word has signs that a file name should not have or tasks are missing, a digest
    of these words, the settings and the tasks stands behind it.
    """
    words = [result["kind"], result.get("set"), result.get("split") or result.get("test_set"), result["descriptor"]]
    words += [result["whitening"]] if result.get("whitening", "none") != "none" else []
    words += ["l1"] if result["distance"] == "l1" else []
    words += [result.get("train_set")]
    words += [f"seed{result['seed']}"] if "configuration" in result else []
    given = [str(word) for word in words if word]
    plain = [re.sub(r"[^A-Za-z0-9._=-]+", "_", word) for word in given]
    tasks = result.get("tasks")
    if plain != given or (tasks is not None and len(tasks) < ALL_TASKS):
        content = json.dumps([given, result.get("settings"), tasks], sort_keys=True)
        plain.append(hashlib.sha256(content.encode()).hexdigest()[:8])
    return "-".join(plain)


def _paths(out: str | Path, results: Sequence[Mapping[str, Any]]) -> list[Path]:
    check_target(out, len(results) > 1)
    out = Path(out)
    if out.suffix == ".json":
        return [out]
    paths = [out / f"{file_name(result)}.json" for result in results]
    twice = next((path for path, count in Counter(paths).items() if count > 1), None)
    if twice is not None:
        raise ArgumentError(f"{out}: two results would have the same name, {twice.name}")
    return paths


def table_of(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the main numbers in percent; a dash where there is none."""
    rows = [_row(result) for result in results]
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    return headings, [[row.get(heading, "-") for heading in headings] for row in rows]


def note_of(results: Sequence[Mapping[str, Any]]) -> str:
    """What the numbers of such a table are."""
    return NOTES[results[0]["kind"]] if results else ""


def _row(result: Mapping[str, Any]) -> dict[str, str]:
    row = {"method": str(result["descriptor"])}
    row |= {"trained on": _shortened(str(result["train_set"]))} if result.get("train_set") else {}
    row |= {"seed": str(result["seed"])} if "configuration" in result else {}
    if result["kind"] == "hpatches":
        row["split"] = str(result["split"])
        for heading, path in HPATCHES.items():
            if path[0] in result:
                row[heading] = _percent(result, path)
        return row
    row["test set"] = str(result["test_set"])
    for name, part in sorted(result["pairs"].items()):
        row[f"FPR@95 {name.split('_')[0]}"] = f"{100 * part['fpr95']:.2f}"
    row["mAP"] = "-" if result["retrieval_map"] is None else f"{100 * result['retrieval_map']:.2f}"
    return row


def _shortened(names: str) -> str:
    """Names with commas between; of many the first, and how many more."""
    first, *others = names.split(", ")
    return names if len(others) < MANY_SETS else f"{first} and {len(others)} more"


def _percent(result: Mapping[str, Any], path: Sequence[str]) -> str:
    value: Any = result
    for key in path:
        value = value[key]
    return f"{100 * value:.2f}"
