"""Results as JSON files: reading, writing, and the names of the files."""

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import LONG_TEXT, check_folder, check_output, json_digest, read_small_text, replacing

CheckPlans = Callable[[Sequence[dict[str, Any]]], object]  # called with the settings of results before the work

FORMAT = 1
NOTICEABLE = 5e-5  # a difference by ties that needs no warning: invisible in percent with two decimals
ALL_TASKS = 3  # of HPatches; a result of fewer has a digest in its name
KEYS: dict[str, dict[str, type]] = {
    "hpatches": {
        "descriptor": str, "dimension": int, "split": str, "sequences": list, "distance": str, "whitening": str,
    },
    "phototourism": {"descriptor": str, "dimension": int, "test_set": str, "distance": str, "pairs": dict},
    "photos": {
        "descriptor": str, "licence": str, "keypoints": int, "filter": str, "protocol": dict, "scenes": dict,
        "mean": dict, "seconds": dict,
    },
}  # fmt: skip
OPTIONAL = ("train_set", "set", "seed", "configuration")  # a different value makes it another result


def write_result(path: str | Path, result: Mapping[str, Any]) -> None:
    """Write a result atomically: keys sorted, numbers in the shortest form that reads back to the same double.

    Args:
        path: a .json file.
        result: of score_split, score_patch_set or evaluate_photos.

    Example:
        >>> from matchkernel.evaluation.results import read_result, write_result
        >>> result = {"format": 1, "kind": "phototourism", "descriptor": "mine", "dimension": 8, "test_set": "liberty",
        ...           "distance": "l2", "pairs": {}, "retrieval_map": 0.25, "warnings": []}
        >>> write_result("mine.json", result)
        >>> read_result("mine.json") == result
        True
    """
    path = Path(path)
    if fault := _fault(result):
        raise ArgumentError(f"{path}: not a result ({fault})")
    try:
        text = json.dumps(result, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
        content = text.encode("utf-8")
    except (ValueError, TypeError, RecursionError) as error:
        raise ArgumentError(f"{path}: not a result ({error})") from None
    with replacing(path) as part:
        part.write_bytes(content)


def read_result(path: str | Path) -> dict[str, Any]:
    """Read a result; refuses other files, and those of a later version.

    Example: see write_result.
    """
    path = Path(path)
    text = read_small_text(path, LONG_TEXT, what="a result")
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: not a result ({error})") from None
    if fault := _fault(content):
        raise FileError(f"{path}: not a result ({fault})")
    return dict(content)


def _fault(content: object) -> str:
    """What is wrong with a result; empty if nothing is."""
    if not isinstance(content, Mapping):
        return "not a JSON object"
    if content.get("format") != FORMAT:
        return f"format {str(content.get('format'))[:40]!r}, this version reads {FORMAT}"
    kind = content.get("kind")
    if not isinstance(kind, str) or kind not in KEYS:
        return f"kind {str(kind)[:40]!r}, expected one of {', '.join(KEYS)}"
    wrong = [
        key for key, wanted in (KEYS[kind] | {"warnings": list}).items() if not isinstance(content.get(key), wanted)
    ]
    return f"{wrong[0]} is missing or of another type" if wrong else ""


def blank_warning(blank: int, patches: int) -> str:
    """The warning for a result in which some rows are zeros."""
    return f"{blank} of {patches} patches have no description: their rows are zeros, so that they match each other"


def check_target(out: str | Path | None, several: bool, *inputs: str | Path) -> None:
    """Refuse a place where results could not be written, before the work is done; None if they are not written.

    It is a .json file, if there are not several results, or a folder, made if missing; neither is over or in an input.
    """
    if out is None:
        return
    out = Path(out)
    if out.suffix == ".json":
        if several:
            raise ArgumentError(f"{out}: several results need a folder, this is the name of one file")
        check_output(out, *inputs)
    elif out.is_file():
        raise FileError(f"{out}: results must be written to a folder or a .json file, this is another file")
    else:
        check_folder(out, *inputs)


def check_files(out: str | Path | None, plans: Sequence[Mapping[str, Any]]) -> None:
    """Refuse, before the work, results that would overwrite each other or one with other settings; see check_target."""
    if out is None:
        return
    for path, plan in zip(_paths(out, plans), plans, strict=True):
        if not path.exists():
            continue
        there, wanted = read_result(path), json.loads(json.dumps(plan))
        other = [key for key in wanted if there.get(key) != wanted[key] and key != "recipe"]  # of the same weights
        other += [key for key in OPTIONAL if key in there and key not in wanted]
        if other:
            raise FileError(f"{path}: contains another result ({other[0]} differs), which is not replaced")


def write_results(out: str | Path, results: Sequence[Mapping[str, Any]]) -> list[Path]:
    """Write results of one evaluation, each atomically; returns the files.

    In a folder they are named after descriptor and test set; a result with the same settings is replaced (see
    check_files).
    """
    paths = _paths(out, results)
    for path, result in zip(paths, results, strict=True):
        write_result(path, result)
    return paths


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


def file_name(result: Mapping[str, Any]) -> str:
    """The name of a result's file.

    For patches: kind, test set or split, descriptor, and how it was trained; if that is not unique, because a part has
    characters that a file name should not have or because only some tasks were scored, a digest of these parts, the
    settings and the tasks is added. For photos: descriptor, keypoints, filter, and a digest of settings and data.
    """
    if result["kind"] == "photos":
        parts = ["photos", result["descriptor"], str(result["keypoints"]), result["filter"]]
        content: Any = [result[key] for key in ("descriptor", "settings", "protocol", "data_sha256")]
        return "-".join([*(_plain(part)[:60] for part in parts), json_digest(content)[:8]])
    parts = [result["kind"], result.get("set"), result.get("split") or result.get("test_set"), result["descriptor"]]
    parts += [result["whitening"]] if result.get("whitening", "none") != "none" else []
    parts += ["l1"] if result["distance"] == "l1" else []
    parts += [result.get("train_set")]
    parts += [f"seed{result['seed']}"] if "configuration" in result else []
    given = [str(part) for part in parts if part]
    plain, tasks = [_plain(part) for part in given], result.get("tasks")
    if plain != given or (tasks is not None and len(tasks) < ALL_TASKS):
        plain.append(json_digest([given, result.get("settings"), tasks])[:8])
    return "-".join(plain)


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "_", text)
