"""Patch sets: a memory-mapped array of patches, one label per patch, test pairs, and a manifest that describes them.

<folder>/patches.npy      (K, N, N) uint8
         labels.npy       (K,) int64, the 3-D point; gaps and singletons are allowed
         <column>.npy     (K, ...) further columns, one row per patch, such as `geometric`
         pairs/<name>.npy (M, 3) int64: patch, patch, 1 if they show the same point
         manifest.json    counts, shapes, sha256 of every file, source, settings; written last
"""

import json
import math
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.arrays import map_npy
from matchkernel.storage.files import LONG_TEXT, check_free_space, file_hash, read_small_text
from matchkernel.storage.folders import JOURNAL, Build, resumable_build
from matchkernel.storage.locks import LOCK

MANIFEST, FORMAT = "manifest.json", 1
LARGEST_PATCH = 1024  # pixels of the side of patches that builders cut
ZEROS = bytes(1 << 20)


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
    """Group (K,) labels, any whole numbers."""
    order = np.argsort(labels, kind="stable")
    ordered = labels[order]
    is_first = np.ones(len(order), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(is_first)
    return Groups(order, starts, np.diff(np.append(starts, len(order))))


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
    """A patch set being written: fill `patches` step by step, then pass everything else to `finish`."""

    build: Build
    patches: np.ndarray

    def steps(self, names: Iterable[str]) -> Iterator[tuple[int, str]]:
        """The steps not done yet, numbered; each is marked done when the next one is requested."""
        for number, name in enumerate(names):
            if name not in self.build.done:
                yield number, name
                if isinstance(self.patches, np.memmap):  # an empty file cannot be memory-mapped
                    self.patches.flush()
                self.build.mark(name)

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
        counts = {"patches": len(labels), "points": len(np.unique(labels))}
        content = {"format": FORMAT, "counts": counts, **manifest, "sha256": content_hashes(folder)}
        (folder / MANIFEST).write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


@contextmanager
def create_patch_set(target: str | Path, count: int, side: int, settings: Mapping[str, Any]) -> Iterator[PatchSetBuild]:
    """Create a patch set of `count` patches of `side` pixels; an interrupted build resumes, see resumable_build."""
    shape = (count, side, side)
    with resumable_build(target, {**settings, "count": count, "side": side}) as build:
        path = build.folder / "patches.npy"
        if not _is_allocated(path, shape):
            check_free_space(target, math.prod(shape))
            build.forget()  # the finished steps belonged to the incomplete file
            _allocate(path, shape)
        # The file's blocks are allocated first, so that a full disk is an error here and not a crash later.
        made = PatchSetBuild(build, np.lib.format.open_memmap(path, "r+") if count else np.load(path))
        try:
            yield made
        finally:
            del made.patches  # Windows renames no folder in which a file is open


def open_patch_set(folder: str | Path) -> PatchSet:
    """Open a patch set. Shapes and counts are checked; bytes are checked by summary.verify."""
    folder = Path(folder)
    _refuse_other_kinds(folder)
    manifest = read_manifest(folder)
    patches = _read_array(folder / "patches.npy", 3, np.uint8)
    labels = _read_array(folder / "labels.npy", 1, np.int64)
    if len(patches) != len(labels):
        raise FileError(f"{folder}: {len(patches)} patches but {len(labels)} labels")
    if patches.shape[1] != patches.shape[2]:
        raise FileError(f"{folder / 'patches.npy'}: patches must be square, got {patches.shape[1:]}")
    counts = {"patches": len(labels), "points": len(np.unique(labels))}
    if manifest.get("counts") != counts:
        raise FileError(f"{folder / MANIFEST}: records {manifest.get('counts')}, the set has {counts}")
    columns = {}
    for path in sorted(folder.glob("*.npy")):
        if path.stem not in ("patches", "labels"):
            columns[path.stem] = _read_array(path)
            if len(columns[path.stem]) != len(labels):
                raise FileError(f"{path}: {len(columns[path.stem])} rows for {len(labels)} patches")
    pairs = {path.stem: _read_pairs(path, len(labels)) for path in sorted((folder / "pairs").glob("*.npy"))}
    return PatchSet(folder, patches, labels, columns, pairs, manifest)


def open_test_sets(folders: Sequence[tuple[str | None, str | Path]]) -> dict[str, PatchSet]:
    """Open patch sets by name; one whose patches are not those of its manifest is refused.

    Args:
        folders: name and folder of each set; a set without a name gets the name of its folder. Sets with the same
            name are joined.
    """
    if not folders:
        raise ArgumentError("give a patch set to test on")
    opened: dict[str, list[PatchSet]] = defaultdict(list)
    unnamed = set()
    for name, folder in folders:
        shown = name or Path(folder).resolve().name
        opened[shown].append(_intact(open_patch_set(folder)))
        unnamed |= {shown} if name is None else set()
    clash = next((name for name, parts in opened.items() if len(parts) > 1 and name in unnamed), None)
    if clash:
        raise ArgumentError(
            f"two sets have the name {clash!r}: name them with NAME=FOLDER (giving both the same name joins them)"
        )
    return {name: parts[0] if len(parts) == 1 else join_patch_sets(name, parts) for name, parts in opened.items()}


def _intact(patches: PatchSet) -> PatchSet:
    """Refuse a set whose patches have changed: results tell sets apart by what the manifest says of them."""
    if file_hash(patches.folder / "patches.npy") not in patches_sha256(patches):
        raise FileError(f"{patches.folder}: patches.npy is damaged, its sha256 does not match the manifest")
    return patches


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
    labels, first = [], 0
    for part in sets:
        groups = part.groups()
        labels.append(groups.ranks() + first)
        first += len(groups.sizes)
    return np.concatenate(labels)


def join_patch_sets(name: str, sets: Sequence[PatchSet]) -> PatchSet:
    """Join several scenes into one set, in memory; pair lists of the same kind become one list.

    Args:
        name: of the joined set.
        sets: with the same patch size and the same kinds of pair lists.
    """
    labels = join_labels(sets)
    lists = [_lists_by_kind(part) for part in sets]
    firsts = np.cumsum([0, *(len(part) for part in sets)])  # index of each set's first patch
    for part, own in zip(sets, lists, strict=True):
        if own.keys() != lists[0].keys():
            raise ArgumentError(
                f"{part.folder}: has the pair lists {', '.join(own) or 'none'}, {sets[0].folder} "
                f"{', '.join(lists[0]) or 'none'}; only sets with the same kinds of lists can be joined"
            )
    pairs = {}
    for kind in lists[0]:
        rows = [own[kind] + [first, first, 0] for own, first in zip(lists, firsts, strict=False)]
        pairs[f"{kind}_{sum(map(len, rows))}_{sum(map(len, rows))}_0"] = np.concatenate(rows)
    manifest = {
        "joined": sorted(frozenset[str]().union(*map(known_names, sets))),
        "sha256": {"patches.npy": [part.manifest.get("sha256", {}).get("patches.npy") for part in sets]},
    }
    return PatchSet(Path(name), np.concatenate([part.patches for part in sets]), labels, {}, pairs, manifest)


def known_names(patches: PatchSet) -> frozenset[str]:
    """The names of a set's folder and of the scene that it was cut from, or those of the sets it was joined from."""
    if isinstance(joined := patches.manifest.get("joined"), list):
        return frozenset(map(str, joined))
    source = patches.manifest.get("source")
    scene = source.get("name") if isinstance(source, Mapping) else None
    return frozenset([patches.folder.resolve().name, *([scene] if isinstance(scene, str) else [])])


def patches_sha256(patches: PatchSet) -> frozenset[str]:
    """The sha256 of a set's patches as recorded in its manifest, or those of the sets it was joined from."""
    known = patches.manifest.get("sha256")
    found = known.get("patches.npy") if isinstance(known, Mapping) else None
    return frozenset(sha for sha in (found if isinstance(found, list) else [found]) if isinstance(sha, str))


def read_manifest(folder: str | Path) -> dict[str, Any]:
    """The manifest of a finished set."""
    folder = Path(folder)
    path = folder / MANIFEST
    if not path.is_file():
        unfinished = folder.name.endswith(".part") or folder.with_name(folder.name + ".part").is_dir()
        if not folder.exists() and not unfinished:
            raise FileError(f"{folder}: no such folder; `matchkernel data` makes patch sets")
        why = "a build that was not finished; run it again" if unfinished else f"not a patch set, it has no {MANIFEST}"
        raise FileError(f"{folder}: {why}")
    text = read_small_text(path, LONG_TEXT, what="a manifest")
    try:
        manifest = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"{path}: cannot be read ({error})") from None
    if not isinstance(manifest, dict):
        raise FileError(f"{path}: not a JSON object")
    if manifest.get("format") != FORMAT:
        raise FileError(f"{path}: format {repr(manifest.get('format'))[:40]}, this version reads {FORMAT}")
    if not isinstance(manifest.get("sha256"), dict):
        raise FileError(f"{path}: does not list the sha256 of its files")
    return manifest


