"""A descriptor in training: BatchNorm statistics by group, layouts and kernels for the device."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.precision import has_bfloat16, widened
from matchkernel.runtime.config import DescriptorConfig


def prepare_for_training(model: Descriptor, *, groups: int, fuse: bool = False) -> None:
    """Prepare a model for training, in place; the names and shapes of its tensors do not change.

    Args:
        model: the descriptor, on its device.
        groups: number of parts of a batch with separate BatchNorm statistics: 2 for anchors and positives.
        fuse: run each convolution with its BatchNorm and ReLU by kernels of our own (GPU, bfloat16).
    """
    group_statistics(model, groups)
    if fuse:
        for backbone in model.backbones:
            assert isinstance(backbone, Backbone)
            backbone.layers = FusedLayers(*backbone.layers)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train()


def is_half_precision(precision: str, device: torch.device) -> bool:
    """Whether a run computes in bfloat16: if requested or on a GPU, provided that the device supports it."""
    if precision == "bf16" and not has_bfloat16(device):
        warnings.warn("this CPU has no bfloat16 arithmetic: training in float32", RuntimeWarning, stacklevel=2)
        return False
    return precision == "bf16" or (precision == "auto" and device.type == "cuda")


def can_fuse(config: DescriptorConfig, device: torch.device, *, is_half: bool) -> bool:
    """Whether fused layers can run here: the first is written for the paper's first convolution."""
    is_papers = config.convolutions[0] == (1, 32, 1)
    return is_papers and device.type == "cuda" and is_half and importlib.util.find_spec("triton") is not None


@contextmanager
def torch_settings(device: torch.device) -> Iterator[None]:
    """Settings of torch for training; the caller's random numbers and cuDNN settings are restored at the end."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False
        try:
            yield
        finally:
            cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before


class FusedLayers(nn.Sequential):
    """The layers of a backbone; in training each convolution with its BatchNorm and ReLU is computed as one."""

    def forward(self, x: Tensor) -> Tensor:
        """The map Phi of normalised patches."""
        if not self.training:
            for layer in self:
                x = layer(x)
            return x
        from matchkernel.training.convolution_kernels import fits  # needs triton, as the other two
        from matchkernel.training.first_layer import FirstLayer
        from matchkernel.training.later_layers import LaterLayer

        x = x.to(torch.bfloat16).contiguous()
        for number in range(0, len(self), 3):
            convolution, norm = self[number], self[number + 1]
            assert isinstance(convolution, nn.Conv2d)
            assert isinstance(norm, GroupedBatchNorm2d)
            weight = convolution.weight
            if number == 0:
                x, mean, variance = FirstLayer.apply(x, weight, norm.groups, norm.eps)  # type: ignore[no-untyped-call]
            elif fits(*weight.shape[:2]):
                given = x, weight, convolution.stride[0], norm.groups, norm.eps
                x, mean, variance = LaterLayer.apply(*given)  # type: ignore[no-untyped-call]
            else:
                x = self[number + 2](norm(convolution(x)))
                continue
            norm.track(mean, variance, x.numel() // (norm.groups * len(weight)))
        return x


class _Grouped(nn.modules.batchnorm._BatchNorm):
    """BatchNorm of `groups` equal parts of the batch, each with its own statistics, in one pass.

    The result is that of separate forward passes of anchors and positives; the running statistics are updated once for
    each part, in order. In eval mode it is plain BatchNorm.
    """

    groups: int = 1

    def forward(self, x: Tensor) -> Tensor:
        """Normalise x (B, C, ...)."""
        if not self.training:
            return super().forward(x)
        if torch.compiler.is_compiling():
            return self._by_formula(x)
        assert self.momentum is not None
        parts = x.chunk(self.groups)
        self._count()
        means, variances = self.running_mean, self.running_var
        return torch.cat(
            [nnf.batch_norm(p, means, variances, None, None, True, self.momentum, self.eps) for p in parts]
        )

    def _by_formula(self, x: Tensor) -> Tensor:
        """Written out, so that the compiler can fuse it with its neighbours."""
        values = widened(x.unflatten(0, (self.groups, -1)))  # (groups, B / groups, C, ...)
        dims = [1, *range(3, values.ndim)]
        variance, mean = torch.var_mean(values, dims, correction=0, keepdim=True)
        count = values.numel() // (self.groups * values.shape[2])
        self.track(mean.flatten(1), variance.flatten(1), count)
        normalized = (values - mean) * torch.rsqrt(variance + self.eps)
        return normalized.to(x.dtype).flatten(0, 1)

    @torch.no_grad()
    def track(self, means: Tensor, variances: Tensor, count: int) -> None:
        """Move the running statistics towards those of each part (groups, C) in turn; variances become unbiased."""
        assert self.momentum is not None
        assert self.running_mean is not None
        assert self.running_var is not None
        self._count()
        for mean, variance in zip(means, variances, strict=True):
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_((variance * (count / (count - 1))).to(self.running_var.dtype), self.momentum)

    def _count(self) -> None:
        assert self.num_batches_tracked is not None
        self.num_batches_tracked.add_(self.groups)


class GroupedBatchNorm1d(_Grouped, nn.BatchNorm1d):
    """See _Grouped: (B, C)."""


class GroupedBatchNorm2d(_Grouped, nn.BatchNorm2d):
    """See _Grouped: (B, C, H, W)."""


def group_statistics(model: nn.Module, groups: int) -> None:
    """Give every BatchNorm of a model grouped statistics, in place; its tensors and their names do not change."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, (nn.BatchNorm1d, nn.BatchNorm2d)):
                kind = GroupedBatchNorm1d if isinstance(child, nn.BatchNorm1d) else GroupedBatchNorm2d
                grouped = kind(child.num_features, child.eps, child.momentum, affine=False)
                for buffer in ("running_mean", "running_var", "num_batches_tracked"):
                    setattr(grouped, buffer, getattr(child, buffer))
                grouped.groups = groups
                setattr(parent, name, grouped.train(child.training))
