"""Patch sets: a memory-mapped array of patches, one label per patch, test pairs, and a manifest.

<folder>/patches.npy      (K, N, N) uint8
         labels.npy       (K,) int64, the 3-D point; gaps and singletons are allowed
         <column>.npy     (K, ...) further columns, one row per patch, such as `geometric`
         pairs/<name>.npy (M, 3) int64: patch, patch, 1 if they show the same point
         manifest.json    counts, sha256 of every file, source, settings; written last
"""

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.runtime.weights import SOME
from matchkernel.storage.arrays import map_npy
from matchkernel.storage.files import LONG_TEXT, check_free_space, file_hash, read_small_text
from matchkernel.storage.folders import JOURNAL, LOCK, MARK, Build, resumable_build

MANIFEST, FORMAT = "manifest.json", 1
PROTOCOL = "m50_100000_100000_0"  # of PhotoTourism's pair lists the one that papers report
LARGEST_PATCH = 1024  # pixels of the side of patches that builders cut


class Groups(NamedTuple):
    """Patches grouped by label."""

    order: np.ndarray  # (K,) patches sorted by label, in their original order within a label
    starts: np.ndarray  # (L,) index in `order` of the first patch of each label
    sizes: np.ndarray  # (L,) number of patches of each label

    def ranks(self) -> np.ndarray:
        """(K,) index of the group of each patch: 0 for the smallest label, then 1, ..."""
        ranks = np.empty(len(self.order), np.int64)
        ranks[self.order] = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return ranks

    def members(self) -> list[np.ndarray]:
        """The patches of each label."""
        return np.split(self.order, self.starts[1:]) if len(self.starts) else []


def group_by_label(labels: np.ndarray) -> Groups:
    """Group (K,) labels, any whole numbers.

    Example:
        >>> groups = group_by_label(np.array([7, 2, 7]))
        >>> [members.tolist() for members in groups.members()], groups.ranks().tolist()
        ([[1], [0, 2]], [1, 0, 1])
    """
    order = np.argsort(labels, kind="stable")
    _, starts, sizes = np.unique(labels[order], return_index=True, return_counts=True)
    return Groups(order, starts, sizes)


@dataclass(frozen=True)
class PatchSet:
    """An opened patch set."""

    folder: Path
    patches: np.ndarray  # (K, N, N) uint8, memory-mapped
    labels: np.ndarray  # (K,) int64
    columns: dict[str, np.ndarray]
    pairs: dict[str, np.ndarray]
    manifest: dict[str, Any]

    def __len__(self) -> int:
        return len(self.labels)

    def groups(self) -> Groups:
        """The patches of each point."""
        return group_by_label(self.labels)


@dataclass
class PatchSetBuild:
    """A patch set being written: `store` patches step by step, then pass everything else to `finish`.

    Patches are written, not memory-mapped: on a full disk that is an error, and not a crash.
    """

    build: Build
    file: BinaryIO
    start: int  # of the first patch in the file

    @property
    def patches(self) -> np.ndarray:
        """(K, N, N) what is stored so far."""
        return map_npy(self.build.folder / "patches.npy")

    def steps(self, names: Iterable[str]) -> Iterator[int]:
        """The numbers of the steps not done yet; each is marked done when the next one is requested."""
        for number, name in enumerate(names):
            if name not in self.build.done:
                yield number
                os.fsync(self.file.fileno())
                self.build.mark(name)

    def store(self, rows: Sequence[int] | np.ndarray, patches: np.ndarray) -> None:
        """Write (M, N, N) uint8 patches to these rows of the set; neighbours at once."""
        ends = [*(np.flatnonzero(np.diff(rows) != 1) + 1), len(rows)]
        for first, end in pairwise([0, *ends]):
            self.file.seek(self.start + int(rows[first]) * patches[first].nbytes)
            self.file.write(np.ascontiguousarray(patches[first:end]).data)
        self.file.flush()

    def finish(
        self,
        labels: np.ndarray,
        pairs: Mapping[str, np.ndarray],
        columns: Mapping[str, np.ndarray],
        manifest: Mapping[str, Any],
    ) -> None:
        """Write everything except the patches; the manifest last."""
        folder = self.build.folder
        np.save(folder / "labels.npy", labels.astype(np.int64))
        for name, column in columns.items():
            np.save(folder / f"{name}.npy", column)
        for name, rows in pairs.items():
            (folder / "pairs").mkdir(exist_ok=True)
            np.save(folder / "pairs" / f"{name}.npy", rows.astype(np.int64))
        write_manifest(folder, {"counts": _counts(labels), **manifest})


