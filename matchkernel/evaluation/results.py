"""Results as JSON files: what a result is, its file's name, reading and writing, and a short table of several."""

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.distances import DISTANCES
from matchkernel.evaluation.photos import tables
from matchkernel.evaluation.photos.rows import COUNTS as PHOTO_COUNTS
from matchkernel.evaluation.photos.rows import SCORES as PHOTO_SCORES
from matchkernel.evaluation.photos.rows import is_row
from matchkernel.storage.files import LONG_TEXT, check_folder, check_output, json_digest, read_small_text, replacing

FORMAT = 1
NOTICEABLE = 5e-5  # a difference by ties that needs no warning: invisible in percent with two decimals
SETTINGS = {
    "hpatches": {
        "descriptor": str,
        "dimension": int,
        "split": str,
        "sequences": list,
        "distance": str,
        "whitening": str,
    },
    "phototourism": {"descriptor": str, "dimension": int, "test_set": str, "distance": str, "pairs": dict},
    "photos": {
        "descriptor": str,
        "licence": str,
        "keypoints": int,
        "filter": str,
        "protocol": dict,
        "scenes": dict,
        "mean": dict,
        "seconds": dict,
    },
}
# The numbers that tables show; a result may hold a single task, but a task must be complete.
NUMBERS = {
    "verification": ("mean/auc", "mean/ap_trapezoid", "mean/ap_step"),
    "matching": ("mean/all/ap_trapezoid", "mean/all/ap_step", "mean/all/sr"),
    "retrieval": ("python/mean/20000/ap_trapezoid", "matlab/mean/all/ap_step"),
}
SCORES = ("ap_", "auc", "sr")  # prefixes of the names of scores, at any depth of a task
RANKED = ("retrieval_map", "retrieval_map_highest")
# Optional unless listed in SETTINGS; anything but a name, or a whole number of at least this value, is refused.
NAMES = ("descriptor", "split", "test_set", "whitening", "set", "train_set", "configuration", "data_sha256")
COUNTS = {"dimension": 1, "parameters": 0, "keypoints": 0, "seed": 0, "retrieval_queries": 1, "retrieval_seed": 0}
DEEPEST = 16  # an HPatches result has 7 levels
ALL_TASKS = 3  # of HPatches; a result of fewer has a digest in its name
OPTIONAL = ("train_set", "set", "seed", "configuration")  # optional, but a different value makes it another result
MANY_SETS = 3  # longer lists of names are shortened in a table
WORDS = ("method", "trained on", "test set", "split", "licence")  # columns of a table that are not numbers
HPATCHES = {
    "verif. AP": ("verification", "mean", "ap_trapezoid"),
    "match. AP": ("matching", "mean", "all", "ap_trapezoid"),
    "retr. python": ("retrieval", "python", "mean", "20000", "ap_trapezoid"),
    "retr. matlab": ("retrieval", "matlab", "mean", "all", "ap_step"),
}


