"""PhotoTourism sets on disk: mosaics of 16 x 16 patches, info.txt, interest.txt, m50_*.txt; or torchvision's cache."""

import re
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.data.patch_set import PROTOCOL, create_patch_set
from matchkernel.errors import FileError
from matchkernel.storage.extras import need
from matchkernel.storage.files import LONG_TEXT, file_hash, read_small_text
from matchkernel.storage.folders import check_new_build
from matchkernel.storage.images import read_gray, write_png
from matchkernel.storage.work import Progress

PATCH, GRID = 64, 16
PER_MOSAIC = GRID * GRID
NAME = re.compile(r"patches\d{4,}\.(bmp|png|jpg)")


@dataclass(frozen=True)
class PhotoTourismFolder:
    """The contents of a PhotoTourism folder; everything except the pixels has been checked."""

    mosaics: list[Path]
    labels: np.ndarray  # (K,) 3-D point of each patch, from info.txt
    reference_images: np.ndarray | None  # (K,) first column of interest.txt, if that file exists
    pairs: dict[str, np.ndarray]  # m50 file -> (M, 3) patch, patch, 1 if of the same point


def read_phototourism(folder: str | Path) -> PhotoTourismFolder:
    """Read the tables of a set and find its mosaics (.bmp, .png or .jpg, in the order of their names)."""
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    mosaics = sorted(path for path in folder.iterdir() if NAME.fullmatch(path.name.lower()))
    labels = read_table(folder / "info.txt", 1)[:, 0]
    wanted, found = -(-len(labels) // PER_MOSAIC), [path.stem.lower() for path in mosaics]
    missing = next((name for k in range(wanted) if (name := f"patches{k:04}") not in found), None)
    if missing or not wanted or len(mosaics) != wanted:
        which = f"{missing} is missing" if missing else f"there are {len(mosaics)}"
        raise FileError(f"{folder}: info.txt has {len(labels)} lines, which fill {wanted} mosaics, but {which}")
    interest = folder / "interest.txt"
    reference_images = read_table(interest, 1)[:, 0] if interest.is_file() else None
    if reference_images is not None and len(reference_images) != len(labels):
        raise FileError(f"{interest}: has {len(reference_images)} lines, info.txt {len(labels)}")
    pairs = {path.stem: _read_pairs(path, labels) for path in sorted(folder.glob("m50*_*_*_0.txt"))}
    return PhotoTourismFolder(mosaics, labels, reference_images, pairs)


def read_mosaic(path: str | Path) -> np.ndarray:
    """(256, 64, 64) uint8 patches of a mosaic, row by row."""
    image = read_gray(path)
    side = PATCH * GRID
    if image.shape != (side, side):
        raise FileError(f"{path}: a mosaic must have {side} x {side} pixels, got {image.shape[1]} x {image.shape[0]}")
    return image.reshape(GRID, PATCH, GRID, PATCH).swapaxes(1, 2).reshape(PER_MOSAIC, PATCH, PATCH)


def write_mosaics(folder: str | Path, patches: np.ndarray) -> list[Path]:
    """Write patches as mosaics patches0000.png, ...; the last one is padded with black."""
    paths = []
    for number, start in enumerate(range(0, len(patches), PER_MOSAIC)):
        full = np.zeros((PER_MOSAIC, PATCH, PATCH), np.uint8)
        chosen = patches[start : start + PER_MOSAIC]
        full[: len(chosen)] = chosen
        mosaic = full.reshape(GRID, GRID, PATCH, PATCH).swapaxes(1, 2).reshape(GRID * PATCH, GRID * PATCH)
        paths.append(Path(folder) / f"patches{number:04}.png")
        write_png(paths[-1], mosaic)
    return paths


def write_tables(folder: str | Path, labels: np.ndarray, interest: np.ndarray, pairs: Mapping[str, np.ndarray]) -> None:
    """Write info.txt, interest.txt and the m50 files of a set.

    Args:
        folder: to write to.
        labels: (K,) 3-D points.
        interest: (K, 5) reference image, x, y, orientation, log2 of the scale.
        pairs: name without .txt -> (M, 3).
    """
    folder = Path(folder)
    _write_lines(folder / "info.txt", (f"{label} 0" for label in labels))
    rows = (f"{int(image)} {x:.3f} {y:.3f} {angle:.5f} {scale:.5f}" for image, x, y, angle, scale in interest)
    _write_lines(folder / "interest.txt", rows)
    for name, table in pairs.items():
        lines = (f"{a} {labels[a]} 0 {b} {labels[b]} 0 0" for a, b, _ in table)
        _write_lines(folder / f"{name}.txt", lines)


def pack_phototourism(source: str | Path, target: str | Path, progress: Progress | None = None) -> None:
    """Pack a PhotoTourism folder of mosaics and tables, or torchvision's cached .pt of one, into a patch set."""
    source = Path(source)
    check_new_build(target, source)
    if source.is_file():
        _pack_cache(source, target)
        return
    found = read_phototourism(source)
    count = len(found.labels)
    names = [path.name for path in found.mosaics]
    tables = {path.name: file_hash(path) for path in sorted(source.glob("*.txt")) if path.is_file()}
    # Hashing the mosaics would read everything twice; size and time reveal a changed file, as in make.
    steps = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in found.mosaics]
    with create_patch_set(target, count, PATCH, {"source": source.name, "tables": tables, "mosaics": names}) as build:
        for number in build.steps(steps):
            rows = range(number * PER_MOSAIC, min((number + 1) * PER_MOSAIC, count))
            build.store(rows, read_mosaic(found.mosaics[number])[: len(rows)])
            if progress is not None:
                progress(rows.stop, count)
        columns = {} if found.reference_images is None else {"reference_image": found.reference_images}
        origin = {"kind": "phototourism", "name": source.name, "mosaics": len(names), "tables": tables}
        build.finish(found.labels, found.pairs, columns, {"source": origin})


