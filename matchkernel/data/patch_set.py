"""Patch sets: one memory-mapped uint8 array, a label a patch, test pairs, and a manifest that says what they are.

<folder>/patches.npy      (K, N, N) uint8
         labels.npy       (K,) int64, the 3-D point; gaps and singletons are allowed
         <column>.npy     (K, ...) more about each patch, such as `geometric`
         pairs/<name>.npy (M, 3) int64: patch, patch, 1 if they show the same point
         manifest.json    counts, shapes, sha256 of every file, source, settings; written last
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.manifest import FORMAT, MANIFEST, content_hashes, read_manifest
from matchkernel.errors import FileError
from matchkernel.storage.arrays import map_npy
from matchkernel.storage.folders import Build, building

ZEROS = bytes(1 << 20)


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

    def groups(self) -> tuple[np.ndarray, np.ndarray]:
        """Patches sorted by label, and where each label's group starts: (K,) indices, (L + 1,) bounds."""
        order = np.argsort(self.labels, kind="stable")
        inner = np.flatnonzero(np.diff(self.labels[order])) + 1
        return order, np.concatenate([[0] if len(order) else [], inner, [len(order)]]).astype(np.int64)


@dataclass
class PatchSetBuild:
    """A patch set being written: fill `patches`, step by step, then give the rest to `finish`."""

    build: Build
    patches: np.ndarray

    def steps(self, names: list[str]) -> Iterator[tuple[int, str]]:
        """The steps not done yet, numbered; each is marked done when the next is asked for."""
        for number, name in enumerate(names):
            if name not in self.build.done:
                yield number, name
                if isinstance(self.patches, np.memmap):  # not so for a set without patches
                    self.patches.flush()
                self.build.mark(name)

    def finish(
        self,
        labels: np.ndarray,
        pairs: Mapping[str, np.ndarray],
        columns: Mapping[str, np.ndarray],
        manifest: Mapping[str, Any],
    ) -> None:
        """Write everything but the patches; the manifest last."""
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
def packing(target: str | Path, count: int, side: int, settings: Mapping[str, Any]) -> Iterator[PatchSetBuild]:
    """Make a patch set of `count` patches of `side` pixels; see building for what a stop in between means."""
    with building(target, {**settings, "count": count, "side": side}) as build:
        path = build.folder / "patches.npy"
        if not _is_allocated(path, (count, side, side)):
            build.forget()  # what was done was in the file that is not whole
            _allocate(path, (count, side, side))
        # r+ on a file whose blocks are taken: a full disk was an error above and cannot be a crash here.
        patches = np.lib.format.open_memmap(path, "r+") if count else np.load(path)
        yield PatchSetBuild(build, patches)


def open_patch_set(folder: str | Path) -> PatchSet:
    """Open a patch set. Shapes and counts are checked; bytes are checked by summary.verify."""
    folder = Path(folder)
    manifest = read_manifest(folder)
    patches = _read_array(folder / "patches.npy", 3, np.uint8)
    labels = _read_array(folder / "labels.npy", 1, np.int64)
    if len(patches) != len(labels):
        raise FileError(f"{folder}: {len(patches)} patches but {len(labels)} labels")
    if patches.shape[1] != patches.shape[2]:
        raise FileError(f"{folder / 'patches.npy'}: patches are square, these {patches.shape[1]} x {patches.shape[2]}")
    counts = {"patches": len(labels), "points": len(np.unique(labels))}
    if manifest.get("counts") != counts:
        raise FileError(f"{folder / MANIFEST}: says {manifest.get('counts')}, the set holds {counts}")
    columns = {}
    for path in sorted(folder.glob("*.npy")):
        if path.stem not in ("patches", "labels"):
            columns[path.stem] = _read_array(path)
            if len(columns[path.stem]) != len(labels):
                raise FileError(f"{path}: {len(columns[path.stem])} rows for {len(labels)} patches")
    pairs = {path.stem: _read_pairs(path, len(labels)) for path in sorted((folder / "pairs").glob("*.npy"))}
    return PatchSet(folder, patches, labels, columns, pairs, manifest)


def _allocate(path: Path, shape: tuple[int, int, int]) -> None:
    with path.open("wb") as file:
        header = {"descr": "|u1", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        size = int(np.prod(shape))
        if size and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), file.tell(), size)
        else:  # macOS has none; zeros that are written take their blocks as well
            for start in range(0, size, len(ZEROS)):
                file.write(ZEROS[: size - start])


def _is_allocated(path: Path, shape: tuple[int, int, int]) -> bool:
    """Whether the file is there with room for all patches (NumPy would fill up a shorter one with zeros)."""
    try:
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0(file) if version == (1, 0) else None
            expected = file.tell() + int(np.prod(shape))
        return header == (shape, False, np.dtype(np.uint8)) and path.stat().st_size == expected
    except (OSError, ValueError):
        return False


def _read_array(path: Path, ndim: int | None = None, dtype: type | None = None) -> np.ndarray:
    array = map_npy(path)
    if array.ndim < 1 or (ndim and array.ndim != ndim) or (dtype and array.dtype != dtype):
        raise FileError(f"{path}: not the array a patch set has there")
    return array


def _read_pairs(path: Path, count: int) -> np.ndarray:
    pairs = _read_array(path, 2, np.int64)
    if pairs.shape[1] != 3 or (len(pairs) and (pairs[:, :2].min() < 0 or pairs[:, :2].max() >= count)):
        raise FileError(f"{path}: pairs are (M, 3) and name patches below {count}")
    if not np.isin(pairs[:, 2], (0, 1)).all():
        raise FileError(f"{path}: the third column of pairs is 0 or 1")
    return pairs
