"""The bytes of an ONNX file. The format is Protocol Buffers, of which a graph needs little: numbers and nested fields.

Field numbers are those of onnx.proto3, whose own package is a dependency of the tests only.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

OPSET, IR_VERSION = 18, 10  # what onnxruntime 1.22 reads
# TensorProto.DataType
TYPES = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.int8): 3, np.dtype(np.int32): 6}
TYPES[np.dtype(np.int64)] = 7
INT, INTS = 2, 7  # AttributeProto.AttributeType


@dataclass
class Graph:
    """Nodes and constants, collected in order; names are given by what they hold."""

    nodes: list[bytes] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: int | Sequence[int]) -> str:
        """Append a node with one output, and return the name of the output."""
        node = [*((1, name) for name in inputs), (2, output), (3, output), (4, operator)]
        self.nodes.append(_message([*node, *((5, _attribute(*entry)) for entry in attributes.items())]))
        return output

    def constant(self, name: str, values: Any, dtype: type = np.float32) -> str:
        """Keep an array under a name, and return the name."""
        self.constants[name] = np.ascontiguousarray(np.asarray(values).astype(dtype))
        return name


def onnx_file(graph: Graph, patches: tuple[str, int], rows: tuple[str, int], metadata: Mapping[str, str]) -> bytes:
    """An ONNX file: (batch, 1, N, N) float32 -> (batch, D) float32.

    Args:
        graph: nodes and constants.
        patches: name of the input, and N.
        rows: name of the output, and D.
        metadata: strings by name.
    """
    made = _message(
        [
            *((1, node) for node in graph.nodes),
            (2, "matchkernel"),
            *((5, _tensor(name, values)) for name, values in graph.constants.items()),
            (11, _value(patches[0], ["batch", 1, patches[1], patches[1]])),
            (12, _value(rows[0], ["batch", rows[1]])),
        ]
    )
    strings = [(14, _message([(1, name), (2, text)])) for name, text in metadata.items()]
    version = _message([(1, ""), (2, OPSET)])
    return _message([(1, IR_VERSION), (2, "matchkernel"), (7, made), (8, version), *strings])


def _attribute(name: str, value: int | Sequence[int]) -> bytes:
    if isinstance(value, int):
        return _message([(1, name), (3, value), (20, INT)])
    return _message([(1, name), *((8, number) for number in value), (20, INTS)])


def _tensor(name: str, values: np.ndarray) -> bytes:
    content = values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
    return _message([*((1, side) for side in values.shape), (2, TYPES[values.dtype]), (8, name), (9, content)])


def _value(name: str, shape: Sequence[int | str]) -> bytes:
    """A tensor of floats with a name; a side is a number, or a name if it is free."""
    sides = [(1, _message([(2 if isinstance(side, str) else 1, side)])) for side in shape]
    kind = _message([(1, TYPES[np.dtype(np.float32)]), (2, _message(sides))])
    return _message([(1, name), (2, _message([(1, kind)]))])


def _message(fields: Iterable[tuple[int, int | str | bytes]]) -> bytes:
    """Fields of a message in their order: a number as a varint, anything else with its length before it."""
    parts = []
    for number, value in fields:
        if isinstance(value, int):
            parts += [_varint(number << 3), _varint(value)]
        else:
            content = value.encode() if isinstance(value, str) else value
            parts += [_varint(number << 3 | 2), _varint(len(content)), content]
    return b"".join(parts)


def _varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; a negative number as 64 bits."""
    value &= 2**64 - 1
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])
