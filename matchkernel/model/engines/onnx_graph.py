"""A descriptor as an ONNX graph, written node by node: (B, 1, N, N) patches of any range -> (B, D) unit rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError
from matchkernel.model.backbone import Backbone
from matchkernel.model.config import STRIDE
from matchkernel.model.descriptors import Descriptor, SumOverPositions
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.storage.extras import need

INPUT, OUTPUT = "patches", "descriptors"
OPSET, IR_VERSION = 18, 10  # what onnxruntime 1.22 reads


@dataclass
class Graph:
    """Nodes and constants, collected in order; names are given by what they hold."""

    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)

    def add(self, operator: str, inputs: Sequence[str], output: str, **attributes: Any) -> str:
        """Append a node with one output, and return the name of the output."""
        helper = need("onnx.helper", "onnx", "writing ONNX files")
        self.nodes.append(helper.make_node(operator, list(inputs), [output], name=output, **attributes))
        return output

    def constant(self, name: str, values: Any, dtype: type = np.float32) -> str:
        """Keep an array under a name, and return the name."""
        array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
        self.constants[name] = np.ascontiguousarray(array.astype(dtype))
        return name


def onnx_model(
    model: Descriptor,
    size: int,
    words: Mapping[str, str],
    write_networks: "WriteNetworks | None" = None,
) -> Any:
    """The ModelProto of a descriptor.

    Args:
        model: a folded copy, float32 on the CPU.
        size: side of the patches, fixed in the file; the number of patches is free.
        words: metadata.
        write_networks: writes the convolutions (default: in float32).
    """
    graph = Graph()
    maps = (write_networks or _networks)(graph, list(model.backbones), _normalized(graph, size))
    maps *= len(model.aggregations) // len(maps)
    cells = (size // STRIDE) ** 2
    parts = [
        _aggregation(graph, part, phi, (model.config.d, cells), f"aggregated{k}")
        for k, (part, phi) in enumerate(zip(model.aggregations, maps, strict=True))
    ]
    joined = parts[0] if len(parts) == 1 else graph.add("Concat", parts, "aggregated", axis=1)
    rows = _projection(graph, model, joined)
    unit_rows_node(graph, rows, OUTPUT)
    return to_proto(graph, size, model.config.D or 0, words)


WriteNetworks = Callable[[Graph, Sequence[nn.Module], str], list[str]]


def to_proto(graph: Graph, size: int, D: int, words: Mapping[str, str]) -> Any:
    """A graph as a ModelProto with metadata."""
    onnx = need("onnx", "onnx", "writing ONNX files")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    made = helper.make_graph(
        graph.nodes,
        "matchkernel",
        [helper.make_tensor_value_info(INPUT, kind, ["batch", 1, size, size])],
        [helper.make_tensor_value_info(OUTPUT, kind, ["batch", D])],
        [onnx.numpy_helper.from_array(array, name) for name, array in graph.constants.items()],
    )
    proto = helper.make_model(made, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="matchkernel")
    proto.ir_version = IR_VERSION
    helper.set_model_props(proto, dict(words))
    return proto


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


def _networks(graph: Graph, networks: Sequence[nn.Module], normalized: str) -> list[str]:
    """The maps of the networks, each (B, d, n, n)."""
    maps = []
    for k, network in enumerate(networks):
        value = normalized
        for number, layer in enumerate(convolutions_of(network)):
            name = f"network{k}.{number}"
            inputs = [value, graph.constant(f"{name}.weight", layer.weight)]
            inputs += [] if layer.bias is None else [graph.constant(f"{name}.bias", layer.bias)]
            value = graph.add("Relu", [graph.add("Conv", inputs, name, **conv_attributes(layer))], f"{name}.relu")
        maps.append(value)
    return maps


def convolutions_of(network: nn.Module) -> list[nn.Conv2d]:
    """The convolutions of a folded network, each of which is followed by ReLU; other networks are refused."""
    assert isinstance(network, Backbone)
    layers = [layer for layer in network.layers if not isinstance(layer, nn.Identity)]
    found = [layer for layer in layers[::2] if isinstance(layer, nn.Conv2d)]
    if 2 * len(found) != len(layers) or not all(isinstance(layer, nn.ReLU) for layer in layers[1::2]):
        kinds = ", ".join(sorted({type(layer).__name__ for layer in layers}))
        raise ArgumentError(
            f"a network of other layers than convolutions with ReLU cannot be written as ONNX ({kinds})"
        )
    return found


def conv_attributes(layer: nn.Conv2d) -> dict[str, Any]:
    """The attributes of a convolution in ONNX."""
    assert not isinstance(layer.padding, str)
    return {
        "kernel_shape": list(layer.kernel_size),
        "strides": list(layer.stride),
        "pads": list(layer.padding) * 2,
        "dilations": list(layer.dilation),
        "group": layer.groups,
    }


def _aggregation(graph: Graph, part: nn.Module, phi: str, shape: tuple[int, int], name: str) -> str:
    """(B, d, n, n) -> (B, ...): encoded positions, the mean, or the map itself."""
    d, cells = shape
    if isinstance(part, nn.Flatten):
        return graph.add("Reshape", [phi, graph.constant(f"{name}.shape", [-1, d * cells], np.int64)], name)
    if isinstance(part, SumOverPositions):
        matrix = torch.full((cells, 1), 1 / cells)
    elif isinstance(part, SpatialEncoding):
        matrix = part.position_matrix(round(cells**0.5)) * (64 / cells)
    else:
        raise ArgumentError(f"an aggregation {type(part).__name__} cannot be written as ONNX")
    long = graph.add("Reshape", [phi, graph.constant(f"{name}.map", [-1, d, cells], np.int64)], f"{name}.phi")
    product = graph.add("MatMul", [long, graph.constant(f"{name}.F", matrix)], f"{name}.product")
    width = d * matrix.shape[1]
    flat = graph.add("Reshape", [product, graph.constant(f"{name}.shape", [-1, width], np.int64)], f"{name}.flat")
    if not getattr(part, "unit_norm", False):
        return flat
    unit = unit_rows_node(graph, flat, f"{name}.unit")
    return graph.add("Mul", [unit, graph.constant(f"{name}.length", width**0.5)], name)


def _projection(graph: Graph, model: Descriptor, value: str) -> str:
    if not isinstance(model.projection, nn.Linear):
        return value
    layer = model.projection
    product = graph.add("MatMul", [value, graph.constant("M", layer.weight.T)], "projected")
    return product if layer.bias is None else graph.add("Add", [product, graph.constant("m", layer.bias)], "embedded")


def unit_rows_node(graph: Graph, rows: str, output: str) -> str:
    """Rows scaled to length 1; a row of zeros stays zero."""
    norm = graph.add("ReduceL2", [rows, graph.constant("row_axis", [1], np.int64)], f"{output}.norm", keepdims=1)
    smallest = graph.constant("smallest", np.finfo(np.float32).tiny)
    return graph.add("Div", [rows, graph.add("Max", [norm, smallest], f"{output}.divisor")], output)