def content_hashes(folder: Path) -> dict[str, str]:
    """sha256 of every file of a set except its manifest, by relative name."""
    return {name: file_hash(folder / name) for name in _content(folder)}


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


def _refuse_other_kinds(folder: Path) -> None:
    if folder.is_file():
        raise FileError(f"{folder}: is a file; a patch set is a folder")
    if (folder / "ref.png").is_file():
        raise FileError(f"{folder}: is an HPatches sequence, not a patch set")
    if any(folder.glob("*/ref.png")):
        raise FileError(
            f"{folder}: is a set in the HPatches layout, not a patch set; `matchkernel evaluate hpatches` scores it"
        )


def _lists_by_kind(patches: PatchSet) -> dict[str, np.ndarray]:
    """Pair lists by kind: their name before the first underscore."""
    found: dict[str, np.ndarray] = {}
    for name, rows in sorted(patches.pairs.items()):
        kind = name.split("_")[0]
        if kind in found:
            raise ArgumentError(f"{patches.folder}: has two pair lists of kind {kind!r}")
        found[kind] = rows
    return found


def _allocate(path: Path, shape: tuple[int, int, int]) -> None:
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        size = math.prod(shape)
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), file.tell(), size)
        else:  # macOS has no such call; writing zeros allocates the blocks as well
            for start in range(0, size, len(ZEROS)):
                file.write(ZEROS[: size - start])


