"""ReLU of BatchNorm by groups, and its gradient, on a GPU: one pass over memory forward and two backward.

y (B, C, n, n) is normalised to z = scale y + shift, with scale and shift (groups, C) from the mean and variance of each
group. C is a power of two.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

PROGRAMS, BLOCK = 264, 4096  # two programs for each multiprocessor of an H100 or H200; numbers at a time


@triton.jit
def _apply_kernel(y, scale, shift, out, rows, C: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    group, first = tl.program_id(1), (tl.num_programs(0) - 1 - tl.program_id(0)) * ROWS  # from the end: see below
    c, r = tl.arange(0, C), tl.arange(0, ROWS)
    s, b = tl.load(scale + group * C + c)[None, :], tl.load(shift + group * C + c)[None, :]
    place = (group.to(tl.int64) * rows + first) * C + r[:, None] * C + c[None, :]
    exists = (first + r < rows)[:, None]
    z = tl.load(y + place, mask=exists, other=0.0).to(tl.float32) * s + b
    a = tl.maximum(z, 0.0, propagate_nan=tl.PropagateNan.ALL)  # a loss that is not finite has to be seen
    tl.store(out + place, a.to(out.dtype.element_ty), mask=exists)


@triton.jit
def _sums_kernel(gradient, y, scale, shift, out, rows, tiles, C: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(1)
    c, r = tl.arange(0, C), tl.arange(0, ROWS)
    s, b = tl.load(scale + group * C + c)[None, :], tl.load(shift + group * C + c)[None, :]
    plain, weighted = tl.zeros((ROWS, C), tl.float32), tl.zeros((ROWS, C), tl.float32)
    for turn in range(tl.program_id(0), tiles, tl.num_programs(0)):
        first = (tiles - 1 - turn) * ROWS  # from the end, which was written last and may be in the cache
        place = (group.to(tl.int64) * rows + first) * C + r[:, None] * C + c[None, :]
        exists = (first + r < rows)[:, None]
        z = tl.load(y + place, mask=exists, other=0.0).to(tl.float32) * s + b
        dz = tl.where(z > 0, tl.load(gradient + place, mask=exists, other=0.0).to(tl.float32), 0.0)
        plain += dz
        weighted += dz * z
    out += (group * tl.num_programs(0) + tl.program_id(0)) * (2 * C)
    tl.store(out + c, tl.sum(plain, 0))
    tl.store(out + C + c, tl.sum(weighted, 0))


@triton.jit
def _gradient_kernel(gradient, y, scale, shift, means, out, rows, C: tl.constexpr, ROWS: tl.constexpr):  # type: ignore[no-untyped-def]
    group, first = tl.program_id(1), tl.program_id(0) * ROWS
    c, r = tl.arange(0, C), tl.arange(0, ROWS)
    s, b = tl.load(scale + group * C + c)[None, :], tl.load(shift + group * C + c)[None, :]
    plain, weighted = tl.load(means + group * 2 * C + c)[None, :], tl.load(means + group * 2 * C + C + c)[None, :]
    place = (group.to(tl.int64) * rows + first) * C + r[:, None] * C + c[None, :]
    exists = (first + r < rows)[:, None]
    z = tl.load(y + place, mask=exists, other=0.0).to(tl.float32) * s + b
    dz = tl.where(z > 0, tl.load(gradient + place, mask=exists, other=0.0).to(tl.float32), 0.0)
    tl.store(out + place, (s * (dz - plain - z * weighted)).to(out.dtype.element_ty), mask=exists)


@torch.library.custom_op("matchkernel::norm_relu", mutates_args=())
def norm_relu(y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """relu(scale y + shift) of y (B, C, n, n), in its type and channels last."""
    y, scale, shift = y.contiguous(memory_format=torch.channels_last), scale.contiguous(), shift.contiguous()
    out, (rows, tiles, size) = torch.empty_like(y), _tiling(y, scale)
    _apply_kernel[tiles, len(scale)](y, scale, shift, out, rows, y.shape[1], size)
    return out


@torch.library.custom_op("matchkernel::norm_relu_sums", mutates_args=())
def norm_relu_sums(gradient: Tensor, y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Sums of dz and of dz z, dz the gradient before ReLU: partial sums (groups, programs, 2, C)."""
    gradient, y = (t.contiguous(memory_format=torch.channels_last) for t in (gradient, y))
    scale, shift = scale.contiguous(), shift.contiguous()
    rows, tiles, size = _tiling(y, scale)
    out = y.new_empty(len(scale), min(PROGRAMS, tiles), 2, y.shape[1], dtype=torch.float32)
    _sums_kernel[out.shape[1], len(scale)](gradient, y, scale, shift, out, rows, tiles, y.shape[1], size)
    return out


@torch.library.custom_op("matchkernel::norm_relu_gradient", mutates_args=())
def norm_relu_gradient(gradient: Tensor, y: Tensor, scale: Tensor, shift: Tensor, means: Tensor) -> Tensor:
    """scale (dz - m1 - z m2), the gradient of y, with the means (groups, 2, C) of dz and of dz z."""
    gradient, y = (t.contiguous(memory_format=torch.channels_last) for t in (gradient, y))
    scale, shift, means = scale.contiguous(), shift.contiguous(), means.contiguous()
    out, (rows, tiles, size) = torch.empty_like(y), _tiling(y, scale)
    _gradient_kernel[tiles, len(scale)](gradient, y, scale, shift, means, out, rows, y.shape[1], size)
    return out


def _tiling(y: Tensor, scale: Tensor) -> tuple[int, int, int]:
    """Pixels of a group, the blocks that they are computed in, and the pixels of a block."""
    rows, size = y.numel() // (y.shape[1] * len(scale)), max(1, BLOCK // y.shape[1])
    return rows, triton.cdiv(rows, size), size


@norm_relu.register_fake
def _(y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return torch.empty_like(y, memory_format=torch.channels_last)


@norm_relu_sums.register_fake
def _(gradient: Tensor, y: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    return y.new_empty(len(scale), min(PROGRAMS, _tiling(y, scale)[1]), 2, y.shape[1], dtype=torch.float32)


@norm_relu_gradient.register_fake
def _(gradient: Tensor, y: Tensor, scale: Tensor, shift: Tensor, means: Tensor) -> Tensor:
    return torch.empty_like(y, memory_format=torch.channels_last)
