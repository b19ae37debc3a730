"""Read arrays from .npy and .npz files: checked before memory is allocated, and never unpickled; and unit rows."""

import math
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from matchkernel.errors import FileError, MatchKernelError, short_message
from matchkernel.storage.files import check_regular


def map_npy(path: str | Path) -> np.ndarray:
    """Memory-map a .npy file; any problem becomes a one-line FileError."""
    with _file_errors(path, "a whole .npy array"):
        array = np.load(path, mmap_mode="r", allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise FileError(f"{path}: an .npz archive, not a .npy array")
    return array


def read_npz(path: str | Path, names: Sequence[str], what: str) -> dict[str, np.ndarray]:
    """Read arrays from a file written by numpy.savez; any problem becomes a one-line FileError.

    Args:
        path: the file.
        names: arrays it must hold; others are not read.
        what: what the file should be, for messages.
    """
    with _file_errors(path, what), zipfile.ZipFile(path) as file:
        return {name: _member(file, name) for name in names}


def _member(file: zipfile.ZipFile, name: str) -> np.ndarray:
    """An array of an archive; its header is checked against the bytes present before memory is allocated."""
    entry = file.getinfo(f"{name}.npy")
    if entry.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed; write it with numpy.savez")
    with file.open(entry) as member:
        version = np.lib.format.read_magic(member)
        read_header = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read_header(member)
    if math.prod(shape) * dtype.itemsize > entry.file_size:
        raise ValueError(f"{name} claims the shape {shape}, more than its {entry.file_size} bytes hold")
    with file.open(entry) as member:
        return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Scale every row to length 1; a row of zeros stays zero."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return np.asarray(rows / np.where(lengths > 0, lengths, 1))


@contextmanager
def _file_errors(path: str | Path, what: str) -> Iterator[None]:
    check_regular(path)
    try:
        yield
    except MatchKernelError:
        raise
    except MemoryError:
        raise FileError(f"{path}: not enough memory to read it") from None
    except OSError as error:
        reason = error.strerror or f"not {what}"
        raise FileError(f"{path}: cannot be read ({reason})") from None
    except Exception as error:  # zipfile and numpy's header parser let tokenize, struct and zlib errors through
        reason = short_message(error)
        if "pickle" in reason:  # numpy's advice would be to trust the file
            reason = "it begins unlike one, or holds objects"
        raise FileError(f"{path}: not {what} ({reason})") from None
