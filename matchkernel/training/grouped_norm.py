"""BatchNorm of parts of a batch, each with its own statistics: anchors and positives in one pass."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.model.precision import widened


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
