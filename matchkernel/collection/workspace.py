"""The folder that a reconstruction leaves: what is recorded in it, to add photos later."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing
from matchkernel.storage.settings import told_differences

SUMMARY, MATCHES = "summary.json", "matches.h5"


@dataclass(frozen=True)
class Finished:
    """A finished workspace: what it was made from, and what came out."""

    folder: Path
    inputs: dict[str, Any]
    summary: dict[str, Any]


def read_finished(folder: Path, settings: Mapping[str, Any]) -> Finished | None:
    """What a workspace records; None if there is none. One made with other settings, or not by us, is refused."""
    if not folder.exists():
        return None
    try:
        facts = dict(json.loads(read_small_text(folder / SUMMARY, LONG_TEXT, what="a summary")))
        before, inputs = dict(facts.pop("settings")), dict(facts.pop("inputs"))
        dict(inputs["photos"]), dict(facts["skipped"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise FileError(f"{folder}: already exists; remove it or choose another place") from None
    if told := told_differences(before, settings):
        raise FileError(f"{folder}: already exists, {told}; remove it or choose another place")
    return Finished(folder, inputs, facts)


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file appear at another place too, if it exists and nothing is there; files are replaced, not changed."""
    if os.path.isfile(source) and not target.exists():  # noqa: PTH113 - False for a name too long
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without links
            with replacing(target) as part:
                shutil.copyfile(source, part)


def write_json(path: Path, content: Any) -> None:
    """Write a JSON file, atomically."""
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
