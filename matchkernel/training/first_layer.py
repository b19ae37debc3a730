"""Convolution 1, its BatchNorm and ReLU in one pass over memory, on a GPU.

The first convolution has one input channel: nine multiplications per output. Libraries run it slowly, and the
BatchNorm after it reads and writes 32 channels several times. But the mean and variance of a linear function of nine
pixels follow from the mean and covariance of the pixels, which are 9 + 81 numbers. So there is one small kernel for
the moments of the nine "taps" t, one that writes relu(scale (w . t) + shift), and in the backward pass one that reads
the gradient once and sums dz (x) t, from which the gradient of w follows.

Every tap vector has a constant 1 as its tenth entry, so that the products include sums and counts.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

CHANNELS, TAPS, ONE, WIDTH = 32, 9, 9, 16  # of convolution 1; taps of 3 x 3; place of the constant; padded taps
PROGRAMS, BLOCK = 264, 256  # two programs for each multiprocessor of an H100 or H200; pixels at a time


@triton.jit
def _taps(x, pixel, count, N: tl.constexpr):  # type: ignore[no-untyped-def]
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
        t = _taps(x + group * count, tile * BLOCK + tl.arange(0, BLOCK), count, N)
        total += tl.dot(tl.trans(t), t)
    place = (group * tl.num_programs(0) + tl.program_id(0)) * 256
    tl.store(out + place + k[:, None] * 16 + k[None, :], total)


@triton.jit
def _apply_kernel(x, w, scale, shift, out, count, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(1)
    c, k = tl.arange(0, 32), tl.arange(0, 16)
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    t = _taps(x + group * count, pixel, count, N)
    weight = tl.load(w + c[None, :] * 16 + k[:, None])
    y = tl.dot(t, weight) * tl.load(scale + group * 32 + c)[None, :] + tl.load(shift + group * 32 + c)[None, :]
    place = (group * count + pixel)[:, None].to(tl.int64) * 32 + c[None, :]
    tl.store(out + place, tl.maximum(y, 0.0).to(out.dtype.element_ty), mask=(pixel < count)[:, None])


@triton.jit
def _gradient_kernel(x, w, scale, shift, gradient, out, count, tiles, N: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    group = tl.program_id(1)
    c, k = tl.arange(0, 32), tl.arange(0, 16)
    weight = tl.load(w + c[None, :] * 16 + k[:, None])
    s, b = tl.load(scale + group * 32 + c)[None, :], tl.load(shift + group * 32 + c)[None, :]
    total = tl.zeros((32, 16), tl.float32)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        pixel = tile * BLOCK + tl.arange(0, BLOCK)
        t = _taps(x + group * count, pixel, count, N)
        place = (group * count + pixel)[:, None].to(tl.int64) * 32 + c[None, :]
        dy = tl.load(gradient + place, mask=(pixel < count)[:, None], other=0.0)
        dz = tl.where(tl.dot(t, weight) * s + b > 0, dy, 0.0).to(x.dtype.element_ty)
        total += tl.dot(tl.trans(dz), t)
    place = (group * tl.num_programs(0) + tl.program_id(0)) * 512
    tl.store(out + place + c[:, None] * 16 + k[None, :], total)


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
    scale, shift = scale.contiguous(), shift.contiguous()
    _apply_kernel[triton.cdiv(count, BLOCK), groups](x, w, scale, shift, out, count, N, BLOCK)
    return out.permute(0, 3, 1, 2)


@torch.library.custom_op("matchkernel::first_layer_gradient", mutates_args=())
def first_layer_gradient(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, gradient: Tensor) -> Tensor:
    """Sums of dz (x) t, dz the gradient before ReLU: partial sums (groups, programs, 32, 16)."""
    groups = scale.shape[0]
    count = x.numel() // groups
    tiles = triton.cdiv(count, BLOCK)
    out = x.new_empty(groups, min(PROGRAMS, tiles), CHANNELS, WIDTH, dtype=torch.float32)
    scale, shift = scale.contiguous(), shift.contiguous()
    gradient = gradient.contiguous(memory_format=torch.channels_last)
    _gradient_kernel[out.shape[1], groups](x, w, scale, shift, gradient, out, count, tiles, x.shape[-1], BLOCK)
    return out


@tap_moments.register_fake
def _(x: Tensor, groups: int) -> Tensor:
    programs = min(PROGRAMS, triton.cdiv(x.numel() // groups, BLOCK))
    return x.new_empty(groups, programs, WIDTH, WIDTH, dtype=torch.float32)


@first_layer_apply.register_fake
def _(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    N = x.shape[-1]
    return x.new_empty(x.shape[0], N, N, CHANNELS).permute(0, 3, 1, 2)


@first_layer_gradient.register_fake
def _(x: Tensor, w: Tensor, scale: Tensor, shift: Tensor, gradient: Tensor) -> Tensor:
    programs = min(PROGRAMS, triton.cdiv(x.numel() // scale.shape[0], BLOCK))
    return x.new_empty(scale.shape[0], programs, CHANNELS, WIDTH, dtype=torch.float32)


class FirstLayer(torch.autograd.Function):
    """relu(batch_norm(conv(x, weight))) by group, and the statistics; see the module's docstring."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor, groups: int, eps: float) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[no-untyped-def]
        """x (B, 1, N, N) contiguous, weight (32, 1, 3, 3) -> (B, 32, N, N), mean and variance (groups, 32)."""
        count = x.numel() // groups
        moments = tap_moments(x, groups).sum(1) / count
        w16 = weight.flatten(1).to(x.dtype)  # as autocast rounds it
        w = w16.float()
        first, second = moments[:, ONE, :TAPS], moments[:, :TAPS, :TAPS]
        mean = first @ w.t()
        variance = (torch.einsum("ck,gkl,cl->gc", w, second, w) - mean.square()).clamp_min(0)
        scale = torch.rsqrt(variance + eps)
        shift = -mean * scale
        padded = torch.nn.functional.pad(w16, (0, WIDTH - TAPS))
        ctx.save_for_backward(x, padded, scale, shift, mean, moments)
        ctx.mark_non_differentiable(mean, variance)
        return first_layer_apply(x, padded, scale, shift), mean, variance

    @staticmethod
    def backward(ctx, gradient: Tensor, *_: Tensor) -> tuple[None, Tensor, None, None]:  # type: ignore[no-untyped-def]
        """dw = sum scale (dz - S1 / n - y S2 / n) t, with y = scale (w . t) + shift, S1 = sum dz, S2 = sum dz y."""
        x, padded, scale, shift, mean, moments = ctx.saved_tensors
        count = x.numel() // len(scale)
        w = padded[:, :TAPS].float()
        sums = first_layer_gradient(x, padded, scale, shift, gradient).sum(1) / count
        dz_t, s1 = sums[:, :, :TAPS], sums[:, :, ONE]
        first, second = moments[:, ONE, :TAPS], moments[:, :TAPS, :TAPS]
        s2 = scale * ((w * dz_t).sum(-1) - mean * s1)
        y_t = scale[..., None] * (w @ second - mean[..., None] * first[:, None])
        dw = scale[..., None] * (dz_t - s1[..., None] * first[:, None] - s2[..., None] * y_t)
        return None, (dw.sum(0) * count).view(-1, 1, 3, 3), None, None
