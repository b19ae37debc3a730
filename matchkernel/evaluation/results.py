"""Results as JSON files: the same bytes for the same numbers, and nothing read that is not a result."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError
from matchkernel.files import replacing

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
LARGEST_FILE = 2**28


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
    try:
        if path.stat().st_size > LARGEST_FILE:
            raise FileError(f"{path}: too large for a result")
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse)
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a result ({error})") from None
    _check(path, content, FileError)
    return dict(content)


def blank_words(blank: int, patches: int) -> str:
    """What a result says where some rows are zeros."""
    return f"{blank} of {patches} patches have no description: their rows are zeros, so that they match each other"


def _refuse(word: str) -> float:
    raise ValueError(f"{word} is not a number")


def _check(path: Path, content: object, kind_of_error: type[ArgumentError] | type[FileError]) -> None:
    fault = _fault(content)
    if fault:
        raise kind_of_error(f"{path}: not a result ({fault})")


def _fault(content: object) -> str:
    if not isinstance(content, Mapping):
        return "not a JSON object"
    if content.get("format") != FORMAT:
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
    return _hpatches_fault(content) if kind == "hpatches" else _phototourism_fault(content)


def _hpatches_fault(content: Mapping[str, Any]) -> str:
    tasks = [task for task in NUMBERS if task in content]
    if not tasks:
        return "it has none of the three tasks"
    wrong = [f"{task}/{path}" for task in tasks for path in NUMBERS[task] if not _is_share(_at(content[task], path))]
    return f"{wrong[0]} is missing or not from 0 to 1" if wrong else ""


def _phototourism_fault(content: Mapping[str, Any]) -> str:
    values = {f"pairs/{name}/fpr95": _at(entry, "fpr95") for name, entry in content["pairs"].items()}
    if content.get("retrieval_map") is not None:
        values["retrieval_map"] = content["retrieval_map"]
    wrong = [name for name, value in values.items() if not _is_share(value)]
    return f"{wrong[0][:80]} is missing or not from 0 to 1" if wrong else ""


def _at(content: object, path: str) -> object:
    for key in path.split("/"):
        content = content.get(key) if isinstance(content, Mapping) else None
    return content


def _is_share(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and 0 <= value <= 1