def _is_allocated(path: Path, shape: tuple[int, int, int]) -> bool:
    """Whether the file exists with its full size (NumPy would extend a shorter one with zeros)."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0(file) if version == (1, 0) else None
            expected = file.tell() + math.prod(shape)
        return header == (shape, False, np.dtype(np.uint8)) and path.stat().st_size == expected
    except (OSError, ValueError):
        return False


def _read_array(path: Path, ndim: int | None = None, dtype: type | None = None) -> np.ndarray:
    array = map_npy(path)
    if array.ndim < 1 or (ndim and array.ndim != ndim) or (dtype and array.dtype != dtype):
        raise FileError(f"{path}: not the kind of array that belongs in a patch set")
    return array


def _read_pairs(path: Path, count: int) -> np.ndarray:
    pairs = _read_array(path, 2, np.int64)
    if pairs.shape[1] != 3 or (len(pairs) and (pairs[:, :2].min() < 0 or pairs[:, :2].max() >= count)):
        raise FileError(f"{path}: pairs must be (M, 3) and refer to patches below {count}")
    if not np.isin(pairs[:, 2], (0, 1)).all():
        raise FileError(f"{path}: the third column of pairs must be 0 or 1")
    return pairs


def _content(folder: Path) -> list[str]:
    own = (MANIFEST, JOURNAL, LOCK)
    return [
        path.relative_to(folder).as_posix()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name not in own
    ]
