"""Patch sets to test on: by name, several joined into one where they share a name."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np

from matchkernel.data.patch_set import PatchSet, open_patch_set
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.methods import patches_sha256


def open_test_sets(folders: Sequence[tuple[str | None, str | Path]]) -> dict[str, PatchSet]:
    """Open patch sets to test on.

    Args:
        folders: name and folder of each; without a name it is the folder's. Folders given the same name make one set.
    """
    if not folders:
        raise ArgumentError("give a patch set to test on")
    opened: dict[str, list[PatchSet]] = defaultdict(list)
    unnamed = set()
    for name, folder in folders:
        shown = name or Path(folder).resolve().name
        opened[shown].append(open_patch_set(folder))
        unnamed |= {shown} if name is None else set()
    clash = next((name for name, parts in opened.items() if len(parts) > 1 and name in unnamed), None)
    if clash:
        raise ArgumentError(f"two sets have the name {clash!r}: name them, NAME=FOLDER (one name joins them)")
    return {name: parts[0] if len(parts) == 1 else join_patch_sets(name, parts) for name, parts in opened.items()}


def join_patch_sets(name: str, parts: Sequence[PatchSet]) -> PatchSet:
    """One set of several scenes, in memory: labels stay apart, pair lists of one kind are put behind each other.

    Args:
        name: of the whole.
        parts: patches of one size; each with the same kinds of pair lists.
    """
    sides = {part.patches.shape[1] for part in parts}
    if len(sides) > 1:
        raise ArgumentError(f"{name}: patches of one size can be joined, these have {sorted(sides)} px")
    _check_distinct(name, parts)
    labels, pairs, start, first = [], defaultdict(list), 0, 0
    kinds = _lists(parts[0]).keys()
    for part in parts:
        lists = _lists(part)
        if lists.keys() != kinds:
            raise ArgumentError(
                f"{part.folder}: has the pair lists {', '.join(lists) or 'none'}, {parts[0].folder} "
                f"{', '.join(kinds) or 'none'}; sets to be joined must have the same"
            )
        _, own = np.unique(part.labels, return_inverse=True)
        labels.append(own + first)
        for kind, rows in lists.items():
            pairs[kind].append(rows + np.array([start, start, 0]))
        start, first = start + len(part), first + int(own.max(initial=-1)) + 1
    joined = {kind: np.concatenate(rows) for kind, rows in pairs.items()}
    manifest = {
        "joined": [part.folder.resolve().name for part in parts],
        "sha256": {"patches.npy": [part.manifest.get("sha256", {}).get("patches.npy") for part in parts]},
    }
    return PatchSet(
        Path(name),
        np.concatenate([part.patches for part in parts]),
        np.concatenate(labels),
        {},
        {f"{kind}_{len(rows)}_{len(rows)}_0": rows for kind, rows in joined.items()},
        manifest,
    )


def _check_distinct(name: str, parts: Sequence[PatchSet]) -> None:
    """Refuse the same patches twice, by folder or by their sha256."""
    for one, two in combinations(parts, 2):
        is_same_folder = one.folder.resolve() == two.folder.resolve()
        if is_same_folder or not patches_sha256(one).isdisjoint(patches_sha256(two)):
            raise ArgumentError(f"{name}: {one.folder} and {two.folder} hold the same patches, they cannot be joined")


def _lists(patches: PatchSet) -> Mapping[str, np.ndarray]:
    """Pair lists by kind, the name before the first underscore."""
    found: dict[str, np.ndarray] = {}
    for name, rows in sorted(patches.pairs.items()):
        kind = name.split("_")[0]
        if kind in found:
            raise ArgumentError(f"{patches.folder}: has two pair lists of the kind {kind!r}")
        found[kind] = rows
    return found
