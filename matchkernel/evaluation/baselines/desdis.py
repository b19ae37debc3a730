"""DesDis (Liu and Dong, IJCV 2024): small students of a larger patch network, with the weights its authors publish."""

from pathlib import Path

import torch
from torch import nn

from matchkernel.evaluation.baselines.baseline import Baseline
from matchkernel.evaluation.baselines.networks import UnitRows, network_baseline
from matchkernel.storage.foreign_weights import fill, read_state

SIDE = 32
WIDTHS = {f"desdis-{width}": width for width in (8, 16, 24, 32)}  # channels after the first layer
# The layers of the published files and their places in the network below.
PLACES = {
    "layer1.1": 1, "layer1.2": 2, "layer2.0": 4, "layer2.1": 5, "layer3.0": 7, "layer3.1": 8, "layer3.3": 10,
    "layer3.4": 11, "desc.1": 13, "desc.2": 14,
}  # fmt: skip


def desdis(name: str, path: Path) -> Baseline:
    """DesDis with weights from its authors' file.

    Args:
        name: one of WIDTHS.
        path: DesDis-8.pth, DesDis-16.pth, DesDis-24.pth or DesDis-32.pth of liuyuzhenn/DesDis.
    """
    renamed = {}
    for key, tensor in read_state(path).items():
        layer, _, part = key.rpartition(".")
        renamed[f"{PLACES.get(layer, layer)}.{part}"] = tensor
    module = nn.Sequential(*fill(_network(WIDTHS[name]), renamed, path, name).children(), nn.Flatten(), UnitRows())
    told = {
        "library": f"torch {torch.__version__}",
        "call": f"four 3 x 3 convolutions ({WIDTHS[name]} channels first), one 4 x 4, unit rows",
        "licence": "MIT (liuyuzhenn/DesDis)",
    }
    return network_baseline(name, module.eval(), SIDE, path, told)


def _network(width: int) -> nn.Sequential:
    """(K, 1, 32, 32) -> (K, 128, 1, 1)."""
    channels = (1, width, 2 * width, 4 * width, 4 * width)
    layers: list[nn.Module] = [nn.InstanceNorm2d(1)]
    for inputs, outputs, stride in zip(channels, channels[1:], (2, 2, 2, 1), strict=False):
        layers += [nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs, affine=False)]
        layers += [nn.ReLU()]
    return nn.Sequential(*layers, nn.Conv2d(channels[-1], 128, 4), nn.BatchNorm2d(128, affine=False))
