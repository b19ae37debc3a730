"""DesDis (Liu and Dong, IJCV 2024): small students of a larger patch network, with the weights its authors publish."""

from pathlib import Path

import torch
from torch import nn

from matchkernel.evaluation.method import Method, UnitRows, network_method
from matchkernel.storage.tensors import fill, read_state

SIDE = 32
# The layers of the published files and their places in the network below.
PLACES = {
    "layer1.1": 1, "layer1.2": 2, "layer2.0": 4, "layer2.1": 5, "layer3.0": 7, "layer3.1": 8, "layer3.3": 10,
    "layer3.4": 11, "desc.1": 13, "desc.2": 14,
}  # fmt: skip


def desdis_8(path: Path) -> Method:
    """DesDis-8 with weights from its authors' file, DesDis-8.pth of liuyuzhenn/DesDis."""
    return _desdis(8, path)


def desdis_16(path: Path) -> Method:
    """As desdis_8, from DesDis-16.pth."""
    return _desdis(16, path)


def desdis_24(path: Path) -> Method:
    """As desdis_8, from DesDis-24.pth."""
    return _desdis(24, path)


def desdis_32(path: Path) -> Method:
    """As desdis_8, from DesDis-32.pth."""
    return _desdis(32, path)


def _desdis(width: int, path: Path) -> Method:
    """The network with `width` channels after its first layer."""
    name, renamed = f"desdis-{width}", {}
    for key, tensor in read_state(path).items():
        layer, _, part = key.rpartition(".")
        renamed[f"{PLACES.get(layer, layer)}.{part}"] = tensor
    module = nn.Sequential(*fill(_network(width), renamed, path, name).children(), nn.Flatten(), UnitRows())
    source = {
        "library": f"torch {torch.__version__}",
        "call": f"four 3 x 3 convolutions ({width} channels first), one 4 x 4, unit rows",
        "licence": "MIT (liuyuzhenn/DesDis)",
    }
    return network_method(name, module.eval(), SIDE, path, source)


def _network(width: int) -> nn.Sequential:
    """(K, 1, 32, 32) -> (K, 128, 1, 1)."""
    channels = (1, width, 2 * width, 4 * width, 4 * width)
    layers: list[nn.Module] = [nn.InstanceNorm2d(1)]
    for inputs, outputs, stride in zip(channels, channels[1:], (2, 2, 2, 1), strict=False):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs, affine=False)]
        layers += [nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(channels[-1], 128, 4), nn.BatchNorm2d(128, affine=False))