@contextmanager
def create_patch_set(target: str | Path, count: int, side: int, settings: Mapping[str, Any]) -> Iterator[PatchSetBuild]:
    """Create a patch set of `count` patches of `side` pixels; an interrupted build resumes, see resumable_build."""
    shape = (count, side, side)
    with resumable_build(target, {**settings, "count": count, "side": side}) as build:
        path = build.folder / "patches.npy"
        if not path.exists():
            check_free_space(target, math.prod(shape))
            path.touch()
        with path.open("r+b") as file:
            np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
            start = file.tell()
            file.truncate(start + math.prod(shape))  # what an interrupted build has stored stays
            yield PatchSetBuild(build, file, start)


def open_patch_set(folder: str | Path) -> PatchSet:
    """Open a patch set; its patches are memory-mapped.

    The number of patches, labels and rows is checked. `matchkernel data verify` checks every byte.

    Args:
        folder: made by one of the builders of `matchkernel data`.

    Example:
        >>> from matchkernel.data.patch_set import open_patch_set
        >>> from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
        >>> folder = "set"
        >>> _ = build_synthetic(folder, SyntheticSettings(points=3, patches=2, size=8))
        >>> patches = open_patch_set(folder)
        >>> patches.patches.shape, patches.labels.tolist()
        ((6, 8, 8), [0, 0, 1, 1, 2, 2])
    """
    folder = Path(folder)
    if (folder / "ref.png").is_file() or any(folder.glob("*/ref.png")):
        raise FileError(
            f"{folder}: has the HPatches layout, not a patch set; `matchkernel evaluate hpatches` scores it"
        )
    manifest = read_manifest(folder)
    columns = {path.stem: map_npy(path) for path in sorted(folder.glob("*.npy"))}
    pairs = {path.stem: map_npy(path) for path in sorted((folder / "pairs").glob("*.npy"))}
    patches, labels = (columns.pop(name, np.empty(0)) for name in ("patches", "labels"))
    fits = (
        labels.dtype == np.int64
        and labels.ndim == 1
        and manifest.get("counts") == _counts(labels)
        and patches.dtype == np.uint8
        and patches.shape == (len(labels), *patches.shape[-1:] * 2)
        and all(column.shape[:1] == labels.shape for column in columns.values())
        and all(rows.dtype == np.int64 and rows.shape[1:] == (3,) for rows in pairs.values())
    )
    if not fits:
        raise FileError(f"{folder}: its files do not fit together; `matchkernel data verify` names the damaged one")
    return PatchSet(folder, patches, labels, columns, pairs, manifest)


def open_test_sets(folders: Sequence[tuple[str | None, str | Path]]) -> dict[str, PatchSet]:
    """Open patch sets by name; one whose patches are not those of its manifest is refused.

    A set without a name gets that of its folder; sets with the same name are joined.
    """
    if not folders:
        raise ArgumentError("give a patch set to test on")
    opened: dict[str, list[PatchSet]] = defaultdict(list)
    for name, folder in folders:
        part = open_patch_set(folder)
        # Results identify a set by the hash in its manifest, so that must be the hash of the patches.
        if file_hash(part.folder / "patches.npy") not in patches_sha256(part):
            raise FileError(f"{part.folder}: patches.npy is damaged, its sha256 does not match the manifest")
        opened[name or Path(folder).resolve().name].append(part)
    unnamed = {Path(folder).resolve().name for name, folder in folders if name is None}
    clash = next((name for name, parts in opened.items() if len(parts) > 1 and name in unnamed), None)
    if clash:
        raise ArgumentError(
            f"two sets have the name {clash!r}: name them with NAME=FOLDER (giving both the same name joins them)"
        )
    return {name: parts[0] if len(parts) == 1 else join_patch_sets(name, parts) for name, parts in opened.items()}


def join_labels(sets: Sequence[PatchSet]) -> np.ndarray:
    """(K,) labels of several sets, concatenated and renumbered, so that points of different sets stay different.

    Sets that cannot be joined are refused: patches of different sizes, or the same patches twice.
    """
    sides = {part.patches.shape[-1] for part in sets}
    if len(sides) != 1:
        raise ArgumentError(f"only sets with the same patch size can be joined, these have {sorted(sides)} px")
    for one, two in combinations(sets, 2):
        is_same_folder = one.folder.resolve() == two.folder.resolve()
        if is_same_folder or not patches_sha256(one).isdisjoint(patches_sha256(two)):
            raise ArgumentError(f"{one.folder} and {two.folder} contain the same patches; use one of them")
    groups = [part.groups() for part in sets]
    firsts = np.cumsum([0, *(len(group.sizes) for group in groups)])
    return np.concatenate([group.ranks() + first for group, first in zip(groups, firsts, strict=False)])


