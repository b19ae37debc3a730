"""Reader of the binary files of Torch 7 (torch.save in Lua): numbers, strings, tables and tensors; no code is executed.

A file is one object. An object is a 32-bit kind, then its content, little-endian: a number is a double, a string its
length and bytes, a table a reference number and pairs of objects, an object of a class a reference number, a version,
the name of the class, and its fields. A tensor has sizes, strides, an offset from 1 and a storage, which several of
them may share; a reference number that was seen before stands for the same object.
"""

import math
import re
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
ELEMENTS = {
    "Byte": "u1", "Char": "i1", "Short": "<i2", "Int": "<i4", "Long": "<i8", "Float": "<f4", "Double": "<f8",
    "Cuda": "<f4",
}  # fmt: skip
ARRAY = re.compile(rf"torch\.({'|'.join(ELEMENTS)})(Tensor|Storage)")


@dataclass(frozen=True)
class TorchObject:
    """An object of a Lua class, such as nn.SpatialConvolution."""

    class_name: str
    fields: dict[Any, Any] = field(repr=False)


def read_torch7(path: Path) -> Any:
    """The object in a file: None, float, str, bool, Tensor, dict for a table, or TorchObject.

    Tensors do not share memory, and a table keeps Lua's keys: the first of a list is 1.0.
    """
    check_regular(path)
    try:
        reader = _Reader(path.read_bytes())
        found = reader.read()
        if reader.place != len(reader.content):
            raise ValueError("bytes after its end")
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
    except (ValueError, TypeError, RuntimeError, struct.error) as error:  # RecursionError is a RuntimeError
        reason = str(error).partition("\n")[0]
        raise WeightsError(f"{path}: damaged, or not a binary file of Torch 7 ({reason})") from None
    return found


class _Reader:
    def __init__(self, content: bytes) -> None:
        self.content, self.place = content, 0
        self.seen: dict[int, Any] = {}

    def numbers(self, form: str) -> tuple[Any, ...]:
        form = f"<{form}"
        self.place += struct.calcsize(form)
        return struct.unpack_from(form, self.content, self.place - struct.calcsize(form))

    def integer(self) -> int:
        return int(self.numbers("i")[0])

    def string(self) -> str:
        return str(self.numbers(f"{self.integer()}s")[0].decode("utf-8", errors="replace"))

    def read(self) -> Any:
        kind = self.integer()
        if kind == NIL:
            return None
        if kind == NUMBER:
            return self.numbers("d")[0]
        if kind == STRING:
            return self.string()
        if kind == BOOLEAN:
            return self.integer() != 0
        if kind not in (TABLE, OBJECT):
            raise ValueError(f"kind {kind} at byte {self.place - 4}; functions are not read")
        reference = self.integer()
        if reference not in self.seen and kind == TABLE:
            found = self.seen[reference] = {}  # a table may contain itself
            for _ in range(self.integer()):
                key = self.read()
                found[key] = self.read()
        elif reference not in self.seen:
            self.seen[reference] = self.object()
        return self.seen[reference]

    def object(self) -> Any:
        name = self.string()
        if name.startswith("V "):  # its version; the oldest files have none
            name = self.string()
        array = ARRAY.fullmatch(name)
        if array is None:
            return TorchObject(name, self.read())
        return (self.tensor if array[2] == "Tensor" else self.storage)(np.dtype(ELEMENTS[array[1]]))

    def tensor(self, kind: np.dtype) -> Tensor:
        dimensions = self.integer()
        *shape, offset = self.numbers(f"{2 * dimensions + 1}q")
        size, stride, storage = shape[:dimensions], shape[dimensions:], self.read()
        if not dimensions or storage is None:
            return torch.from_numpy(np.zeros(0, kind))
        if not isinstance(storage, Tensor) or math.prod(size) > len(storage):  # steps of 0 would make it larger
            raise ValueError(f"a tensor of size {size} without a storage of that size")
        return torch.as_strided(storage, size, stride, offset - 1).clone()

    def storage(self, kind: np.dtype) -> Tensor:
        (count,) = self.numbers("q")
        data = np.frombuffer(self.numbers(f"{count * kind.itemsize}s")[0], kind)
        return torch.from_numpy(data.copy())