def read_table(path: str | Path, columns: int) -> np.ndarray:
    """(rows, columns) int64: the first integers of every line; further columns and trailing blank lines are ignored."""
    lines = read_small_text(path, LONG_TEXT, encoding="ascii").rstrip().splitlines()
    rows = np.empty((len(lines), columns), np.int64)
    for number, line in enumerate(lines, 1):
        fields = line.split()[:columns]
        try:
            if len(fields) < columns:
                raise ValueError
            rows[number - 1] = [int(field) for field in fields]
        except (ValueError, OverflowError):
            raise FileError(
                f"{path}, line {number}: expected {columns} whole numbers, got {line.strip()[:60]!r}"
            ) from None
    return rows


def _pack_cache(source: Path, target: str | Path) -> None:
    patches, labels, matches = _read_cache(source)
    settings = {"source": source.name, "sha256": file_hash(source)}
    with create_patch_set(target, len(patches), patches.shape[-1], settings) as build:
        build.store(range(len(patches)), patches)
        pairs = {PROTOCOL if len(matches) == 100_000 else "matches": matches}
        build.finish(labels, pairs, {}, {"source": {"kind": "torchvision cache", "name": source.name}})


def _read_cache(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """torchvision's (patches, labels, matches), loaded without executing code."""
    torch = need("torch", "torch", "reading torchvision's cache")
    try:
        is_zip = zipfile.is_zipfile(path)  # older files are not zip files and cannot be memory-mapped
        tensors = torch.load(path, weights_only=True, map_location="cpu", mmap=is_zip)
        patches, labels, matches = (tensor.numpy() for tensor in tensors)
        labels, matches = labels.astype(np.int64), matches.astype(np.int64)
    except Exception:  # torch.load passes on any error of the unpickler or the zip reader
        raise FileError(
            f"{path}: not torchvision's cache (.pt) of patches, labels and matches, nor a PhotoTourism folder"
        ) from None
    if patches.dtype != np.uint8 or patches.shape[1:] != (PATCH, PATCH) or labels.shape != (len(patches),):
        raise FileError(f"{path}: expected (N, 64, 64) uint8 patches and N labels")
    is_table = matches.ndim == 2 and matches.shape[1] == 3 and matches.min(initial=0) >= 0
    if not is_table or matches[:, :2].max(initial=0) >= len(patches):
        raise FileError(f"{path}: expected (M, 3) matches: patch, patch, 1 if of the same point")
    if not np.array_equal(matches[:, 2], labels[matches[:, 0]] == labels[matches[:, 1]]):
        raise FileError(f"{path}: its matches contradict its labels")
    return patches, labels, matches


def _read_pairs(path: Path, labels: np.ndarray) -> np.ndarray:
    table = read_table(path, 6)
    wanted = int(path.stem.split("_")[1]) if path.stem.split("_")[1].isdecimal() else len(table)
    if not len(table) or len(table) < wanted:
        raise FileError(f"{path}: has {len(table):,} pairs, its name announces {wanted:,}; is it complete?")
    for patch, point in ((0, 1), (3, 4)):
        inside = table[:, patch].clip(0, len(labels) - 1)
        wrong = np.flatnonzero((inside != table[:, patch]) | (labels[inside] != table[:, point]))
        if len(wrong):
            number, label = table[wrong[0], [patch, point]]
            raise FileError(f"{path}, line {wrong[0] + 1}: in info.txt, patch {number} is not of point {label}")
    return np.column_stack([table[:, 0], table[:, 3], table[:, 1] == table[:, 4]])


def _write_lines(path: Path, lines: Iterable[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="ascii")
