"""A descriptor as an ONNX file, in float32 or with its convolutions in int8; (B, 1, N, N) patches -> (B, D) unit rows.

The format is Protocol Buffers, of which a graph needs little: numbers and nested fields. Field numbers are those of
onnx.proto3, whose own package only tests need.

In int8, everything before and after the convolutions stays in float32. Weights are symmetric, of 7 bits, with one scale
per channel. Activations are unsigned, of 8 bits, with one scale per layer, calibrated on patches; after ReLU their zero
point is 0, so that padding and ReLU itself are exact and free. The first convolution, with its single input channel, is
written as a convolution over rows whose channels are the columns of the patch: a few large products instead of many
small ones.

For ARM the same whole numbers are stored less 128, as signed bytes, which its dot products take as they are, and the
first convolution makes a few columns at a time: its products are dearer there.
"""

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import WeightsError
from matchkernel.runtime.config import STRIDE
from matchkernel.runtime.weights import Convolution, FoldedNetwork
from matchkernel.storage.files import json_digest, read_small_text, replacing

OPSET, IR_VERSION = 18, 10  # what onnxruntime 1.22 reads
# TensorProto.DataType
TYPES = {np.dtype(np.float32): 1, np.dtype(np.uint8): 2, np.dtype(np.int8): 3, np.dtype(np.int32): 6}
TYPES[np.dtype(np.int64)] = 7
INT, INTS = 2, 7  # AttributeProto.AttributeType
INPUT, OUTPUT = "patches", "descriptors"
INPUT_ZERO = 128  # zero point of the normalised patch, which has both signs
MAX_BYTES = 2**16  # of a file of ranges
WIDEST = 48  # pixels; the first convolution over rows takes N times the products per output, too many for large N
# Weights take 7 of their 8 bits. The sum of two products of 8 bits with 7 still fits 16 bits, so that processors which
# add them there (x86 without VNNI) get the same results as others, at full speed; the last bit is hardly missed.
LARGEST_WEIGHT = 63
COLUMNS = 4  # that the first convolution makes at a time for ARM
Zero = np.uint8 | np.int8 | np.int32  # a zero point; its type is that of the values
Scales = tuple[float, Zero, float]  # of a convolution's input, the zero point of that, and of its output


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


Shape = Sequence[int | str]  # a side is a number, or a name if it is free