def write_result(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result atomically: keys sorted, numbers in the shortest form that reads back to the same double."""
    path = Path(path)
    _check(path, result, ArgumentError)
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with replacing(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_result(path: str | Path) -> dict[str, Any]:
    """Read a result and check that it is complete."""
    path = Path(path)
    text = read_small_text(path, LONG_TEXT, what="a result")
    try:
        content = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a result ({error})") from None
    _check(path, content, FileError)
    return dict(content)


def blank_words(blank: int, patches: int) -> str:
    """The warning for a result in which some rows are zeros."""
    return f"{blank} of {patches} patches have no description: their rows are zeros, so that they match each other"


def check_target(out: str | Path, several: bool, *inputs: str | Path) -> None:
    """Refuse a place where results could not be written, before the work is done.

    Args:
        out: a .json file for one result, or a folder, made if missing.
        several: whether there may be more than one result.
        inputs: files and folders that are read; results are not written over them nor into them.
    """
    out = Path(out)
    if out.suffix == ".json":
        if several:
            raise ArgumentError(f"{out}: several results need a folder, this is the name of one file")
        check_output(out, *inputs)
    elif out.is_file():
        raise FileError(f"{out}: results must be written to a folder or a .json file, this is another file")
    else:
        check_folder(out, *inputs)


def check_files(out: str | Path, plans: Sequence[Mapping[str, Any]]) -> None:
    """Refuse, before the work, results that would overwrite each other or a result with other settings.

    Args:
        out: see check_target.
        plans: the settings of each result to come.
    """
    for path, plan in zip(_paths(out, plans), plans, strict=True):
        if not path.exists():
            continue
        there, wanted = read_result(path), json.loads(json.dumps(plan))
        other = [key for key in wanted if there.get(key) != wanted[key]]
        other += [key for key in OPTIONAL if key in there and key not in wanted]
        if other:
            raise FileError(f"{path}: contains another result ({other[0]} differs), which is not replaced")


def write_results(out: str | Path, results: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write results, each atomically.

    Args:
        out: see check_target. In a folder the files are named after descriptor and test set; a result with the same
            settings is replaced (see check_files).
        results: of one evaluation.

    Returns:
        The files.
    """
    paths = _paths(out, results)
    for path, result in zip(paths, results, strict=True):
        write_result(path, result)
    return paths


def file_name(result: Mapping[str, Any]) -> str:
    """The name of a result's file: kind, test set or split, descriptor, and how it was trained.

    If that is not unique, because a part has characters that a file name should not have or because only some tasks
    were scored, a digest of these parts, the settings and the tasks is added.
    """
    if result["kind"] == "photos":
        return tables.file_name(result)
    words = [result["kind"], result.get("set"), result.get("split") or result.get("test_set"), result["descriptor"]]
    words += [result["whitening"]] if result.get("whitening", "none") != "none" else []
    words += ["l1"] if result["distance"] == "l1" else []
    words += [result.get("train_set")]
    words += [f"seed{result['seed']}"] if "configuration" in result else []
    given = [str(word) for word in words if word]
    plain = [re.sub(r"[^A-Za-z0-9._=-]+", "_", word) for word in given]
    tasks = result.get("tasks")
    if plain != given or (tasks is not None and len(tasks) < ALL_TASKS):
        plain.append(json_digest([given, result.get("settings"), tasks])[:8])
    return "-".join(plain)


def table_of(results: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Headings and rows of the main numbers in percent; a dash where there is none."""
    is_photos = bool(results) and results[0]["kind"] == "photos"
    rows = tables.photo_rows(results) if is_photos else [_row(result) for result in results]
    headings = list(dict.fromkeys(heading for row in rows for heading in row))
    return headings, [[row.get(heading, "-") for heading in headings] for row in rows]


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _finite(word: str) -> float:
    return value if math.isfinite(value := float(word)) else _refuse(word[:40])


def _check(path: Path, content: object, kind_of_error: type[ArgumentError] | type[FileError]) -> None:
    fault = _fault(content)
    if fault:
        raise kind_of_error(f"{path}: not a result ({fault})")


def _fault(content: object) -> str:
    if not isinstance(content, Mapping):
        return "not a JSON object"
    if content.get("format") != FORMAT or isinstance(content["format"], bool):
        return f"format {str(content.get('format'))[:40]!r}, this version reads {FORMAT}"
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in SETTINGS:
        return f"kind {str(kind)[:40]!r}, expected one of {', '.join(SETTINGS)}"
    for key, wanted in SETTINGS[kind].items():
        if not isinstance(content.get(key), wanted):
            return f"{key} is missing or not of type {wanted.__name__}"
    warnings = content.get("warnings")
    if not isinstance(warnings, list) or not all(isinstance(warning, str) for warning in warnings):
        return "warnings are missing or not sentences"
    return _any_fault(content, DEEPEST) or _settings_fault(content) or FAULTS[kind](content)


def _any_fault(part: object, depth: int) -> str:
    """Faults that no part of a result may have, at any depth."""
    if depth < 0:
        return f"nested deeper than {DEEPEST}"
    if isinstance(part, str) and any("\ud800" <= letter <= "\udfff" for letter in part):
        return "it has half a character (a lone surrogate)"
    if isinstance(part, float) and not math.isfinite(part):
        return f"{part} is not a number"
    if isinstance(part, Mapping):
        if not all(isinstance(key, str) and key for key in part):
            return "it has an empty name"
        part = [*part.keys(), *part.values()]
    inner = part if isinstance(part, list | tuple) else ()
    return next((fault for each in inner if (fault := _any_fault(each, depth - 1))), "")


def _settings_fault(content: Mapping[str, Any]) -> str:
    """Faults of the names and whole numbers that all results share; optional ones may be null."""
    for key in NAMES:
        if content.get(key) is not None and not _is_name(content[key]):
            return f"{key} is {str(content[key])[:40]!r}, not a name"
    for key, least in COUNTS.items():
        value = content.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63):
            return f"{key} is {str(value)[:40]!r}, expected a whole number from {least}"
    if not isinstance(content.get("hand_crafted"), bool | None):
        return f"hand_crafted is {str(content['hand_crafted'])[:40]!r}, expected true or false"
    is_known = "distance" not in SETTINGS[content["kind"]] or content["distance"] in DISTANCES
    return "" if is_known else f"distance is {content['distance'][:40]!r}"


def _hpatches_fault(content: Mapping[str, Any]) -> str:
    tasks = [task for task in NUMBERS if task in content]
    if not tasks:
        return "it has none of the three tasks"
    if not content["sequences"] or not all(_is_name(name) for name in content["sequences"]):
        return "sequences are none, or not names"
    wrong = [f"{task}/{path}" for task in tasks for path in NUMBERS[task] if not _is_share(_at(content[task], path))]
    if wrong:
        return f"{wrong[0]} is missing or not from 0 to 1"
    return next((fault for task in tasks if (fault := _task_fault(task, content[task]))), "")


def _task_fault(task: str, content: Mapping[str, Any]) -> str:
    """Faults of a task: a score outside 0 to 1 at any depth, or values by sequence that are not nested correctly."""
    wrong = next(_wrong_scores(content, task), "")
    if wrong:
        return f"{wrong[:80]} is not from 0 to 1"
    key = "per_pair" if task == "matching" else "per_sequence"
    levels = [content[key]] if key in content else []
    for _ in range(3 if task == "matching" else 1):
        if not all(isinstance(part, Mapping) for part in levels):
            return f"{task}/{key} is not nested as it should be"
        levels = [inner for part in levels for inner in part.values()]
    is_wrong = not all(isinstance(part, Mapping) for part in levels)
    if is_wrong or (task == "matching" and not all("ap_trapezoid" in part for part in levels)):
        return f"{task}/{key} is not nested as it should be"
    return ""


def _wrong_scores(part: Mapping[str, Any], path: str) -> Iterator[str]:
    for key, value in part.items():
        if key.startswith(SCORES):
            if not _is_share(value):
                yield f"{path}/{key}"
        elif isinstance(value, Mapping):
            yield from _wrong_scores(value, f"{path}/{key}")


def _phototourism_fault(content: Mapping[str, Any]) -> str:
    unnamed = [name for name in content["pairs"] if not _is_name(name) or name.startswith("_")]
    if unnamed:
        return f"pairs have a list of the name {unnamed[0][:40]!r}"
    values = {f"pairs/{name}/fpr95": _at(entry, "fpr95") for name, entry in content["pairs"].items()}
    for name, entry in content["pairs"].items():
        if isinstance(entry, Mapping) and "fpr95_lowest" in entry:
            values[f"pairs/{name}/fpr95_lowest"] = entry["fpr95_lowest"]
    values |= {key: content[key] for key in RANKED if content.get(key) is not None}
    wrong = [name for name, value in values.items() if not _is_share(value)]
    return f"{wrong[0][:80]} is missing or not from 0 to 1" if wrong else ""


def _photos_fault(content: Mapping[str, Any]) -> str:
    if not content["scenes"]:
        return "it has no scene"
    for key in ("licence", "filter"):
        if not _is_name(content[key]):
            return f"{key} is {content[key][:40]!r}, not a name"
    if not _is_amount(content["seconds"].get("per_image")):
        return "seconds/per_image is missing or not a time"
    return next(
        (fault for name, scene in content["scenes"].items() if (fault := _scene_fault(content, name, scene))), ""
    )


def _scene_fault(content: Mapping[str, Any], name: str, scene: object) -> str:
    where = f"scenes/{name[:40]}"
    kind = scene.get("kind") if isinstance(scene, Mapping) else None
    if not _is_name(name) or not isinstance(scene, Mapping) or not isinstance(kind, str) or kind not in PHOTO_SCORES:
        return f"{where} is not a scene of a known kind"
    for score in PHOTO_SCORES[kind]:
        means = [_at(content["mean"], f"{score}/{key}") for key in ("mean", "std", "low", "high")]
        if not all(_is_share(value) for value in (scene.get(score), *means)) or len(content["mean"][score]) != len(
            means
        ):
            return f"{where}/{score} or its mean is missing or not from 0 to 1"
    if not all(_is_amount(scene.get(count)) for count in PHOTO_COUNTS[kind]):
        return f"{where}: one of {', '.join(PHOTO_COUNTS[kind])} is missing or not a number"
    pairs = scene.get("pairs")
    is_whole = isinstance(pairs, list) and bool(pairs) and all(is_row(row, kind) for row in pairs)
    return "" if is_whole else f"{where}/pairs are not rows of pairs"


def _is_amount(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e15


FAULTS = {"hpatches": _hpatches_fault, "phototourism": _phototourism_fault, "photos": _photos_fault}


def _at(content: object, path: str) -> object:
    for key in path.split("/"):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()


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
    """Comma-separated names; if there are many, only the first and the number of the others."""
    first, *others = names.split(", ")
    return names if len(others) < MANY_SETS else f"{first} and {len(others)} more"


def _percent(result: Mapping[str, Any], path: Sequence[str]) -> str:
    value: Any = result
    for key in path:
        value = value[key]
    return f"{100 * value:.2f}"
