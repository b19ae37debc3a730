"""HDF5 files of this package and of hloc (cvg/Hierarchical-Localization): features.h5 and matches.h5.

Files of other programs are read too, so every size is checked before memory is allocated, and any failure of reading
becomes a FileError of one line. Files are replaced as a whole, so they are never left incomplete.
"""

import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError, short_message
from matchkernel.storage.extras import CORE, need
from matchkernel.storage.files import check_free_space, is_utf8, replacing

H5_SUFFIXES = (".h5", ".hdf5")
ATTRIBUTE = "matchkernel"  # the HDF5 attribute that holds model and settings, or a digest
MAX_COMPRESSION_RATIO = 1032  # of gzip: a dataset may claim at most this many times the bytes of its file
HDF5_VERSIONS = ("v110", "v110")  # since HDF5 1.10 all structures of a file have checksums; values, as write_array
RESERVED_BYTES = 8_000_000  # of disk, left free while an HDF5 file is written
DEEPEST = 32  # groups inside each other in an .h5


def is_h5(path: Path) -> bool:
    """True if the name is that of an HDF5 file."""
    return path.suffix.lower() in H5_SUFFIXES


def need_h5py() -> Any:
    """The module h5py."""
    return need("h5py", CORE, "reading and writing hloc's .h5 files")


@contextmanager
def open_h5(path: str | Path) -> Iterator[Any]:
    """An open HDF5 file; any problem while reading it becomes a FileError that names the file in one line."""
    h5py = need_h5py()
    if not Path(path).is_file():
        raise FileError(f"{path}: no such file")
    try:
        with h5py.File(path, "r", locking=False) as file:
            yield file
    except MatchKernelError:
        raise
    except Exception as error:  # h5py raises almost anything for a damaged file or another layout
        raise FileError(f"{path}: not a complete HDF5 file, or not in hloc's layout ({short_message(error)})") from None


@contextmanager
def update_h5(path: str | Path) -> Iterator[Any]:
    """A copy of the HDF5 file, or a new file, open for writing; it replaces the file at the end."""
    h5py = need_h5py()
    path = Path(path)
    with replacing(path) as part:
        if path.exists():
            with open_h5(path):
                pass  # a damaged file is refused; the copy is outside the block, so that a full disk is a WriteError
            shutil.copyfile(path, part)
        try:
            with h5py.File(part, "a", libver=HDF5_VERSIONS) as file:
                yield file
        except MatchKernelError:
            raise
        except (OSError, RuntimeError, ValueError, KeyError) as error:  # h5py reports a full disk in several ways
            raise WriteError(f"{path}: could not be written ({short_message(error)})") from error


def write_array(group: Any, name: str, values: np.ndarray) -> Any:
    """Write a dataset after checking free space: HDF5 aborts the process if the disk fills while it flushes its cache.

    Every HDF5 reader verifies the checksums.
    """
    check_free_space(Path(group.file.filename).parent, values.nbytes + RESERVED_BYTES)
    return group.create_dataset(name, data=values, fletcher32=True if values.size else None)


def write_text(group: Any, text: str) -> None:
    """Write an attribute of fixed length: it is part of a header, which has a checksum."""
    group.attrs[ATTRIBUTE] = np.bytes_(text)


def text_of(group: Any) -> str | None:
    """What write_text wrote; None if there is nothing."""
    found = group.attrs.get(ATTRIBUTE)  # of any length in files of version 0.2
    return found.decode() if isinstance(found, bytes) else None if found is None else str(found)


def read_array(group: Any, name: str, *shape: int | None, kinds: str = "fiu") -> np.ndarray:
    """Read finite numbers of this shape (None for any length); `kinds` are numpy's letters of the accepted types."""
    dataset = item_at(group, name)
    if not isinstance(dataset, need_h5py().Dataset):
        raise FileError(f"{group.file.filename}: {group.name} has no {name}")
    fits = len(dataset.shape) == len(shape) and all(w in (None, n) for w, n in zip(shape, dataset.shape, strict=True))
    is_inside = not (dataset.is_virtual or dataset.external)
    limit = MAX_COMPRESSION_RATIO * os.path.getsize(group.file.filename)  # noqa: PTH202
    if fits and is_inside and dataset.dtype.kind in kinds and dataset.nbytes <= limit:
        values = np.asarray(dataset[()])
        if np.isfinite(values).all():
            return values
    found = f"{dataset.name} has shape {dataset.shape} and type {dataset.dtype}"
    lengths = ", ".join("any" if length is None else str(length) for length in shape)
    wanted = f"finite numbers of shape ({lengths}), stored in this file"
    raise FileError(f"{group.file.filename}: {found}; expected {wanted}")


def item_at(group: Any, path: str) -> Any:
    """What is at a path inside a group; None if there is nothing. A link to another file is refused."""
    h5py = need_h5py()
    for part in path.split("/"):
        if not isinstance(group, h5py.Group) or not _has(group, part):
            return None
        if group.id.links.get_info(part.encode()).type == h5py.h5l.TYPE_EXTERNAL:
            raise FileError(f"{group.file.filename}: {group.name} has a link to another file; links are not followed")
        group = group[part]
    return group


def _has(group: Any, name: str) -> bool:
    """True if a group has an item of this name, be it damaged: for h5py, `name in group`, it is not there then."""
    return bool(group.id.links.exists(name.encode()))


def has_values(group: Any, name: str) -> bool:
    """True if a group has an item of this name that is no group, such as a folder of photos; links are not followed."""
    if not _has(group, name):
        return False
    h5py = need_h5py()
    is_link = group.id.links.get_info(name.encode()).type != h5py.h5l.TYPE_HARD
    return is_link or group.get(name, getclass=True) is not h5py.Group


def paths_of(name: str, group: Any, seen: Collection[Any] = ()) -> Iterator[str]:
    """The paths of all items of this name; the groups that hold them hold no others."""
    if len(seen) > DEEPEST or group.id in seen:
        raise FileError(f"{group.file.filename}: its groups are nested deeper than {DEEPEST}")
    if has_values(group, name):
        yield name
        return
    for part in group:
        item = item_at(group, part)
        if isinstance(item, need_h5py().Group):
            yield from (f"{part}/{path}" for path in paths_of(name, item, (*seen, group.id)))


def check_h5_name(name: str) -> str:
    """Check that an image's name can be a path inside an HDF5 file."""
    if not is_utf8(name):
        raise ArgumentError(f"an .h5 file can hold only UTF-8 names, got {name!a}; rename the image")
    if "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise ArgumentError(f"the name of an image must be like photo.jpg or folder/photo.jpg, got {name!r}")
    return name