def onnx_file(
    graph: Graph, inputs: Mapping[str, Shape], outputs: Mapping[str, Shape], metadata: Mapping[str, str]
) -> bytes:
    """An ONNX file.

    Args:
        graph: nodes and constants.
        inputs: shapes of the float32 arrays it takes, by name.
        outputs: shapes of the float32 arrays it returns, by name.
        metadata: strings by name.
    """
    made = _message(
        [
            *((1, node) for node in graph.nodes),
            (2, "matchkernel"),
            *((5, _tensor(name, values)) for name, values in graph.constants.items()),
            *((11, _value(name, shape)) for name, shape in inputs.items()),
            *((12, _value(name, shape)) for name, shape in outputs.items()),
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


def _value(name: str, shape: Shape) -> bytes:
    """A tensor of floats with a name."""
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


@dataclass(frozen=True)
class Limits:
    """The clipping limits of int8: larger values are stored as these.

    Attributes:
        patches: of the normalised patch, on either side of 0.
        layers: of every convolution's output after ReLU, by network.
    """

    patches: float
    layers: Sequence[Sequence[float]]


def descriptor_file(
    model: FoldedNetwork, metadata: Mapping[str, str], limits: Limits | None = None, arm: bool = False
) -> bytes:
    """The ONNX file of a descriptor, for any number of patches.

    Args:
        model: the descriptor.
        metadata: strings by name.
        limits: compute the convolutions in int8, with these limits (default: in float32).
        arm: write int8 in the form that is faster on ARM; any processor computes both.
    """
    graph = Graph()
    normalized = _normalized(graph, model.size)
    if limits is None:
        maps = _float_networks(graph, model.networks, normalized)
    else:
        maps = _int8_networks(graph, model.networks, normalized, limits, model.size, arm)
    maps *= len(model.matrices) // len(maps)
    parts = [
        _aggregation(graph, matrix, phi, model, f"aggregated{k}")
        for k, (matrix, phi) in enumerate(zip(model.matrices, maps, strict=True))
    ]
    rows = parts[0] if len(parts) == 1 else graph.add("Concat", parts, "aggregated", axis=1)
    if model.projection is not None:
        M, m = model.projection
        product = graph.add("MatMul", [rows, graph.constant("M", M.T)], "projected")
        rows = graph.add("Add", [product, graph.constant("m", m)], "embedded")
    if model.scale_and_shift is not None:
        scale, shift = model.scale_and_shift
        scaled = graph.add("Mul", [rows, graph.constant("norm.scale", scale)], "scaled")
        rows = graph.add("Add", [scaled, graph.constant("norm.shift", shift)], "shifted")
    _unit_rows(graph, rows, OUTPUT)
    patches = ("batch", 1, model.size, model.size)
    return onnx_file(graph, {INPUT: patches}, {OUTPUT: ("batch", model.config.D or 0)}, metadata)


def _normalized(graph: Graph, size: int) -> str:
    """(x - mean) / (std + 1e-7) of each patch [M0], with means as matrix products, which also take an empty batch."""
    pixels = size * size
    flat = graph.add("Reshape", [INPUT, graph.constant("flat_shape", [-1, pixels], np.int64)], "flat")
    averaging = graph.constant("averaging", np.full((pixels, 1), 1 / pixels))
    centred = graph.add("Sub", [flat, graph.add("MatMul", [flat, averaging], "mean")], "centred")
    squares = graph.add("Mul", [centred, centred], "squares")
    variance = graph.add("MatMul", [squares, graph.constant("summing", np.full((pixels, 1), 1 / (pixels - 1)))], "var")
    std = graph.add("Add", [graph.add("Sqrt", [variance], "std"), graph.constant("tiny", 1e-7)], "std_above_0")
    values = graph.add("Div", [centred, std], "normalized_flat")
    return graph.add("Reshape", [values, graph.constant("shape", [-1, 1, size, size], np.int64)], "normalized")


def _float_networks(graph: Graph, networks: Sequence[Sequence[Convolution]], normalized: str) -> list[str]:
    """The maps of the networks, each (B, d, n, n)."""
    maps = []
    for k, network in enumerate(networks):
        value = normalized
        for number, layer in enumerate(network):
            name = f"network{k}.{number}"
            inputs = [value, graph.constant(f"{name}.weight", layer.weight), graph.constant(f"{name}.bias", layer.bias)]
            value = graph.add("Relu", [graph.add("Conv", inputs, name, **_conv_attributes(layer))], f"{name}.relu")
        maps.append(value)
    return maps


def _conv_attributes(layer: Convolution) -> dict[str, Any]:
    """The attributes of a convolution in ONNX."""
    return {"kernel_shape": [3, 3], "strides": [layer.stride] * 2, "pads": [1] * 4}


def _aggregation(graph: Graph, matrix: np.ndarray | None, phi: str, model: FoldedNetwork, name: str) -> str:
    """(B, d, n, n) -> (B, ...): encoded positions, the mean, or the map itself."""
    d, cells = model.config.d, (model.size // STRIDE) ** 2
    if matrix is None:
        return graph.add("Reshape", [phi, graph.constant(f"{name}.shape", [-1, d * cells], np.int64)], name)
    long = graph.add("Reshape", [phi, graph.constant(f"{name}.map", [-1, d, cells], np.int64)], f"{name}.phi")
    product = graph.add("MatMul", [long, graph.constant(f"{name}.F", matrix)], f"{name}.product")
    width = d * matrix.shape[1]
    flat = graph.add("Reshape", [product, graph.constant(f"{name}.shape", [-1, width], np.int64)], f"{name}.flat")
    if not model.config.encoding_norm:
        return flat
    unit = _unit_rows(graph, flat, f"{name}.unit")
    return graph.add("Mul", [unit, graph.constant(f"{name}.length", width**0.5)], name)


def _unit_rows(graph: Graph, rows: str, output: str) -> str:
    """Rows scaled to length 1; a row of zeros stays zero."""
    norm = graph.add("ReduceL2", [rows, graph.constant("row_axis", [1], np.int64)], f"{output}.norm", keepdims=1)
    smallest = graph.constant("smallest", np.finfo(np.float32).tiny)
    return graph.add("Div", [rows, graph.add("Max", [norm, smallest], f"{output}.divisor")], output)


@dataclass(frozen=True)
class Ranges:
    """What an int8 graph needs besides the weights; a small file of the package holds it for each of its models.

    Attributes:
        state_sha256: digest of the weights that they were calibrated for.
        patch_size: N.
        limits: of all values.
        calibrated_on: names of the patch sets.
    """

    state_sha256: str
    patch_size: int
    limits: Limits
    calibrated_on: Sequence[str] = ()

    @property
    def sha256(self) -> str:
        """Digest of everything."""
        return json_digest(dataclasses.asdict(self))

    def write(self, path: Path) -> None:
        """Write a file, atomically."""
        text = json.dumps({**dataclasses.asdict(self), "sha256": self.sha256}, indent=1, sort_keys=True)
        with replacing(path) as part:
            part.write_text(text + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Ranges":
        """Read a file; one that has been changed is refused."""
        try:
            found = dict(json.loads(read_small_text(path, MAX_BYTES)))
            if found.pop("sha256") != json_digest(found):
                raise ValueError
            return cls(**{**found, "limits": Limits(**found["limits"])})
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise WeightsError(f"{path}: damaged, or not a file of int8 ranges") from None


def _int8_networks(
    graph: Graph, networks: Sequence[Sequence[Convolution]], normalized: str, limits: Limits, size: int, arm: bool
) -> list[str]:
    """The maps of the networks, each (B, d, n, n) in float32."""
    scale = limits.patches / (INPUT_ZERO - 1)
    middle: Zero = np.int8(0) if arm else np.uint8(INPUT_ZERO)
    patch = _quantize(graph, normalized, "patch", scale, middle)
    maps = []
    for k, network in enumerate(networks):
        value, before, zero = patch, scale, middle
        for number, layer in enumerate(network):
            name, after = f"network{k}.{number}", limits.layers[k][number] / 255
            scales = before, zero, after
            if number == 0 and arm:
                value = _first_by_columns(graph, layer, value, name, scales, size)
            elif number == 0 and size <= WIDEST:
                value = _first_over_rows(graph, layer, value, name, scales, size)
            else:
                value = _convolution(graph, value, name, (layer.weight, layer.bias), scales, _conv_attributes(layer))
            before, zero = after, _least(zero)
        maps.append(_dequantize(graph, value, f"network{k}.map", before, zero))
    return maps


def _first_over_rows(graph: Graph, layer: Convolution, value: str, name: str, scales: Scales, size: int) -> str:
    """The first convolution as one over rows: a column of the patch is a channel, and so is a column of each output.

    With channels last, as ONNX Runtime computes in int8, both changes of shape leave the memory as it is.
    """
    weight, step = layer.weight, layer.stride
    side = (size - 1) // step + 1  # of the map
    banded = np.zeros((side, len(weight), size, 3, 1), np.float32)
    for column in range(side):
        for k in range(3):
            source = column * step + k - 1
            if 0 <= source < size:
                banded[column, :, source, :, 0] = weight[:, 0, :, k]
    shaped = graph.add("Reshape", [value, graph.constant("rows", [-1, size, 1, size], np.int64)], f"{name}.rows")
    shaped = graph.add("Transpose", [shaped], f"{name}.columns_as_channels", perm=[0, 3, 1, 2])
    made = _convolution(
        graph,
        shaped,
        name,
        (banded.reshape(-1, size, 3, 1), np.tile(layer.bias, side)),
        scales,
        {"kernel_shape": [3, 1], "strides": [step, 1], "pads": [1, 0, 1, 0]},
    )
    return _split_columns(graph, made, name, side, len(weight))


def _first_by_columns(graph: Graph, layer: Convolution, value: str, name: str, scales: Scales, size: int) -> str:
    """The first convolution, some columns of the map at a time; a column of each output is a channel."""
    weight, step = layer.weight, layer.stride
    side = (size - 1) // step + 1  # of the map
    columns = math.gcd(side, COLUMNS)
    width = (columns - 1) * step + 3  # of what they see
    shifted = np.zeros((columns, len(weight), 1, 3, width), np.float32)
    for column in range(columns):
        shifted[column, ..., column * step : column * step + 3] = weight
    made = _convolution(
        graph,
        value,
        name,
        (shifted.reshape(-1, 1, 3, width), np.tile(layer.bias, columns)),
        scales,
        {
            "kernel_shape": [3, width],
            "strides": [step, columns * step],
            "pads": [1, 1, 1, (side - 1) * step + 2 - size],
        },
    )
    return _split_columns(graph, made, name, side, len(weight))


def _split_columns(graph: Graph, made: str, name: str, side: int, outputs: int) -> str:
    """(B, columns x outputs, side, side / columns) -> (B, outputs, side, side)."""
    made = graph.add("Transpose", [made], f"{name}.last", perm=[0, 2, 3, 1])
    shape = graph.constant(f"{name}.shape", [-1, side, side, outputs], np.int64)
    made = graph.add("Reshape", [made, shape], f"{name}.split")
    return graph.add("Transpose", [made], f"{name}.first", perm=[0, 3, 1, 2])


def _convolution(
    graph: Graph,
    value: str,
    name: str,
    weights: tuple[np.ndarray, np.ndarray],
    scales: Scales,
    attributes: dict[str, Any],
) -> str:
    """A convolution of quantised values to quantised values, as QDQ: runtimes that know int8 fuse it."""
    (weight, bias), (before, zero, after) = weights, scales
    largest = np.abs(weight).reshape(len(weight), -1).max(1)
    scale = (np.where(largest > 0, largest, 1) / LARGEST_WEIGHT).astype(np.float32)
    whole = np.round(weight / scale[:, None, None, None]).clip(-LARGEST_WEIGHT, LARGEST_WEIGHT)
    bias_scale = scale * np.float32(before)
    whole_bias = np.round(bias.astype(np.float64) / bias_scale).clip(-(2**31) + 1, 2**31 - 1)
    inputs = [
        _dequantize(graph, value, f"{name}.in", before, zero),
        _dequantize(graph, graph.constant(f"{name}.weight", whole, np.int8), f"{name}.weight", scale, np.int8(0)),
        _dequantize(
            graph, graph.constant(f"{name}.bias", whole_bias, np.int32), f"{name}.bias", bias_scale, np.int32(0)
        ),
    ]
    return _quantize(graph, graph.add("Conv", inputs, name, **attributes), f"{name}.out", after, _least(zero))


def _least(zero: Zero) -> Zero:
    """The zero point after ReLU: the least number of the same type."""
    return type(zero)(np.iinfo(zero.dtype).min)


def _quantize(graph: Graph, value: str, name: str, scale: float, zero: Zero) -> str:
    return graph.add("QuantizeLinear", [value, *_scale(graph, name, scale, zero)], f"{name}.whole")


def _dequantize(graph: Graph, value: str, name: str, scale: Any, zero: Zero) -> str:
    along = {} if np.ndim(scale) == 0 else {"axis": 0}
    return graph.add("DequantizeLinear", [value, *_scale(graph, name, scale, zero)], f"{name}.real", **along)


def _scale(graph: Graph, name: str, scale: Any, zero: Zero) -> list[str]:
    zeros = np.full(np.shape(scale), zero)
    return [graph.constant(f"{name}.scale", scale), graph.constant(f"{name}.zero", zeros, type(zero))]
