"""Safetensors files without torch: their header, their tensors as bytes, and a digest of everything."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, deserialize

from matchkernel.errors import MatchKernelError, WeightsError

MAX_HEADER = 10**8  # bytes, as safetensors allows
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
    """One tensor of a file.

    Attributes:
        kind: type of its numbers, as safetensors calls it: a key of KINDS.
        shape: of the tensor.
        data: its numbers, little-endian, row by row.
    """

    kind: str
    shape: tuple[int, ...]
    data: bytes | memoryview

    def array(self) -> np.ndarray:
        """The numbers, read-only; bfloat16, which numpy does not have, as float32."""
        if self.kind == "BF16":
            bits = np.frombuffer(self.data, "<u2").astype(np.uint32) << 16
            return bits.view(np.float32).reshape(self.shape)
        return np.frombuffer(self.data, np.dtype(KINDS[self.kind]).newbyteorder("<")).reshape(self.shape)

    @classmethod
    def of(cls, values: np.ndarray) -> "Stored":
        """The tensor of an array of one of these types."""
        kind = next(kind for kind, name in KINDS.items() if name == values.dtype.name)
        return cls(kind, values.shape, values.astype(values.dtype.newbyteorder("<")).tobytes())


def read_header(path: Path) -> tuple[dict[str, str], dict[str, Any]]:
    """Metadata of a safetensors file, and the header's entry for each tensor; no tensor is read."""
    start = b""
    try:
        with path.open("rb") as file:
            start = file.read(8)
            size = int.from_bytes(start, "little")
            text = file.read(size) if len(start) == 8 and size <= MAX_HEADER else b""
        header: dict[str, Any] = dict(json.loads(text if len(text) == size else "").items())
        metadata = dict(header.pop("__metadata__", {}).items())
        if not all(isinstance(part, str) for entry in metadata.items() for part in entry):
            raise TypeError
        for entry in header.values():
            if not isinstance(entry["dtype"], str) or not all(isinstance(side, int) for side in entry["shape"]):
                raise TypeError
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, AttributeError, TypeError, LookupError, RecursionError):
        raise WeightsError(f"{path}: {_not_safetensors(start)}") from None
    return metadata, header


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
            start = file.read(4)
        raise WeightsError(f"{path}: {_not_safetensors(start)} ({error})") from None
    except OSError as error:
        if isinstance(error, MatchKernelError):
            raise
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None


def _not_safetensors(start: bytes) -> str:
    """What kind of file this is, by its first bytes, if it is not a complete safetensors file."""
    if start[:1] == b"\x80" or start[:2] == b"PK":
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
