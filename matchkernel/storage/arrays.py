"""Arrays in files: .npy, .npz and safetensors, checked before memory is allocated, never unpickled; rows as bytes."""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize, safe_open

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WeightsError, short_message
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
    """Read these arrays from a file of numpy.savez; any problem becomes a FileError that says what it should be."""
    with _file_errors(path, what), zipfile.ZipFile(path) as file:
        return {name: _member(file, name) for name in names}


def npz_checksums(path: str | Path, names: Sequence[str], what: str) -> dict[str, int]:
    """CRC-32 of these arrays, as a file of numpy.savez records them; errors as in read_npz."""
    with _file_errors(path, what), zipfile.ZipFile(path) as file:
        return {name: file.getinfo(f"{name}.npy").CRC for name in names}


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


KINDS = {  # of the tensors of our files, and their names in numpy and torch
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "BOOL": "bool",
    "U8": "uint8",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
}


@dataclass(frozen=True)
class Stored:
    """One tensor of a file."""

    kind: str  # type of its numbers, as safetensors calls it: a key of KINDS
    shape: tuple[int, ...]
    data: bytes | memoryview  # its numbers, little-endian, row by row

    def array(self) -> np.ndarray:
        """The numbers, read-only; bfloat16, which numpy does not have, as float32."""
        if self.kind == "BF16":
            bits = np.frombuffer(self.data, "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(self.shape)
        return np.frombuffer(self.data, np.dtype(KINDS[self.kind]).newbyteorder("<")).reshape(self.shape)


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata of a safetensors file, and type and shape of each tensor; no tensor is read."""
    with readable(path), safe_open(path, framework="numpy") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 - no dict
        header = {name: {"dtype": part.get_dtype(), "shape": part.get_shape()} for name, part in parts.items()}
        return dict(file.metadata() or {}), header


def read_tensors(path: Path) -> dict[str, Stored]:
    """The tensors of a safetensors file, whose header has been found in order."""
    with readable(path):
        found = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    for name, entry in found:
        if entry["dtype"] not in KINDS:
            raise WeightsError(f"{path}: tensor {name[:80]} is of kind {entry['dtype']}, which our files do not have")
    return {name: Stored(entry["dtype"], tuple(entry["shape"]), entry["data"]) for name, entry in found}


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn any problem with reading into a one-line error that names the file."""
    try:
        yield
    except SafetensorError as error:
        with path.open("rb") as file:
            start = file.read(9)
        raise WeightsError(f"{path}: {_not_safetensors(start)} ({short_message(error)})") from None
    except OSError as error:
        if isinstance(error, MatchKernelError):
            raise
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None


def _not_safetensors(start: bytes) -> str:
    """What kind of file this is, by its first bytes, if it is not a complete safetensors file."""
    is_header = start[8:] == b"{"  # of safetensors, after eight bytes of its length, which may begin as a pickle does
    if not is_header and (start[:1] == b"\x80" or start[:2] == b"PK"):
        return "a pickle or PyTorch .pth file, which can run code when loaded and is not read"
    return "not a complete safetensors file" if start else "an empty file"


def digest(metadata: Mapping[str, str], tensors: Mapping[str, Stored]) -> str:
    """sha256 of every other metadata entry, and of the name, type, shape and bytes of every tensor."""
    strings = {key: value for key, value in metadata.items() if key != "sha256"}
    found = hashlib.sha256(json.dumps(strings, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        found.update(f"{name} torch.{KINDS[tensor.kind]} {list(tensor.shape)}".encode())
        found.update(tensor.data)
    return found.hexdigest()


LARGEST_BYTE = 127
UNIT_WITHIN = 0.01  # difference of a row's length from 1; float16 rows differ by less than 0.001


def rows_as_bytes(rows: np.ndarray) -> np.ndarray:
    """(K, D) unit rows as int8; a row of zeros stays one. Rows of any other length are refused."""
    rows = np.asarray(rows, np.float32)
    if rows.ndim != 2:
        raise ArgumentError(f"descriptors must have shape (K, D), got {rows.shape}")
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    is_bad = ~((np.abs(lengths - 1) <= UNIT_WITHIN) | (lengths == 0))
    if is_bad.any():
        first = int(is_bad.argmax())
        raise ArgumentError(
            f"only rows of length 1 can be stored as bytes, but row {first} has length {lengths[first]}"
        )
    largest = np.abs(rows).max(1, keepdims=True, initial=0)
    return np.rint(rows * (LARGEST_BYTE / np.where(largest > 0, largest, 1))).astype(np.int8)


def rows_from_bytes(stored: np.ndarray) -> np.ndarray:
    """(K, D) float32 unit rows from int8; a row of zeros stays one."""
    if stored.dtype != np.int8 or stored.ndim != 2:
        raise ArgumentError(f"descriptors stored as bytes are (K, D) int8, got {stored.shape} {stored.dtype}")
    rows = stored.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", rows, rows))[:, None]  # sums of whole numbers below 2^24: exact
    return rows / np.where(lengths > 0, lengths, 1)
