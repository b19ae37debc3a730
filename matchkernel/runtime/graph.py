"""A descriptor as an ONNX file: BatchNorm folded into the weights, the graph node by node, the bytes of the format.

The graph maps (B, 1, N, N) patches of any range to (B, D) unit rows. The format is Protocol Buffers, of which a graph
needs little: numbers and nested fields. Field numbers are those of onnx.proto3, whose own package only tests need.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from matchkernel.runtime.config import STRIDE, VARIANTS, DescriptorConfig
from matchkernel.runtime.positions import fourier_coefficients, position_matrix
from matchkernel.runtime.weights import Weights

INPUT, OUTPUT = "patches", "descriptors"
EPSILON = 1e-5  # BatchNorm's


@dataclass(frozen=True)
class Convolution:
    """A 3 x 3 convolution with padding 1, BatchNorm folded into it, followed by ReLU; float32."""

    weight: np.ndarray  # (outputs, inputs, 3, 3)
    bias: np.ndarray  # (outputs,)
    stride: int


@dataclass(frozen=True)
class FoldedNetwork:
    """A descriptor as it is computed at inference, for one patch size; float32.

    Attributes:
        config: of the descriptor.
        size: side of the patches.
        networks: the convolutions of each network.
        matrices: (n * n, P) for each aggregation, which multiplies the map: c F, or the mean; None: the map itself.
        projection: (D, width) of M or W and (D,) added to the product; None if nothing is learned there.
        scale_and_shift: (D,) each, of the BatchNorm that `sum` and `concat` may have.
    """

    config: DescriptorConfig
    size: int
    networks: list[list[Convolution]]
    matrices: list[np.ndarray | None]
    projection: tuple[np.ndarray, np.ndarray] | None
    scale_and_shift: tuple[np.ndarray, np.ndarray] | None = None


def fold(weights: Weights, size: int) -> FoldedNetwork:
    """Fold every BatchNorm into the convolution or matrix before it, in float64, so that only one rounding is added.

    Args:
        weights: of the descriptor.
        size: side of the patches.
    """
    config = weights.config
    values = {name: tensor.array().astype(np.float64) for name, tensor in weights.tensors.items()}
    networks = []
    for k in range(VARIANTS[config.variant].networks):
        layers = []
        for number, (_, _, stride) in enumerate(config.convolutions):
            at = f"backbones.{k}.layers."
            scale, shift = _norm(values, f"{at}{3 * number + 1}")
            weight = values[f"{at}{3 * number}.weight"] * scale[:, None, None, None]
            layers.append(Convolution(weight.astype(np.float32), shift.astype(np.float32), stride))
        networks.append(layers)
    projection, final = None, _norm(values, "output_norm") if config.output_norm == "batch" else None
    if VARIANTS[config.variant].projects:
        scale, shift = (np.ones(config.D or 0), np.zeros(config.D or 0)) if final is None else final
        weight = values["projection.weight"] * scale[:, None]
        bias = values.get("projection.bias", 0) * scale + shift
        projection, final = (weight.astype(np.float32), bias.astype(np.float32)), None
    exact = None if final is None else (final[0].astype(np.float32), final[1].astype(np.float32))
    return FoldedNetwork(config, size, networks, aggregation_matrices(config, size), projection, exact)


def _norm(values: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """A BatchNorm as a factor and a number to add."""
    scale = 1 / np.sqrt(values[f"{name}.running_var"] + EPSILON)
    return scale, -values[f"{name}.running_mean"] * scale


def aggregation_matrices(config: DescriptorConfig, size: int) -> list[np.ndarray | None]:
    """The matrix that multiplies the map of each aggregation, (n * n, P) float32; None where the map itself is used."""
    variant, n = VARIANTS[config.variant], size // STRIDE
    if not variant.systems:
        return [np.full((n * n, 1), 1 / n**2, np.float32) if variant.any_size else None]
    assert config.s is not None  # resolved
    assert config.grid is not None
    return [
        np.float32(64 / n**2)  # c of [M12]
        * position_matrix(
            system, n, fourier_coefficients(kappa, config.s), grid=config.grid, center_weight=bool(config.center_weight)
        ).astype(np.float32)
        for system, kappa in zip(variant.systems, config.kappas, strict=True)
    ]


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


WriteNetworks = Callable[[Graph, Sequence[Sequence[Convolution]], str], list[str]]


def float_file(model: FoldedNetwork, metadata: Mapping[str, str]) -> bytes:
    """The ONNX file of a descriptor in float32; the number of patches is free."""
    return descriptor_file(model, metadata, _networks)


def descriptor_file(model: FoldedNetwork, metadata: Mapping[str, str], write_networks: WriteNetworks) -> bytes:
    """The ONNX file of a descriptor whose convolutions are written by a function."""
    graph, config = Graph(), model.config
    maps = write_networks(graph, model.networks, _normalized(graph, model.size))
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
    unit_rows_node(graph, rows, OUTPUT)
    return onnx_file(graph, (INPUT, model.size), (OUTPUT, config.D or 0), metadata)


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


def _networks(graph: Graph, networks: Sequence[Sequence[Convolution]], normalized: str) -> list[str]:
    """The maps of the networks, each (B, d, n, n)."""
    maps = []
    for k, network in enumerate(networks):
        value = normalized
        for number, layer in enumerate(network):
            name = f"network{k}.{number}"
            inputs = [value, graph.constant(f"{name}.weight", layer.weight), graph.constant(f"{name}.bias", layer.bias)]
            value = graph.add("Relu", [graph.add("Conv", inputs, name, **conv_attributes(layer))], f"{name}.relu")
        maps.append(value)
    return maps


def conv_attributes(layer: Convolution) -> dict[str, Any]:
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
    unit = unit_rows_node(graph, flat, f"{name}.unit")
    return graph.add("Mul", [unit, graph.constant(f"{name}.length", width**0.5)], name)


def unit_rows_node(graph: Graph, rows: str, output: str) -> str:
    """Rows scaled to length 1; a row of zeros stays zero."""
    norm = graph.add("ReduceL2", [rows, graph.constant("row_axis", [1], np.int64)], f"{output}.norm", keepdims=1)
    smallest = graph.constant("smallest", np.finfo(np.float32).tiny)
    return graph.add("Div", [rows, graph.add("Max", [norm, smallest], f"{output}.divisor")], output)
