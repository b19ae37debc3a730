"""Make a descriptor ready to be trained: statistics by group, layouts and kernels for the device."""

import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor
from matchkernel.training.batch_norm import GroupedBatchNorm2d, group_statistics


class FusedLayers(nn.Sequential):
    """The layers of a backbone; in training the first three (convolution, BatchNorm, ReLU) run as one."""

    def forward(self, x: Tensor) -> Tensor:
        """The map Phi of normalised patches."""
        if not self.training:
            for layer in self:
                x = layer(x)
            return x
        from matchkernel.training.first_layer import FirstLayer  # needs triton

        convolution, norm = self[0], self[1]
        assert isinstance(convolution, nn.Conv2d)
        assert isinstance(norm, GroupedBatchNorm2d)
        x = x.to(torch.bfloat16).contiguous()
        y, mean, variance = FirstLayer.apply(x, convolution.weight, norm.groups, norm.eps)  # type: ignore[no-untyped-call]
        norm.track(mean, variance, x.numel() // norm.groups)
        for layer in list(self)[3:]:
            y = layer(y)
        return y


def prepare(model: Descriptor, *, groups: int, synchronize: bool = False, fuse: bool = False) -> None:
    """Change a model for training, in place; the names and shapes of its tensors stay.

    Args:
        model: the descriptor, on its device.
        groups: parts of a batch with BatchNorm statistics of their own: 2 for anchors and positives.
        synchronize: share the statistics among processes.
        fuse: run the first convolution with its BatchNorm as one kernel (GPU, bfloat16).
    """
    group_statistics(model, groups, synchronize=synchronize)
    if fuse:
        for backbone in model.backbones:
            assert isinstance(backbone, Backbone)
            backbone.layers = FusedLayers(*backbone.layers)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train()


def can_fuse(device: torch.device, *, is_half: bool) -> bool:
    """Whether the fused first layer can run here."""
    return device.type == "cuda" and is_half and importlib.util.find_spec("triton") is not None


@contextmanager
def own_settings(device: torch.device) -> Iterator[None]:
    """Train with settings of its own: random numbers and cuDNN's ways are the caller's again afterwards."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False
        try:
            yield
        finally:
            cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before
