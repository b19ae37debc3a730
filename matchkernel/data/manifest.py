"""The manifest of a set: what it is, and the sha256 of every file in it."""

import json
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.storage.folders import JOURNAL, LOCK, file_hash

MANIFEST, FORMAT = "manifest.json", 1


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished set."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        unfinished = folder.name.endswith(".part") or folder.with_name(folder.name + ".part").is_dir()
        if not folder.exists() and not unfinished:
            raise FileError(f"{folder}: no such folder; `matchkernel data` makes patch sets")
        why = "a build that was not finished; run it again" if unfinished else f"not a set, it has no {MANIFEST}"
        raise FileError(f"{folder}: {why}")
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"{path}: cannot be read ({error})") from None
    if not isinstance(manifest, dict):
        raise FileError(f"{path}: not a JSON object")
    if manifest.get("format") != FORMAT:
        raise FileError(f"{path}: format {repr(manifest.get('format'))[:40]}, this version reads {FORMAT}")
    if not isinstance(manifest.get("sha256"), dict):
        raise FileError(f"{path}: lists no sha256 of its files")
    return manifest


def content_hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file of a set but its manifest, by relative name."""
    return {name: file_hash(folder / name) for name in _content(folder)}


def check_hashes(folder: str | Path) -> dict[str, Any]:
    """Read the manifest and check every file against it: none damaged, missing or too many."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    recorded, present = manifest["sha256"], _content(folder)
    for name in sorted(recorded.keys() | set(present)):
        if name not in present:
            raise FileError(f"{folder}: {name} is missing")
        if name not in recorded:
            raise FileError(f"{folder}: {name} is not in the manifest")
        if file_hash(folder / name) != recorded[name]:
            raise FileError(f"{folder}: {name} is damaged, its sha256 is not the manifest's")
    return manifest


def _content(folder: Path) -> list[str]:
    own = (MANIFEST, JOURNAL, LOCK)
    return [
        str(path.relative_to(folder)) for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in own
    ]
