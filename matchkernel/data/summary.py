"""Describe and check sets on disk."""

from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.hpatches import open_hpatches
from matchkernel.data.patch_set import MANIFEST, check_hashes, named_lists, open_patch_set, read_manifest


def facts(folder: str | Path) -> dict[str, Any]:
    """Counts and origin of a patch set or an HPatches-layout set."""
    folder = Path(folder)
    if not (folder / MANIFEST).is_file() and any(folder.glob("*/ref.png")):
        return {"folder": str(folder), "kind": "hpatches layout", "sequences": open_hpatches(folder).counts}
    manifest = read_manifest(folder)
    if manifest.get("kind") == "homographies":
        known = {name: manifest.get(name) for name in ("sequences", "settings")}
        return {"folder": str(folder), "kind": "hpatches layout", **known}
    patch_set = open_patch_set(folder)
    sizes = patch_set.groups().sizes
    result: dict[str, Any] = {
        "folder": str(folder),
        "kind": "patch set",
        "patches": len(patch_set),
        "side": patch_set.patches.shape[1],
        "points": len(sizes),
        "points with one patch": int((sizes == 1).sum()),
        "patches per point, median": float(np.median(sizes)) if len(sizes) else 0,
        "pairs": {name: len(patch_set.pairs[name]) for name in named_lists(patch_set.pairs).values()},
        "columns": sorted(patch_set.columns),
    }
    return result | {name: manifest[name] for name in ("source", "selection") if name in manifest}


def lines(values: dict[str, Any], indent: str = "") -> list[str]:
    """Facts as lines of text; long lists are replaced by their lengths."""
    result = []
    for name, value in values.items():
        if isinstance(value, dict) and value:
            result += [f"{indent}{name}:", *lines(value, indent + "  ")]
        elif isinstance(value, list) and len(value) > 8:
            result.append(f"{indent}{name}: {len(value)}")
        else:
            result.append(f"{indent}{name}: {value}")
    return result


def one_line(folder: str | Path) -> str:
    """The contents of a set in one line."""
    found = facts(folder)
    if found["kind"] == "patch set":
        chosen = found.get("selection", {})
        origin = f", {chosen['from tracks']} from tracks and {chosen['from geometry']} from geometry" if chosen else ""
        unused = ", ".join(f"{count} {reason}" for reason, count in chosen.get("photos left out", {}).items())
        photos = f"; photos left out: {unused}" if unused else ""
        lists = list(found["pairs"])  # the protocol's is the first
        more = f" and {len(lists) - 1} more lists" if len(lists) > 1 else ""
        tested = f", test pairs: {lists[0]}{more}" if lists else ""
        return f"{found['patches']} patches of {found['points']} points{origin}{tested} -> {folder}{photos}"
    sequences = found["sequences"]
    counts = {name: entry if isinstance(entry, int) else entry["patches"] for name, entry in sequences.items()}
    empty = [f"{name}: {sequences[name]['why']}" for name, count in counts.items() if not count]
    left_out = f"; left out {len(empty)}, {empty[0]}" if empty else ""
    whole = len(counts) - len(empty)
    return (
        f"{whole} sequence{'s' * (whole != 1)}, {sum(counts.values())} patches per strip in total -> {folder}{left_out}"
    )


def verify(folder: str | Path) -> None:
    """Check a set of either kind: every file against its manifest, then that it opens."""
    is_hpatches = check_hashes(folder).get("kind") == "homographies"
    _ = open_hpatches(folder) if is_hpatches else open_patch_set(folder)
