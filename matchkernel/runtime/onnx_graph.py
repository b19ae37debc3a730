"""A descriptor as an ONNX graph, written node by node: (B, 1, N, N) patches of any range -> (B, D) unit rows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from matchkernel.runtime.config import STRIDE
from matchkernel.runtime.onnx_format import Graph, onnx_file
from matchkernel.runtime.weights import Convolution, FoldedNetwork

INPUT, OUTPUT = "patches", "descriptors"

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
