"""Reader of the binary files of Torch 7 (torch.save in Lua): numbers, strings, tables and tensors; no code is executed.

A file is one object. An object is a 32-bit kind, then its content, little-endian: a number is a double, a string its
length and bytes, a table a reference number and pairs of objects, an object of a class a reference number, a version,
the name of the class, and its fields. A tensor has sizes, strides, an offset from 1 and a storage, which several of
them may share; a reference number that was seen before stands for the same object.
"""

import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import WeightsError
from matchkernel.storage.files import check_regular

NIL, NUMBER, STRING, TABLE, OBJECT, BOOLEAN = range(6)
MAX_BYTES = 2**28  # of a file
MAX_DEPTH = 64  # tables and objects inside each other; a network has about ten
ELEMENTS: dict[str, np.dtype[Any]] = {
    "Byte": np.dtype("u1"), "Char": np.dtype("i1"), "Short": np.dtype("<i2"), "Int": np.dtype("<i4"),
    "Long": np.dtype("<i8"), "Float": np.dtype("<f4"), "Double": np.dtype("<f8"), "Cuda": np.dtype("<f4"),
}  # fmt: skip


@dataclass(frozen=True)
class TorchObject:
    """An object of a Lua class, such as nn.SpatialConvolution."""

    class_name: str
    fields: dict[Any, Any] = field(repr=False)


class _DamagedError(Exception):
    """What is wrong with a file."""


def read_torch7(path: Path) -> Any:
    """The object in a file: None, float, str, bool, Tensor, dict for a table, or TorchObject.

    Tensors do not share memory, and a table keeps Lua's keys: the first of a list is 1.0.
    """
    check_regular(path)
    try:
        if path.stat().st_size > MAX_BYTES:
            raise WeightsError(f"{path}: larger than {MAX_BYTES // 2**20} MiB, not read")
        content = path.read_bytes()
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
    try:
        return _Reader(content).whole()
    except _DamagedError as error:
        raise WeightsError(f"{path}: damaged, or not a binary file of Torch 7 ({error})") from None


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.place, self.depth = content, 0, 0
        self.seen: dict[int, Any] = {}

    def whole(self) -> Any:
        found = self.read()
        if self.place != len(self.content):
            raise _DamagedError(f"{len(self.content) - self.place} bytes after its end")
        return found

    def read(self) -> Any:
        kind = self.integer()
        if kind == NIL:
            return None
        if kind == NUMBER:
            return self.unpack("<d", 8)
        if kind == STRING:
            return self.string()
        if kind == BOOLEAN:
            return self.integer() != 0
        if kind not in (TABLE, OBJECT):
            raise _DamagedError(f"kind {kind} at byte {self.place - 4}; functions are not read")
        reference = self.integer()
        if reference not in self.seen:
            self.depth += 1
            if self.depth > MAX_DEPTH:
                raise _DamagedError(f"more than {MAX_DEPTH} objects inside each other")
            if kind == TABLE:
                self.table(reference)
            else:
                self.seen[reference] = self.object()
            self.depth -= 1
        return self.seen[reference]

    def table(self, reference: int) -> dict[Any, Any]:
        count = self.integer()
        self.check_left(8 * count)  # a key and a value have a kind each
        found: dict[Any, Any] = {}
        self.seen[reference] = found  # a table may contain itself
        for _ in range(count):
            key = self.read()
            if not isinstance(key, str | float | bool):
                raise _DamagedError(f"a key that is a {type(key).__name__}")
            found[key] = self.read()
        return found

    def object(self) -> Any:
        name = self.string()
        if name.startswith("V "):  # its version; the oldest files have none
            name = self.string()
        element, _, kind = name.removeprefix("torch.").partition("Tensor")
        if name.startswith("torch.") and name.endswith("Tensor") and element in ELEMENTS and not kind:
            return self.tensor(element)
        element = name.removeprefix("torch.").removesuffix("Storage")
        if name.startswith("torch.") and name.endswith("Storage") and element in ELEMENTS:
            return self.storage(element)
        fields = self.read()
        if not isinstance(fields, dict):
            raise _DamagedError(f"fields of {name[:40]!r} that are no table")
        return TorchObject(name, fields)

    def tensor(self, element: str) -> Tensor:
        dimensions = self.integer()
        if not 0 <= dimensions <= 8:
            raise _DamagedError(f"a tensor of {dimensions} dimensions")
        size, stride = ([self.long() for _ in range(dimensions)] for _ in range(2))
        offset, storage = self.long() - 1, self.read()
        if not dimensions or storage is None:
            return torch.zeros(0, dtype=_dtype(element))
        if not isinstance(storage, Tensor) or storage.ndim != 1 or storage.dtype != _dtype(element):
            raise _DamagedError("a tensor without a storage of its kind")
        numbers = 1
        for extent in size:  # Python's integers do not overflow
            numbers *= extent
        last = offset + sum((extent - 1) * step for extent, step in zip(size, stride, strict=True))
        # Steps of zero would let a small file claim a huge tensor.
        fits = min([offset, *size, *stride]) >= 0 and 0 < numbers <= len(storage) and last < len(storage)
        if not fits:
            raise _DamagedError(f"a tensor of size {size} that does not fit its {len(storage)} numbers")
        return torch.as_strided(storage, size, stride, offset).clone()

    def storage(self, element: str) -> Tensor:
        count, kind = self.long(), ELEMENTS[element]
        if count < 0:
            raise _DamagedError(f"a storage of {count} numbers")
        data = np.frombuffer(self.take(count * kind.itemsize), kind)
        return torch.from_numpy(data.astype(kind.newbyteorder("="), copy=True))

    def string(self) -> str:
        return self.take(self.integer()).decode("utf-8", errors="replace")

    def integer(self) -> int:
        return int(self.unpack("<i", 4))

    def long(self) -> int:
        return int(self.unpack("<q", 8))

    def unpack(self, form: str, size: int) -> float:
        value: float = struct.unpack(form, self.take(size))[0]
        return value

    def take(self, size: int) -> bytes:
        self.check_left(size)
        self.place += size
        return self.content[self.place - size : self.place]

    def check_left(self, size: int) -> None:
        if not 0 <= size <= len(self.content) - self.place:
            raise _DamagedError(f"it ends, or claims {size} bytes, at byte {self.place}")


def _dtype(element: str) -> torch.dtype:
    return torch.from_numpy(np.zeros(0, ELEMENTS[element].newbyteorder("="))).dtype
