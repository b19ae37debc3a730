"""The context matcher without torch: its weight file, and its network as an ONNX graph.

A candidate match c joins keypoint i of photo A with keypoint j of photo B. Their frames give a similarity, written as
a complex number a_c: its modulus s_c is the change of scale from i to j, its argument theta_c the rotation. With places
z_i and z_j as complex numbers, v = z_i' - z_i and w = z_j' - z_j lead from one candidate to another, and the relative
error

    e(c, c') = |w - a_c v| / (|w| + |a_c v|)

is small if the similarity of c carries c' along. Neither a turn, shift or zoom of a photo nor an exchange of the photos
changes it. K kernels measure how well two candidates agree:

    phi_k(c, c') = exp(-alpha_k (e(c, c')^2 + e(c', c)^2) / 2 - beta_k |v| |w| - kappa_k (1 - cos(theta_c - theta_c'))
                       - gamma_k (log2 s_c - log2 s_c')^2),

where the third term is a Von Mises kernel. A layer sums over all other candidates, each weighted by a gate g_k that the
layer computes from what is known about it: the match kernel sum_c' phi_k(c, c') g_k(c') and the mean of values.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import WeightsError, short_message
from matchkernel.runtime.graph import Graph, onnx_file
from matchkernel.storage.arrays import digest, read_header, read_tensors

SHIPPED = Path(__file__).parent / "matchers"  # <descriptor>.safetensors each
KEY, KIND, FORMAT = "matchkernel", "context", 1  # metadata of a weight file: one JSON table with kind and format
FEATURES = 7  # numbers that describe a candidate by itself
SMALLEST = 1e-4  # added to distances before they divide


@dataclass(frozen=True, eq=False)
class ContextWeights:
    """The weights of a context matcher, and what is known about them; equal if their digests are.

    Attributes:
        name: of the file.
        tensors: by name, float32.
        facts: of the file: `descriptor` and `descriptor_sha256` (whose rows it judges; the digest of its weights, or
            the name of SIFT or RootSIFT), `candidates` (maximum number), `top` (neighbours of a keypoint), `threshold`
            (of the probability), `card` (what it was trained on, ...).
        sha256: digest of everything in the file.
    """

    name: str
    tensors: Mapping[str, np.ndarray] = field(repr=False)
    facts: Mapping[str, Any] = field(repr=False)
    sha256: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ContextWeights) and self.sha256 == other.sha256

    def __hash__(self) -> int:
        return hash(self.sha256)

    @property
    def layers(self) -> int:
        """Number of layers."""
        return sum(name.endswith(".gate.weight") for name in self.tensors)

    @property
    def kernels(self) -> np.ndarray:
        """(K, 4) alpha, beta, kappa and gamma of each kernel."""
        return np.exp(np.stack([self.tensors[f"log_{letter}"] for letter in "erts"], -1))

    @cached_property
    def graph(self) -> bytes:
        """The network as an ONNX file."""
        return context_file(self)


def tensor_shapes(d: int, layers: int, dv: int, K: int) -> dict[str, tuple[int, ...]]:
    """Names and shapes of the weights: width d, K kernels, dv values a kernel."""
    shapes: dict[str, tuple[int, ...]] = {f"log_{letter}": (K,) for letter in "erts"}
    linear = {"first.0": (d, FEATURES), "first.2": (d, d), "out": (1, d)}
    for k in range(layers):
        linear |= {f"layers.{k}.gate": (K, d), f"layers.{k}.value": (K * dv, d)}
        linear |= {f"layers.{k}.up": (2 * d, d + K * (dv + 1)), f"layers.{k}.down": (d, 2 * d)}
        shapes |= {f"layers.{k}.norm.weight": (2 * d,), f"layers.{k}.norm.bias": (2 * d,)}
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def read_context(path: str | Path) -> ContextWeights:
    """Read a file of weights; one that is damaged, or not of a context matcher, is refused."""
    path = Path(path)
    metadata, header = read_header(path)
    try:
        facts = json.loads(metadata[KEY])
        if (facts["kind"], facts["format"]) != (KIND, FORMAT):
            raise ValueError(f"kind {facts['kind']!r}, format {facts['format']!r}")
        d, layers, dv = (int(facts[name]) for name in ("d", "layers", "dv"))
        if layers > len(header):
            raise ValueError(f"{layers} layers")
        wanted = tensor_shapes(d, layers, dv, K=int(header["log_e"]["shape"][0]))
        usable = 0 < float(facts["threshold"]) < 1 and int(facts["candidates"]) > 0 and int(facts["top"]) > 0
        usable = usable and all(str.isprintable(facts[name]) for name in ("descriptor", "descriptor_sha256"))
    except (LookupError, ValueError, TypeError, OverflowError, RecursionError) as error:
        raise WeightsError(f"{path}: not the weights of a context matcher ({short_message(error)})") from None
    found = {name: (entry["dtype"], tuple(entry["shape"])) for name, entry in header.items()}
    if not usable or found != {name: ("F32", shape) for name, shape in wanted.items()}:
        raise WeightsError(f"{path}: does not contain the weights of a context matcher that it claims")
    stored = read_tensors(path)
    tensors = {name: tensor.array() for name, tensor in stored.items()}
    sha256 = digest(metadata, stored)
    if metadata.get("sha256") != sha256 or not all(np.isfinite(values).all() for values in tensors.values()):
        raise WeightsError(f"{path}: damaged, its contents do not match its recorded sha256; download or save it again")
    return ContextWeights(path.stem, tensors, facts, sha256)


def context_file(weights: ContextWeights) -> bytes:
    """The ONNX file of a context matcher: C candidates to (C,) logits.

    Its inputs are `features` (C, 7), `places_a` and `places_b` (C, 2), `similarity` (C, 2), the real and imaginary part
    of a_c, and `log_scale` (C, 1), log2 |a_c|.
    """
    graph = Graph()
    phi = _kernels(graph, weights.kernels)
    x = _linear(graph, weights, "first.0", "features")
    x = _linear(graph, weights, "first.2", _gelu(graph, x, "first.1"))
    for k in range(weights.layers):
        x = _layer(graph, weights, f"layers.{k}", x, phi)
    flat = graph.constant("flat", [-1], np.int64)
    graph.add("Reshape", [_linear(graph, weights, "out", x), flat], "logits")
    pairs = dict.fromkeys(("places_a", "places_b", "similarity"), ("candidates", 2))
    inputs = {"features": ("candidates", FEATURES), **pairs, "log_scale": ("candidates", 1)}
    return onnx_file(graph, inputs, {"logits": ("candidates",)}, {"sha256": weights.sha256})


def _kernels(graph: Graph, exponents: np.ndarray) -> str:
    """(K, C, C) phi."""
    K = len(exponents)
    lengths = {}
    for side in ("a", "b"):
        x, y = (_differences(graph, _column(graph, f"places_{side}", k), f"{side}.{'xy'[k]}") for k in (0, 1))
        lengths[side] = (x, y, _length(graph, x, y, side))
    vx, vy, v = lengths["a"]
    wx, wy, w = lengths["b"]
    re, im = _column(graph, "similarity", 0), _column(graph, "similarity", 1)
    # w - a_c v, in real and imaginary parts
    off = []
    for name, (one, two), sign, target in (("re", (vx, vy), "Sub", wx), ("im", (vy, vx), "Add", wy)):
        first, second = (graph.add("Mul", pair, f"a.v.{name}{k}") for k, pair in enumerate(((re, one), (im, two))))
        off.append(graph.add("Sub", [target, graph.add(sign, [first, second], f"a.v.{name}")], f"off.{name}"))
    modulus = _length(graph, re, im, "modulus")
    whole = graph.add("Add", [w, graph.add("Mul", [modulus, v], "a.v.length")], "lengths")
    whole = graph.add("Add", [whole, graph.constant("smallest", SMALLEST)], "lengths.above.0")
    squares = [graph.add("Div", [part, whole], f"{part}.relative") for part in off]
    squares = [graph.add("Mul", [part, part], f"{part}.square") for part in squares]
    error = graph.add("Add", squares, "error.one.way")
    error = graph.add("Add", [error, graph.add("Transpose", [error], "error.other.way", perm=[1, 0])], "error.twice")
    error = graph.add("Mul", [error, graph.constant("half", 0.5)], "error")
    distance = graph.add("Mul", [v, w], "distance")
    unit = graph.add("Div", ["similarity", modulus], "direction")
    cosine = graph.add("MatMul", [unit, graph.add("Transpose", [unit], "direction.row", perm=[1, 0])], "cosine")
    turn = graph.add("Sub", [graph.constant("one", 1.0), cosine], "turn")
    scale = _differences(graph, "log_scale", "scale")
    scale = graph.add("Mul", [scale, scale], "scale.square")
    axis, row = graph.constant("first.axis", [0], np.int64), graph.constant("rows", [4, -1], np.int64)
    maps = [graph.add("Unsqueeze", [one, axis], f"{one}.map") for one in (error, distance, turn, scale)]
    flat = graph.add("Reshape", [graph.add("Concat", maps, "maps", axis=0), row], "maps.flat")
    exponent = graph.add("MatMul", [graph.constant("exponents", -exponents), flat], "exponent")
    count = graph.add("Shape", ["log_scale"], "count.and.1")
    count = graph.add("Gather", [count, graph.constant("zeroth", [0], np.int64)], "count", axis=0)
    shape = graph.add("Concat", [graph.constant("K", [K], np.int64), count, count], "phi.shape", axis=0)
    return graph.add("Reshape", [graph.add("Exp", [exponent], "phi.flat"), shape], "phi")


def _layer(graph: Graph, weights: ContextWeights, name: str, x: str, phi: str) -> str:
    """One layer: (C, d) -> (C, d)."""
    K = len(weights.tensors["log_e"])
    dv = len(weights.tensors[f"{name}.value.bias"]) // K
    gate = graph.add("Sigmoid", [_linear(graph, weights, f"{name}.gate", x)], f"{name}.gates")
    by_kernel = graph.constant(f"{name}.gate.shape", [-1, K, 1], np.int64)
    gate = graph.add("Reshape", [gate, by_kernel], f"{name}.gates.by.kernel")
    value = _linear(graph, weights, f"{name}.value", x)
    value = graph.add("Reshape", [value, graph.constant(f"{name}.shape", [-1, K, dv], np.int64)], f"{name}.values")
    parts = [gate, graph.add("Mul", [gate, value], f"{name}.gated")]
    given = graph.add("Concat", parts, f"{name}.given", axis=2)
    given = graph.add("Transpose", [given], f"{name}.given.by.kernel", perm=[1, 0, 2])  # (K, C, dv + 1)
    # phi(c, c) = 1: a candidate does not support itself
    sums = graph.add("Sub", [graph.add("MatMul", [phi, given], f"{name}.all"), given], f"{name}.sums")
    sums = graph.add("Transpose", [sums], f"{name}.sums.by.candidate", perm=[1, 0, 2])
    ends = [graph.constant(f"{name}.{k}", [k], np.int64) for k in (0, 1, dv + 1)]
    last = graph.constant(f"{name}.last", [2], np.int64)
    total = graph.add("Slice", [sums, ends[0], ends[1], last], f"{name}.total")
    total = graph.add("Relu", [total], f"{name}.total.above.0")  # rounding
    others = graph.add("Slice", [sums, ends[1], ends[2], last], f"{name}.others")
    divisor = graph.add("Add", [total, graph.constant(f"{name}.tenth", 0.1)], f"{name}.divisor")
    support = graph.add(
        "Log", [graph.add("Add", [total, graph.constant(f"{name}.one", 1.0)], f"{name}.1p")], f"{name}.log"
    )
    means = graph.add("Div", [others, divisor], f"{name}.means")
    message = graph.add("Concat", [support, means], f"{name}.message", axis=2)
    flat = graph.constant(f"{name}.flat", [-1, K * (dv + 1)], np.int64)
    message = graph.add(
        "Concat", [x, graph.add("Reshape", [message, flat], f"{name}.message.flat")], f"{name}.in", axis=1
    )
    up = _linear(graph, weights, f"{name}.up", message)
    scale, shift = (
        graph.constant(f"{name}.norm.{part}", weights.tensors[f"{name}.norm.{part}"]) for part in ("weight", "bias")
    )
    inner = _gelu(graph, graph.add("LayerNormalization", [up, scale, shift], f"{name}.normed"), f"{name}.gelu")
    return graph.add("Add", [x, _linear(graph, weights, f"{name}.down", inner)], f"{name}.x")


def _linear(graph: Graph, weights: ContextWeights, name: str, x: str) -> str:
    weight = graph.constant(f"{name}.weight", weights.tensors[f"{name}.weight"].T)
    product = graph.add("MatMul", [x, weight], f"{name}.product")
    return graph.add("Add", [product, graph.constant(f"{name}.bias", weights.tensors[f"{name}.bias"])], name)


def _gelu(graph: Graph, x: str, name: str) -> str:
    """x (1 + erf(x / sqrt 2)) / 2."""
    scaled = graph.add("Mul", [x, graph.constant(f"{name}.root", 0.5**0.5)], f"{name}.scaled")
    one = graph.constant(f"{name}.one", 1.0)
    above = graph.add("Add", [graph.add("Erf", [scaled], f"{name}.erf"), one], f"{name}.above")
    half = graph.add("Mul", [above, graph.constant(f"{name}.half", 0.5)], f"{name}.half.above")
    return graph.add("Mul", [x, half], name)


def _column(graph: Graph, array: str, k: int) -> str:
    """(C, 1), one of the columns."""
    index = graph.constant(f"column.{k}", [k], np.int64)
    return graph.add("Gather", [array, index], f"{array}.{k}", axis=1)


def _differences(graph: Graph, column: str, name: str) -> str:
    """(C, C) x_c' - x_c."""
    return graph.add("Sub", [graph.add("Transpose", [column], f"{name}.row", perm=[1, 0]), column], name)


def _length(graph: Graph, x: str, y: str, name: str) -> str:
    """sqrt(x^2 + y^2)."""
    squares = [graph.add("Mul", [part, part], f"{name}.{k}.square") for k, part in enumerate((x, y))]
    return graph.add("Sqrt", [graph.add("Add", squares, f"{name}.squares")], f"{name}.length")
