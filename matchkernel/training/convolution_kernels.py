"""3 x 3 convolutions of few channels on a GPU, each with what BatchNorm needs from the same pass over memory.

Weights are (9 C, D): taps row by row, input channels, output channels. Maps are channels last in memory.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from matchkernel.training.first_layer import CHANNELS, WIDTH, taps

SMALLEST, LARGEST = 16, 128  # channels that the kernels take: powers of two
NARROW = 32  # channels up to which libraries compute a weight's gradient slowly
BLOCK, STEP = 128, 64  # pixels of a program; channels multiplied at a time
PAIRS, PROGRAMS = 64, 132  # pairs of columns at a time, and programs, of a weight's gradient


def fits(channels: int) -> bool:
    """Whether the kernels take maps of so many channels."""
    return SMALLEST <= channels <= LARGEST and channels & (channels - 1) == 0


@triton.jit
def _convolved(  # type: ignore[no-untyped-def]
    x,
    w,
    group,
    pixel,
    count,
    N: tl.constexpr,
    n: tl.constexpr,
    STRIDE: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """(BLOCK, D) outputs at pixels of a group."""
    exists = pixel < count
    row, column = (pixel // n) % n * STRIDE, (pixel % n) * STRIDE
    k, d = tl.arange(0, STEP)[:, None], tl.arange(0, D)[None, :]
    patch = tl.program_id(0) * BLOCK // (n * n)  # the first one, from which offsets fit 32 bits
    x += (group * (count // (n * n)) + patch).to(tl.int64) * (N * N * C)
    corner = (((pixel // (n * n) - patch) * N + row - 1) * N + column - 1) * C
    total = tl.zeros((BLOCK, D), tl.float32)
    parts: tl.constexpr = C // STEP
    for t in tl.range(0, 9 * parts, num_stages=3):
        tap, part = t // parts, t % parts
        dy, dx = tap // 3, tap % 3
        inside = exists & (row + dy >= 1) & (row + dy <= N) & (column + dx >= 1) & (column + dx <= N)
        place = (corner + (dy * N + dx) * C + part * STEP)[:, None] + tl.arange(0, STEP)[None, :]
        a = tl.load(x + place, mask=inside[:, None], other=0.0)
        total = tl.dot(a, tl.load(w + (t * STEP + k) * D + d), total)
    return total


@triton.jit
def _convolution_kernel(  # type: ignore[no-untyped-def]
    x,
    w,
    y,
    sums,
    count,
    N: tl.constexpr,
    n: tl.constexpr,
    STRIDE: tl.constexpr,
    C: tl.constexpr,
    D: tl.constexpr,
    STEP: tl.constexpr,
    BLOCK: tl.constexpr,
):
    group, tile = tl.program_id(1), tl.program_id(0)
    r, d = tl.arange(0, BLOCK), tl.arange(0, D)
    total = _convolved(x, w, group, tile * BLOCK + r, count, N, n, STRIDE, C, D, STEP, BLOCK)
    rounded = total.to(y.dtype.element_ty)
    y += (group.to(tl.int64) * count + tile * BLOCK) * D
    tl.store(y + r[:, None] * D + d[None, :], rounded, mask=(tile * BLOCK + r < count)[:, None])
    values = rounded.to(tl.float32)
    sums += (group * tl.num_programs(0) + tile) * (2 * D)
    tl.store(sums + d, tl.sum(values, 0))
    tl.store(sums + D + d, tl.sum(values * values, 0))


@triton.jit
def _first_gradient_kernel(  # type: ignore[no-untyped-def]
    dy, w, x, first, scale, shift, out, count, N: tl.constexpr, D: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr
):
    """dz (x) t of the first layer, dz the gradient before its ReLU, which is not written to memory."""
    group, tile = tl.program_id(1), tl.program_id(0)
    pixel, c, k = tile * BLOCK + tl.arange(0, BLOCK), tl.arange(0, 32), tl.arange(0, 16)
    da = _convolved(dy, w, group, pixel, count, N, N, 1, D, 32, STEP, BLOCK)
    t = taps(x + group.to(tl.int64) * count, pixel, count, N)
    s, b = tl.load(scale + group * 32 + c)[None, :], tl.load(shift + group * 32 + c)[None, :]
    z = tl.dot(t, tl.load(first + c[None, :] * 16 + k[:, None])) * s + b
    dz = tl.where(z > 0, da, 0.0).to(t.dtype)
    place = (group * tl.num_programs(0) + tile) * 512
    tl.store(out + place + c[:, None] * 16 + k[None, :], tl.dot(tl.trans(dz), t))


@triton.jit
def _weight_kernel(  # type: ignore[no-untyped-def]
    x, gradient, out, count, tiles, N: tl.constexpr, C: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr
):
    """Products of four input columns, one row above, beside and below, with two columns of the output's gradient."""
    k, d = tl.arange(0, 4 * C), tl.arange(0, 2 * D)
    above = tl.zeros((4 * C, 2 * D), tl.float32)
    beside = tl.zeros((4 * C, 2 * D), tl.float32)
    below = tl.zeros((4 * C, 2 * D), tl.float32)
    for turn in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=3):
        pair = (tiles - 1 - turn) * PAIRS + tl.arange(0, PAIRS)  # from the end, which was written last
        exists = (pair < count)[:, None]
        row = (pair // (N // 2) % N)[:, None]
        column = (pair % (N // 2) * 2 - 1)[:, None] + (k // C)[None, :]
        inside = exists & (column >= 0) & (column < N)
        first = pair.to(tl.int64)[:, None]
        dy = tl.load(gradient + first * (2 * D) + d[None, :], mask=exists, other=0.0)
        place = x + first * (2 * C) - C + k[None, :]
        above = tl.dot(tl.trans(tl.load(place - N * C, mask=inside & (row >= 1), other=0.0)), dy, above)
        beside = tl.dot(tl.trans(tl.load(place, mask=inside, other=0.0)), dy, beside)
        below = tl.dot(tl.trans(tl.load(place + N * C, mask=inside & (row < N - 1), other=0.0)), dy, below)
    size: tl.constexpr = 8 * C * D
    out += tl.program_id(0) * 3 * size + k[:, None] * (2 * D) + d[None, :]
    tl.store(out, above)
    tl.store(out + size, beside)
    tl.store(out + 2 * size, below)


@torch.library.custom_op("matchkernel::convolution_with_sums", mutates_args=())
def convolution_with_sums(x: Tensor, w: Tensor, stride: int, groups: int) -> tuple[Tensor, Tensor]:
    """The convolution of x (B, C, N, N), padded by 1, (B, D, n, n), and sums of it and of its squares by group.

    The sums are partial sums (groups, programs, 2, D).
    """
    x = x.contiguous(memory_format=torch.channels_last)
    (B, C, N, _), D, n = x.shape, w.shape[1], (x.shape[-1] - 1) // stride + 1
    count = B // groups * n * n
    tiles = triton.cdiv(count, BLOCK)
    y, sums = x.new_empty(B, n, n, D), x.new_empty(groups, tiles, 2, D, dtype=torch.float32)
    _convolution_kernel[tiles, groups](x, w, y, sums, count, N, n, stride, C, D, min(STEP, C), BLOCK)
    return y.permute(0, 3, 1, 2), sums


@torch.library.custom_op("matchkernel::first_gradient", mutates_args=())
def first_gradient(dy: Tensor, w: Tensor, x: Tensor, first: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Sums of dz (x) t of the first layer (see first_layer) by group: partial sums (groups, programs, 32, 16).

    Args:
        dy: (B, D, N, N) gradient of the second convolution's output.
        w: (9 D, 32) its weight, turned by 180 degrees, output channels before input channels.
        x: (B, 1, N, N) patches.
        first: (32, 16) weight of the first convolution.
        scale: (groups, 32) of the first BatchNorm.
        shift: (groups, 32).
    """
    dy = dy.contiguous(memory_format=torch.channels_last)
    D, N, groups = dy.shape[1], dy.shape[-1], len(scale)
    count = x.numel() // groups
    out = x.new_empty(groups, triton.cdiv(count, BLOCK), CHANNELS, WIDTH, dtype=torch.float32)
    scale, shift = scale.contiguous(), shift.contiguous()
    _first_gradient_kernel[out.shape[1], groups](dy, w, x, first, scale, shift, out, count, N, D, min(STEP, D), BLOCK)
    return out


@torch.library.custom_op("matchkernel::weight_products", mutates_args=())
def weight_products(x: Tensor, gradient: Tensor) -> Tensor:
    """Sums of pixel products of x (B, C, N, N), N even, and (B, D, N, N): partial sums (programs, 3, 4, C, 2, D).

    By row of the weight, input column from -1 to 2 and output column 0 or 1 of a pair.
    """
    x, gradient = (t.contiguous(memory_format=torch.channels_last) for t in (x, gradient))
    (C, N), D, count = x.shape[1:3], gradient.shape[1], x.numel() // (2 * x.shape[1])
    out = x.new_empty(_products_shape(x, gradient), dtype=torch.float32)
    tiles = triton.cdiv(count, PAIRS)
    _weight_kernel[(len(out),)](x, gradient, out, count, tiles, N, C, D, PAIRS, num_warps=8)
    return out


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """(D, C, 3, 3) in float32: of the weight of a convolution of stride 1 of x."""
    products = weight_products(x, gradient).sum(0)  # input column q is tap q of output column 0, tap q - 1 of column 1
    return (products[:, :3, :, 0] + products[:, 1:, :, 1]).permute(3, 2, 0, 1)


def _products_shape(x: Tensor, gradient: Tensor) -> tuple[int, ...]:
    programs = min(PROGRAMS, triton.cdiv(x.numel() // (2 * x.shape[1]), PAIRS))
    return programs, 3, 4, x.shape[1], 2, gradient.shape[1]


@convolution_with_sums.register_fake
def _(x: Tensor, w: Tensor, stride: int, groups: int) -> tuple[Tensor, Tensor]:
    B, n, D = x.shape[0], (x.shape[-1] - 1) // stride + 1, w.shape[1]
    tiles = triton.cdiv(B // groups * n * n, BLOCK)
    return x.new_empty(B, n, n, D).permute(0, 3, 1, 2), x.new_empty(groups, tiles, 2, D, dtype=torch.float32)


@first_gradient.register_fake
def _(dy: Tensor, w: Tensor, x: Tensor, first: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    groups = len(scale)
    return x.new_empty(groups, triton.cdiv(x.numel() // groups, BLOCK), CHANNELS, WIDTH, dtype=torch.float32)


@weight_products.register_fake
def _(x: Tensor, gradient: Tensor) -> Tensor:
    return x.new_empty(_products_shape(x, gradient), dtype=torch.float32)
