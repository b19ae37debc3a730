"""DeepDesc (Simo-Serra et al., ICCV 2015; the paper's DDesc), with the weights its authors publish."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from experiments.baselines.torch7 import TorchObject, read_torch7
from matchkernel.errors import WeightsError
from matchkernel.evaluation.method import Method, network_method
from matchkernel.storage.tensors import fill

SIDE = 64
# The layers of the published files with their places in the network below, counted from 0; the file counts from 1.
CONVOLUTIONS, CENTRED = (0, 4, 8), (3, 7)
CLASSES = (
    "nn.SpatialConvolution", "nn.Tanh", "nn.SpatialLPPooling", "nn.SpatialSubtractiveNormalization",
    "nn.SpatialConvolution", "nn.Tanh", "nn.SpatialLPPooling", "nn.SpatialSubtractiveNormalization",
    "nn.SpatialConvolution", "nn.Tanh", "nn.SpatialLPPooling", "nn.Reshape",
)  # fmt: skip


def deepdesc(path: Path) -> Method:
    """DeepDesc with weights from its authors' file.

    Args:
        path: one of the files CNN3_p8_n8_split*.t7 of etrulls/deepdesc-release.
    """
    file = read_torch7(path)
    try:
        state = _state(file)
    except (KeyError, TypeError, AttributeError, IndexError):
        raise WeightsError(f"{path}: not weights of deepdesc (no network of its kind in it)") from None
    standard = _Standardised()
    fill(standard, {key: state.pop(key) for key in ("mean", "std")}, path, "deepdesc")
    if not bool((standard.std > 0).all()):
        raise WeightsError(f"{path}: not weights of deepdesc (a standard deviation that is not positive)")
    network = fill(_network(), state, path, "deepdesc")
    source = {
        "library": f"torch {torch.__version__}",
        "call": "pixels standardised by the file's means and deviations; three convolutions with tanh and L2 pooling",
        "licence": "CC BY-NC-SA 4.0 (etrulls/deepdesc-release): read by path, not part of this package",
    }
    module = nn.Sequential(standard, *network.children(), nn.Flatten())
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # a third faster on a CPU
    return network_method("deepdesc", module.eval(), SIDE, path, source)


class _Standardised(nn.Module):
    """Subtract the mean of each pixel over the training set, divide by its standard deviation."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.std: Tensor
        self.register_buffer("mean", torch.zeros(1, SIDE, SIDE))
        self.register_buffer("std", torch.ones(1, SIDE, SIDE))

    def forward(self, patches: Tensor) -> Tensor:
        """(K, 1, 64, 64) -> the same, laid out for the convolutions."""
        return ((patches - self.mean) / self.std).to(memory_format=torch.channels_last)


class _Centred(nn.Module):
    """Subtract a mean over all channels and 5 x 5 positions, of those inside the map; its weights are not learned."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight: Tensor
        self.bias: Tensor
        self.register_buffer("weight", torch.zeros(1, channels, 5, 5))
        self.register_buffer("bias", torch.zeros(1))

    def forward(self, maps: Tensor) -> Tensor:
        """(K, C, n, n) -> the same."""
        return maps - self._sum(maps) / self._sum(torch.ones_like(maps[:1]))

    def _sum(self, maps: Tensor) -> Tensor:
        return nnf.conv2d(maps, self.weight, self.bias, padding=2)


class _RootOfSquares(nn.Module):
    """L2 pooling: the root of the sum of squares in each cell of `side` x `side`."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, maps: Tensor) -> Tensor:
        """(K, C, n, n) -> (K, C, n / side, n / side)."""
        return (nnf.avg_pool2d(maps * maps, self.side) * self.side**2).sqrt()


def _network() -> nn.Sequential:
    """(K, 1, 64, 64) -> (K, 128, 1, 1); the map has 58, 29, 24, 8, 4 and 1 positions a side."""
    return nn.Sequential(
        nn.Conv2d(1, 32, 7), nn.Tanh(), _RootOfSquares(2), _Centred(32),
        nn.Conv2d(32, 64, 6), nn.Tanh(), _RootOfSquares(3), _Centred(64),
        nn.Conv2d(64, 128, 5), nn.Tanh(), _RootOfSquares(4),
    )  # fmt: skip


def _state(file: Any) -> dict[str, Tensor]:
    """The weights of a file by the names of the network above, with the mean and deviation of the pixels."""
    layers = [file["desc"].fields["modules"][float(k)] for k in range(1, 1 + len(CLASSES))]
    if tuple(layer.class_name for layer in layers) != CLASSES:
        raise TypeError("other layers")
    found = {"mean": file["mean"], "std": file["std"]}
    for place in CONVOLUTIONS:
        found |= _convolution(layers[place], str(place))
    for place in CENTRED:
        estimator = layers[place].fields["meanestimator"].fields["modules"]
        found |= _convolution(estimator[2.0], str(place))
    return found


def _convolution(layer: TorchObject, name: str) -> dict[str, Tensor]:
    return {f"{name}.{part}": layer.fields[part] for part in ("weight", "bias")}
