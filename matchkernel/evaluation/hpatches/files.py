"""Descriptors in the official layout of HPatches: <folder>/<sequence>/<image>.csv, one row per patch, no header."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from matchkernel.data.hpatches import IMAGES
from matchkernel.errors import ArgumentError, FileError, WriteError
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.photos.nearest import LARGEST
from matchkernel.storage.files import replacing

DIGITS = 9  # significant digits: every float32 is read back unchanged
ROWS_AT_A_TIME = 1024


def read_descriptors(
    folder: str | Path,
    sequences: Sequence[str] | None = None,
    *,
    bits: bool = False,
    counts: Mapping[str, int] | None = None,
    name: str | None = None,
) -> HPatchesDescriptors:
    """Read the descriptors of a set.

    Args:
        folder: holds one folder per sequence.
        sequences: which to read (default: every folder that holds ref.csv).
        bits: the numbers are bytes of packed bits.
        counts: required number of patches of each sequence (default: that of its ref.csv).
        name: name of the descriptor (default: the folder's name).

    Example:
        >>> import numpy as np
        >>> from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
        >>> from matchkernel.evaluation.hpatches.files import read_descriptors, write_descriptors
        >>> mine = stack_descriptors("mine", {"v_wall": np.ones((16, 3, 8), np.float32)})
        >>> write_descriptors("descriptors", mine)
        >>> read = read_descriptors("descriptors", name="mine")
        >>> read.counts, bool((read.rows == mine.rows).all())
        ({'v_wall': 3}, True)
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    names = sorted(path.parent.name for path in folder.glob("*/ref.csv")) if sequences is None else list(sequences)
    if not names:
        raise FileError(f"{folder}: contains no descriptors (folders with ref.csv)")
    for sequence in names:
        missing = [image for image in IMAGES if not (folder / sequence / f"{image}.csv").is_file()]
        if missing:
            what = f"{missing[0]}.csv is missing" if (folder / sequence).is_dir() else "the sequence is missing"
            raise FileError(f"{folder / sequence}: {what}")
    parts: list[np.ndarray] = []
    expected: dict[str, int] = {}
    for sequence in names:
        for image in IMAGES:
            path = folder / sequence / f"{image}.csv"
            rows = read_descriptor_file(path, bits=bits)
            if image == "ref":
                expected[sequence] = (counts or {}).get(sequence, len(rows))
            wanted = (expected[sequence], parts[0].shape[1] if parts else rows.shape[1])
            if rows.shape != wanted:
                raise FileError(
                    f"{path}: {rows.shape[0]} rows of {rows.shape[1]} values, expected {wanted[0]} of {wanted[1]}"
                )
            parts.append(rows)
    return HPatchesDescriptors(name or folder.resolve().name, np.concatenate(parts), expected)


def read_descriptor_file(path: str | Path, *, bits: bool = False) -> np.ndarray:
    """Read one file: rows of numbers separated by commas (or by semicolons, as in some published files).

    Returns:
        (N, D) float32, or uint8 for bits; D >= 2, and no value is NaN.
    """
    path = Path(path)
    try:
        text = path.read_bytes().decode("ascii")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: not a text file") from None
    lines = text.rstrip().replace("\r\n", "\n").split("\n")
    if lines == [""]:
        raise FileError(f"{path}: is empty")
    separator = ";" if ";" in lines[0] and "," not in lines[0] else ","
    try:
        rows = np.loadtxt(lines, np.float64, delimiter=separator, comments=None, ndmin=2)
    except (ValueError, OverflowError, IndexError):
        rows = np.empty((0, 0))
    if len(rows) != len(lines) or rows.shape[1] < 2:
        width = max(2, len(lines[0].split(separator)))
        number = next((k for k, line in enumerate(lines) if not _has_numbers(line.split(separator), width)), 0)
        wanted = f"{width} numbers separated by {separator!r}"
        raise FileError(f"{path}, row {number + 1}: expected {wanted}, got {lines[number][:60]!r}")
    largest, what = (
        (255, "not a whole number from 0 to 255") if bits else (LARGEST, f"NaN, or its magnitude exceeds {LARGEST:g}")
    )
    good = (np.abs(rows) <= largest).all(1)
    if bits:
        good &= ((rows >= 0) & (rows == np.rint(rows))).all(1)
    if not good.all():
        raise FileError(f"{path}, row {int(good.argmin()) + 1}: a value is {what}")
    return rows.astype(np.uint8 if bits else np.float32)


def write_descriptors(folder: str | Path, descriptors: HPatchesDescriptors) -> None:
    """Write the official layout, each file completely or not at all; ref.csv is the last one of a sequence.

    Args:
        folder: made if missing; files in it are replaced.
        descriptors: numbers are written with 9 digits, packed bits as bytes.

    Example: see read_descriptors.
    """
    folder = Path(folder)
    for name in descriptors.counts:
        if Path(name).name != name or name in ("", ".", ".."):
            raise ArgumentError(f"{name!r} cannot be the name of a folder")
        try:
            (folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WriteError(f"{folder / name}: could not be made ({error.strerror})") from None
        images = descriptors.sequence(name)
        for image in (*range(1, len(IMAGES)), 0):  # a sequence counts as complete once it has ref.csv
            with replacing(folder / name / f"{IMAGES[image]}.csv") as part:
                _write_rows(part, images[image])


def _write_rows(path: Path, rows: np.ndarray) -> None:
    number = "%d" if rows.dtype == np.uint8 else f"%.{DIGITS}g"
    row = ",".join([number] * rows.shape[1]) + "\n"
    with path.open("w", encoding="ascii", newline="") as file:
        for start in range(0, len(rows), ROWS_AT_A_TIME):
            piece = rows[start : start + ROWS_AT_A_TIME]
            file.write(row * len(piece) % tuple(piece.ravel().tolist()))


def _has_numbers(fields: list[str], count: int) -> bool:
    try:
        return len([float(field) for field in fields]) == count
    except ValueError:
        return False
