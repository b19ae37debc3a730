"""Convolution 1, its BatchNorm and ReLU in one pass over memory, on a GPU.

The first convolution has one input channel: nine multiplications per output. Libraries run it slowly, and the
BatchNorm after it reads and writes 32 channels several times. But the mean and variance of a linear function of nine
pixels follow from the mean and covariance of the pixels, which are 9 + 81 numbers. So there is one small kernel for
the moments of the nine "taps" t, and one that writes relu(scale (w . t) + shift). The gradient of w follows from sums
of dz (x) t, which are computed with the gradient of the second convolution (see convolution_kernels).

Every tap vector has a constant 1 as its tenth entry, so that the products include sums and counts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS, TAPS, ONE, WIDTH = 32, 9, 9, 16  # of convolution 1; taps of 3 x 3; place of the constant; padded taps
PROGRAMS, BLOCK = 264, 256  # two programs for each multiprocessor of an H100 or H200; pixels at a time


@triton.jit
def taps(x, pixel, count, N: tl.constexpr):  # type: ignore[no-untyped-def]
    """(BLOCK, 16) neighbours of pixels, and 1; zeros beyond the patch and beyond `count`."""
    k = tl.arange(0, 16)
    dy, dx = k // 3 - 1, k % 3 - 1
    row, column = (pixel // N) % N, pixel % N
    y, z = row[:, None] + dy[None, :], column[:, None] + dx[None, :]
    exists = (pixel < count)[:, None]
    inside = exists & (k < 9)[None, :] & (y >= 0) & (y < N) & (z >= 0) & (z < N)
    values = tl.load(x + pixel[:, None] + (dy * N + dx)[None, :], mask=inside, other=0.0)
    return tl.where(exists & (k == 9)[None, :], 1.0, values).to(x.dtype.element_ty)


@triton.jit
def _moments_kernel(x, out, count, tiles, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(1)
    k = tl.arange(0, 16)
    total = tl.zeros((16, 16), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        t = taps(x + group * count, tile * BLOCK + tl.arange(0, BLOCK), count, N)
        total += tl.dot(tl.trans(t), t)
    place = (group * tl.num_programs(0) + tl.program_id(0)) * 256
    tl.store(out + place + k[:, None] * 16 + k[None, :], total)


@triton.jit
def _apply_kernel(x, w, scale, shift, out, count, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(1)
    c, k = tl.arange(0, 32), tl.arange(0, 16)
    # From the end: the convolution after it begins with what was written last, which may be in the cache.
    pixel = (tl.num_programs(0) - 1 - tl.program_id(0)) * BLOCK + tl.arange(0, BLOCK)
    t = taps(x + group * count, pixel, count, N)
    weight = tl.load(w + c[None, :] * 16 + k[:, None])
    y = tl.dot(t, weight) * tl.load(scale + group * 32 + c)[None, :] + tl.load(shift + group * 32 + c)[None, :]
    place = (group * count + pixel)[:, None].to(tl.int64) * 32 + c[None, :]
    a = tl.maximum(y, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(out + place, a.to(out.dtype.element_ty), mask=(pixel < count)[:, None])


@torch.library.custom_op("matchkernel::tap_moments", mutates_args=())
def tap_moments(x: Tensor, groups: int) -> Tensor:
    """Sums of t (x) t over each group of patches (B, 1, N, N): partial sums (groups, programs, 16, 16)."""
    count = x.numel() // groups
    tiles = triton.cdiv(count, BLOCK)
    out = x.new_empty(groups, min(PROGRAMS, tiles), WIDTH, WIDTH, dtype=torch.float32)
    _moments_kernel[out.shape[1], groups](x, out, count, tiles, x.shape[-1], BLOCK)
    return out


@torch.library.custom_op("matchkernel::first_layer_apply", mutates_args=())
def first_layer_apply(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """relu(scale (w . t) + shift): (B, 1, N, N) -> (B, 32, N, N) in channels-last layout.

    w is (32, 16) of the type of x, scale and shift (groups, 32) float32.
    """
    groups, N = scale.shape[0], x.shape[-1]
    count = x.numel() // groups
    out = x.new_empty(x.shape[0], N, N, CHANNELS)
    _apply_kernel[triton.cdiv(count, BLOCK), groups](x, w, scale.contiguous(), shift.contiguous(), out, count, N, BLOCK)
    return out.permute(0, 3, 1, 2)


@tap_moments.register_fake
def _(x: Tensor, groups: int) -> Tensor:
    programs = min(PROGRAMS, triton.cdiv(x.numel() // groups, BLOCK))
    return x.new_empty(groups, programs, WIDTH, WIDTH, dtype=torch.float32)


@first_layer_apply.register_fake
def _(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    N = x.shape[-1]
    return x.new_empty(x.shape[0], N, N, CHANNELS).permute(0, 3, 1, 2)


def mean_and_variance(moments: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    """Of w . t, (groups, 32) each, from the mean of t (x) t (groups, 16, 16) and w (32, 9)."""
    w, moments = w.double(), moments.double()  # which autocast does not round
    first, second = moments[:, ONE, :TAPS], moments[:, :TAPS, :TAPS]
    mean = first @ w.t()
    variance = torch.einsum("ck,gkl,cl->gc", w, second, w) - mean.square()
    return mean.float(), variance.clamp_min(0).float()


def weight_gradient(products: Tensor, moments: Tensor, w: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """Mean of scale (dz - S1 - z S2) t, with z = scale (w . t - mean), S1 = mean dz, S2 = mean dz z: (groups, 32, 9).

    Args:
        products: (groups, 32, 16) mean of dz (x) t, dz the gradient before ReLU.
        moments: (groups, 16, 16) mean of t (x) t.
        w: (32, 9).
        mean: (groups, 32) of w . t.
        scale: (groups, 32).
    """
    dz_t, s1 = products[:, :, :TAPS], products[:, :, ONE]
    first, second = moments[:, ONE, :TAPS], moments[:, :TAPS, :TAPS]
    s2 = scale * ((w * dz_t).sum(-1) - mean * s1)
    z_t = scale[..., None] * (w @ second - mean[..., None] * first[:, None])
    return scale[..., None] * (dz_t - s1[..., None] * first[:, None] - s2[..., None] * z_t)
