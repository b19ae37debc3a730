"""Static quantisation to 8 bits: all convolutions in int8, everything before and after them in float32.

Weights are symmetric, of 7 bits, with one scale per channel. Activations are unsigned, of 8 bits, with one scale per
layer, calibrated on patches; after ReLU their zero point is 0, so that padding and ReLU itself are exact and free. The
first convolution, with its single input channel, is written as a convolution over rows whose channels are the columns
of the patch: a few large products instead of many small ones.
"""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import WeightsError
from matchkernel.runtime.graph import Convolution, FoldedNetwork, Graph, conv_attributes, descriptor_file
from matchkernel.storage.files import json_digest, read_small_text, replacing

INPUT_ZERO = 128  # zero point of the normalised patch, which has both signs
MAX_BYTES = 2**16  # of a file of ranges
WIDEST = 48  # pixels; the first convolution over rows takes N times the products per output, too many for large N
# Weights take 7 of their 8 bits. The sum of two products of 8 bits with 7 still fits 16 bits, so that processors which
# add them there (x86 without VNNI) get the same results as others, at full speed; the last bit is hardly missed.
LARGEST_WEIGHT = 63
Scales = tuple[float, int, float]  # of a convolution's input, the zero point of that, and of its output


@dataclass(frozen=True)
class Limits:
    """The clipping limits: larger values are stored as these.

    Attributes:
        patches: of the normalised patch, on either side of 0.
        layers: of every convolution's output after ReLU, by network.
    """

    patches: float
    layers: tuple[tuple[float, ...], ...]


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
    calibrated_on: tuple[str, ...] = ()

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
            sha256, limits = found.pop("sha256"), found.pop("limits")
            layers = tuple(tuple(float(limit) for limit in part) for part in limits["layers"])
            names = tuple(found.pop("calibrated_on"))
            made = cls(**found, limits=Limits(float(limits["patches"]), layers), calibrated_on=names)
            if made.sha256 != sha256:
                raise ValueError
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise WeightsError(f"{path}: damaged, or not a file of int8 ranges") from None
        return made


def int8_file(model: FoldedNetwork, limits: Limits, metadata: Mapping[str, str]) -> bytes:
    """The ONNX file of a descriptor with its convolutions in int8; the number of patches is free."""
    return descriptor_file(model, metadata, partial(_networks, limits=limits, size=model.size))


def _networks(
    graph: Graph, networks: Sequence[Sequence[Convolution]], normalized: str, *, limits: Limits, size: int
) -> list[str]:
    """Write the networks; returns their maps in float32."""
    scale = limits.patches / (INPUT_ZERO - 1)
    patch = _quantize(graph, normalized, "patch", scale, INPUT_ZERO)
    maps = []
    for k, network in enumerate(networks):
        value, before, zero = patch, scale, INPUT_ZERO
        for number, layer in enumerate(network):
            name, after = f"network{k}.{number}", limits.layers[k][number] / 255
            if number == 0 and size <= WIDEST:
                value = _first_over_rows(graph, layer, value, name, (before, zero, after), size)
            else:
                scales, weights = (before, zero, after), (layer.weight, layer.bias)
                value = _convolution(graph, value, name, weights, scales, conv_attributes(layer))
            before, zero = after, 0
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
    made = graph.add("Transpose", [made], f"{name}.last", perm=[0, 2, 3, 1])
    shape = graph.constant(f"{name}.shape", [-1, side, side, len(weight)], np.int64)
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
        _dequantize(graph, graph.constant(f"{name}.weight", whole, np.int8), f"{name}.weight", scale, 0, np.int8),
        _dequantize(
            graph, graph.constant(f"{name}.bias", whole_bias, np.int32), f"{name}.bias", bias_scale, 0, np.int32
        ),
    ]
    return _quantize(graph, graph.add("Conv", inputs, name, **attributes), f"{name}.out", after, 0)


def _quantize(graph: Graph, value: str, name: str, scale: float, zero: int) -> str:
    return graph.add("QuantizeLinear", [value, *_scale(graph, name, scale, zero, np.uint8)], f"{name}.whole")


def _dequantize(graph: Graph, value: str, name: str, scale: Any, zero: int, kind: type = np.uint8) -> str:
    along = {} if np.ndim(scale) == 0 else {"axis": 0}
    return graph.add("DequantizeLinear", [value, *_scale(graph, name, scale, zero, kind)], f"{name}.real", **along)


def _scale(graph: Graph, name: str, scale: Any, zero: int, kind: type) -> list[str]:
    zeros = np.full(np.shape(scale), zero)
    return [graph.constant(f"{name}.scale", scale), graph.constant(f"{name}.zero", zeros, kind)]