def join_patch_sets(name: str, sets: Sequence[PatchSet]) -> PatchSet:
    """Join several scenes into one set, in memory; pair lists of the same kind become one list."""
    labels = join_labels(sets)
    names = [named_lists(part.pairs) for part in sets]
    firsts = np.cumsum([0, *(len(part) for part in sets)])  # index of each set's first patch
    for part, own in zip(sets, names, strict=True):
        if own.keys() != names[0].keys():
            raise ArgumentError(
                f"{part.folder}: has the pair lists {', '.join(own) or 'none'}, {sets[0].folder} "
                f"{', '.join(names[0]) or 'none'}; only sets with the same kinds of lists can be joined"
            )
    kinds, pairs = Counter(map(kind_of, names[0])), {}
    for short, name_of_list in names[0].items():
        parts = [part.pairs[own[short]] for part, own in zip(sets, names, strict=True)]
        joined = np.concatenate([rows + np.array([k, k, 0]) for rows, k in zip(parts, firsts, strict=False)])
        if kinds[kind_of(short)] == 1:  # else each keeps its name: named by length, one could take another's
            name_of_list = f"{short}_{len(joined)}_{len(joined)}_0"
        pairs[name_of_list] = joined
    manifest = {
        "joined": sorted(frozenset[str]().union(*map(known_names, sets))),
        "sha256": {"patches.npy": sorted(frozenset[str]().union(*map(patches_sha256, sets)))},
    }
    return PatchSet(Path(name), np.concatenate([part.patches for part in sets]), labels, {}, pairs, manifest)


def known_names(patches: PatchSet) -> frozenset[str]:
    """The names of a set's folder and of the scene that it was cut from, or those of the sets it was joined from."""
    own = [patches.folder.resolve().name, patches.manifest.get("source", {}).get("name")]
    return frozenset(name for name in patches.manifest.get("joined", own) if name)


def training_entries(patches: PatchSet) -> list[tuple[str, str]]:
    """What weights that learn from a set record of it: name and sha256, and the scene of which it has some patches."""
    scene = patches.manifest.get("source", {}).get("name")
    own = (patches.folder.resolve().name, str(patches.manifest["sha256"].get("patches.npy")))
    return [own, (scene, SOME)] if scene else [own]


def patches_sha256(patches: PatchSet) -> frozenset[str]:
    """The sha256 of a set's patches as recorded in its manifest, or those of the sets it was joined from."""
    found = patches.manifest.get("sha256", {}).get("patches.npy", [])
    return frozenset([found] if isinstance(found, str) else found)


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished set."""
    path = Path(folder) / MANIFEST
    if not path.is_file():
        is_begun = path.parent.suffix == ".part" or Path(f"{path.parent}.part").is_dir()
        why = (
            "a build that was not finished; run it again" if is_begun else "no patch set; `matchkernel data` makes them"
        )
        raise FileError(f"{folder}: {why}")
    try:
        manifest = dict(json.loads(read_small_text(path, LONG_TEXT, what="a manifest")))
        if manifest["format"] == FORMAT and isinstance(manifest["sha256"], dict):
            return manifest
    except (ValueError, RecursionError, TypeError, KeyError):
        pass
    raise FileError(f"{path}: not the manifest of a set of format {FORMAT}, which this version reads")


def write_manifest(folder: Path, content: Mapping[str, Any]) -> dict[str, Any]:
    """Write the manifest of a set whose other files are complete; returns it."""
    hashes = {name: file_hash(folder / name) for name in _content(folder)}
    manifest = {"format": FORMAT, **content, "sha256": hashes}
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return manifest


def check_hashes(folder: str | Path) -> dict[str, Any]:
    """Read the manifest and check every file against it: none is damaged, missing or extra."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    recorded, present = manifest["sha256"], _content(folder)
    for name in sorted(recorded.keys() | set(present)):
        if name not in present:
            raise FileError(f"{folder}: {name} is missing")
        if name not in recorded:
            raise FileError(f"{folder}: {name} is not in the manifest")
        if file_hash(folder / name) != recorded[name]:
            raise FileError(f"{folder}: {name} is damaged, its sha256 does not match the manifest")
    return manifest


def named_lists(names: Iterable[str]) -> dict[str, str]:
    """Short name -> pair list; the short name of a kind's only list is the kind, the name before the first underscore.

    PhotoTourism's archives hold several of kind "m50": the short name "m50" is then PROTOCOL's, which comes first, and
    the others keep their full names.
    """
    lists = sorted(names, key=lambda name: (name != PROTOCOL, len(name), name))
    kinds = Counter(map(kind_of, lists))
    return {kind_of(name) if kinds[kind_of(name)] == 1 or name == PROTOCOL else name: name for name in lists}


def kind_of(name: str) -> str:
    """The kind of a pair list: m50_100000_100000_0 and m50_50000_50000_0 are both m50."""
    return name.split("_")[0]


def _counts(labels: np.ndarray) -> dict[str, int]:
    return {"patches": len(labels), "points": len(np.unique(labels))}


def _content(folder: Path) -> list[str]:
    own = (MANIFEST, JOURNAL, LOCK, MARK)
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in own)
    return [path.relative_to(folder).as_posix() for path in paths]
