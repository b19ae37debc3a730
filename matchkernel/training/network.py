"""A descriptor in training: BatchNorm statistics by group, layouts and kernels for the device."""

import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.model.precision import has_bfloat16, widened
from matchkernel.runtime.config import DescriptorConfig


def prepare_for_training(model: Descriptor, *, groups: int, fuse: bool = False) -> None:
    """Prepare a model for training, in place; the names and shapes of its tensors do not change.

    Args:
        model: the descriptor, on its device.
        groups: number of parts of a batch with separate BatchNorm statistics: 2 for anchors and positives.
        fuse: run convolutions with their BatchNorms and ReLUs, and encodings, by kernels of our own (GPU, bfloat16).
    """
    group_statistics(model, groups)
    if fuse:
        from matchkernel.training.fused_layers import FusedEncoding, FusedLayers  # needs triton

        for backbone in model.backbones:
            assert isinstance(backbone, Backbone)
            backbone.layers = FusedLayers(*backbone.layers)
        for k, aggregation in enumerate(model.aggregations):
            if isinstance(aggregation, SpatialEncoding) and not aggregation.unit_norm:
                model.aggregations[k] = FusedEncoding(aggregation)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train()


def is_half_precision(precision: str, device: torch.device) -> bool:
    """Whether a run computes in bfloat16: if requested or on a GPU, provided that the device supports it."""
    if precision == "bf16" and not has_bfloat16(device):
        warnings.warn("this CPU has no bfloat16 arithmetic: training in float32", RuntimeWarning, stacklevel=2)
        return False
    return precision == "bf16" or (precision == "auto" and device.type == "cuda")


def can_fuse(config: DescriptorConfig, device: torch.device, *, is_half: bool) -> bool:
    """Whether the fused layers can run here: on a GPU, in bfloat16, for convolutions like the paper's."""
    if device.type != "cuda" or not is_half or importlib.util.find_spec("triton") is None:
        return False
    from matchkernel.training.fused_layers import have_kernels

    return have_kernels(config)


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
        self.get_buffer("num_batches_tracked").add_(self.groups)
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
        track([self], [mean.flatten(1)], [variance.flatten(1)], [count])
        normalized = (values - mean) * torch.rsqrt(variance + self.eps)
        return normalized.to(x.dtype).flatten(0, 1)


@torch.no_grad()
def track(
    norms: Sequence[_Grouped], means: Sequence[Tensor], variances: Sequence[Tensor], counts: Sequence[int]
) -> None:
    """Move the running statistics of every norm towards those of each part (groups, C) in turn.

    Variances, of so many numbers each, become unbiased.
    """
    momentum, groups = norms[0].momentum, norms[0].groups
    assert momentum is not None
    running = [norm.get_buffer(name) for name in ("running_mean", "running_var") for norm in norms]
    unbiased = [variance * (n / (n - 1)) for variance, n in zip(variances, counts, strict=True)]
    for group in range(groups):
        found = [values[group] for values in (*means, *unbiased)]
        torch._foreach_lerp_(running, [new.to(old.dtype) for new, old in zip(found, running, strict=True)], momentum)
    torch._foreach_add_([norm.get_buffer("num_batches_tracked") for norm in norms], groups)


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
