"""HDF5 files that are never broken: read with every size checked, written beside and renamed."""

import math
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError
from matchkernel.storage.extras import need
from matchkernel.storage.files import replacing

DEFLATE = 1032  # the most that gzip can shrink: a dataset may claim so many times the bytes of its file, no more
# From HDF5 1.10 on all structures of a file carry checksums, so that a flipped bit is seen.
VERSIONS = ("v110", "v110")
CHECKED_FROM = 1024  # bytes of a dataset from which its numbers carry checksums as well

# What h5py raises, from a damaged file or from one that is laid out otherwise.
READING_FAILS = (
    OSError, LookupError, RuntimeError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError
)  # fmt: skip


def load_h5py() -> Any:
    """The module h5py."""
    return need("h5py", "photos", "reading and writing hloc's .h5 files")


@contextmanager
def reading(path: str | Path) -> Iterator[Any]:
    """An open HDF5 file; whatever goes wrong in reading is said in one line that names the file."""
    h5py = load_h5py()
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except MatchKernelError:
        raise
    except READING_FAILS as error:
        reason = " ".join(str(error).split())[:120]
        raise FileError(f"{path}: not a whole HDF5 file, or not one of hloc's layout ({reason})") from None


@contextmanager
def adding(path: str | Path) -> Iterator[Any]:
    """An HDF5 file to add to: a copy of what is there, which takes its place at the end."""
    h5py = load_h5py()
    path = Path(path)
    with replacing(path) as part:
        if path.exists():
            with reading(path):
                pass
            shutil.copyfile(path, part)
        try:
            with h5py.File(part, "a", libver=VERSIONS) as file:
                yield file
        except MatchKernelError:
            raise
        except (OSError, RuntimeError, ValueError, KeyError) as error:  # h5py says a full disk in several ways
            reason = " ".join(str(error).split())[:120]
            raise WriteError(f"{path}: could not be written ({reason})") from error


def write_array(group: Any, name: str, values: np.ndarray) -> Any:
    """Write a dataset; above a kilobyte with checksums, which every HDF5 reader looks at by itself."""
    return group.create_dataset(name, data=values, fletcher32=True if values.nbytes >= CHECKED_FROM else None)


def read_array(group: Any, name: str, shape: tuple[int | None, ...], kinds: str = "fiu") -> np.ndarray:
    """Read a dataset of a group, once its shape, number type and size are what they should be.

    Args:
        group: of an open file.
        name: of the dataset.
        shape: wanted; None for any length.
        kinds: numpy's letters of the number types that will do.
    """
    where = f"{group.file.filename}: {group.name.strip('/')}/{name}"
    dataset = group.get(name)
    if not isinstance(dataset, load_h5py().Dataset):
        raise FileError(f"{where} is not there")
    found = dataset.shape
    fits = found is not None and len(found) == len(shape)
    if not fits or any(w is not None and w != f for w, f in zip(shape, found, strict=True)):
        wanted = "(" + ", ".join("any" if length is None else str(length) for length in shape) + ")"
        raise FileError(f"{where} has shape {found}, wanted {wanted}")
    if dataset.dtype.kind not in kinds or dataset.dtype.itemsize > 8 or dataset.is_virtual or dataset.external:
        raise FileError(f"{where} holds {dataset.dtype}, or its numbers lie in another file; numbers are wanted")
    if math.prod(found) * dataset.dtype.itemsize > DEFLATE * os.path.getsize(group.file.filename):  # noqa: PTH202
        raise FileError(f"{where} claims {found} numbers, far more than the file can hold")
    return np.asarray(dataset[()])


def check_name(name: str) -> str:
    """An image's name that can be a path inside an HDF5 file."""
    parts = name.split("/")
    if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes of a file's name that are no UTF-8
        raise ArgumentError(f"an .h5 holds names in UTF-8 only, got {name!a}; rename the image")
    if not name or "\0" in name or any(part in ("", ".", "..") for part in parts):
        raise ArgumentError(f"an image is named like photo.jpg or folder/photo.jpg, got {name!r}")
    return name
