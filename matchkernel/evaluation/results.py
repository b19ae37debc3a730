"""Results as JSON files: the same bytes for the same numbers, and nothing read that is not a result."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing

FORMAT = 1
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
}
# The numbers that tables are made of; a result may hold one task alone, but a task must be whole.
NUMBERS = {
    "verification": ("mean/auc", "mean/ap_trapezoid", "mean/ap_step"),
    "matching": ("mean/all/ap_trapezoid", "mean/all/ap_step", "mean/all/sr"),
    "retrieval": ("python/mean/20000/ap_trapezoid", "matlab/mean/all/ap_step"),
}
SCORES = ("ap_", "auc", "sr")  # how the name of a score starts, anywhere in a task
RANKED = ("retrieval_map", "retrieval_map_highest")
# What is no name or no whole number from so much is refused; most may be missing.
NAMES = ("descriptor", "split", "test_set", "whitening", "set", "train_set", "configuration", "data_sha256")
COUNTS = {"dimension": 1, "parameters": 0, "seed": 0, "retrieval_queries": 1, "retrieval_seed": 0}
DISTANCES = ("l1", "l2", "hamming")
DEEPEST = 16  # an HPatches result has 7 levels


def write_result(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result atomically: keys sorted, numbers in the shortest form that reads back to the same double."""
    path = Path(path)
    _check(path, result, ArgumentError)
    text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False)
    with replacing(path) as part:
        part.write_text(text + "\n", encoding="utf-8")


def read_result(path: str | Path) -> dict[str, Any]:
    """Read a result and check that it is whole."""
    path = Path(path)
    text = read_small_text(path, LONG_TEXT, what="a result")
    try:
        content = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a result ({error})") from None
    _check(path, content, FileError)
    return dict(content)


def blank_words(blank: int, patches: int) -> str:
    """What a result says where some rows are zeros."""
    return f"{blank} of {patches} patches have no description: their rows are zeros, so that they match each other"


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
        return f"kind {str(kind)[:40]!r}, wanted one of {', '.join(SETTINGS)}"
    for key, wanted in SETTINGS[kind].items():
        if not isinstance(content.get(key), wanted):
            return f"{key} is missing or no {wanted.__name__}"
    warnings = content.get("warnings")
    if not isinstance(warnings, list) or not all(isinstance(warning, str) for warning in warnings):
        return "warnings are missing or not sentences"
    return (
        _any_fault(content, DEEPEST)
        or _settings_fault(content)
        or (_hpatches_fault(content) if kind == "hpatches" else _phototourism_fault(content))
    )


def _any_fault(part: object, depth: int) -> str:
    """What no part of a result may be, whoever reads it."""
    if depth < 0:
        return f"nested deeper than {DEEPEST}"
    if isinstance(part, str) and any("\ud800" <= letter <= "\udfff" for letter in part):
        return "it has half a letter (a lone surrogate)"
    if isinstance(part, float) and not math.isfinite(part):
        return f"{part} is not a number"
    if isinstance(part, Mapping):
        if not all(isinstance(key, str) and key for key in part):
            return "it has an empty name"
        part = [*part.keys(), *part.values()]
    inner = part if isinstance(part, list | tuple) else ()
    return next((fault for each in inner if (fault := _any_fault(each, depth - 1))), "")


def _settings_fault(content: Mapping[str, Any]) -> str:
    """The names and whole numbers that results share; those that are optional may be null."""
    for key in NAMES:
        if content.get(key) is not None and not _is_name(content[key]):
            return f"{key} is {str(content[key])[:40]!r}, not a name"
    for key, least in COUNTS.items():
        value = content.get(key)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**63):
            return f"{key} is {str(value)[:40]!r}, wanted a whole number from {least}"
    if not isinstance(content.get("hand_crafted"), bool | None):
        return f"hand_crafted is {str(content['hand_crafted'])[:40]!r}, wanted true or false"
    return "" if content["distance"] in DISTANCES else f"distance is {content['distance'][:40]!r}"


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
    """A score anywhere in a task is from 0 to 1, and what it holds by sequence is nested as it should be."""
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


def _at(content: object, path: str) -> object:
    for key in path.split("/"):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1


def _is_name(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip()) and value.isprintable()
