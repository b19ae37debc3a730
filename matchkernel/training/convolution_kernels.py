"""Convolutions of few channels on a GPU: 3 x 3, padded by 1, with the sums that BatchNorm needs from the same pass.

A library's convolution would be followed by a pass over its output for the mean and the variance. For 32 channels it is
also slow by itself: the gradients of such a layer are computed here too.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

SMALLEST, LARGEST = 16, 128  # channels that the kernels take: powers of two
NARROW = 32  # channels up to which libraries are slower in the backward pass
BLOCK, STEP = 128, 64  # output pixels of a program; channels multiplied at a time
PAIRS, PROGRAMS = 64, 132  # pairs of columns at a time, and programs, of a weight's gradient


def fits(C: int, D: int) -> bool:
    """Whether the kernels take these numbers of channels."""
    return all(SMALLEST <= size <= LARGEST and size & (size - 1) == 0 for size in (C, D))


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
    HAS_SUMS: tl.constexpr,
):
    group, tile = tl.program_id(1), tl.program_id(0)
    pixel = tile * BLOCK + tl.arange(0, BLOCK)  # of the group's output
    exists = pixel < count
    row, column = (pixel // n) % n * STRIDE, (pixel % n) * STRIDE
    k, d = tl.arange(0, STEP), tl.arange(0, D)
    patch = tile * BLOCK // (n * n)  # the first one, from which offsets fit 32 bits
    x += (group * (count // (n * n)) + patch).to(tl.int64) * (N * N * C)
    corner = (((pixel // (n * n) - patch) * N + row - 1) * N + column - 1) * C
    total = tl.zeros((BLOCK, D), tl.float32)
    parts: tl.constexpr = C // STEP
    for t in tl.range(0, 9 * parts, num_stages=3):
        tap, part = t // parts, t % parts
        dy, dx = tap // 3, tap % 3
        inside = exists & (row + dy >= 1) & (row + dy <= N) & (column + dx >= 1) & (column + dx <= N)
        place = (corner + (dy * N + dx) * C + part * STEP)[:, None] + k[None, :]
        a = tl.load(x + place, mask=inside[:, None], other=0.0)
        total = tl.dot(a, tl.load(w + (t * STEP + k)[:, None] * D + d[None, :]), total)
    rounded = total.to(y.dtype.element_ty)
    y += (group.to(tl.int64) * count + tile * BLOCK) * D
    tl.store(y + tl.arange(0, BLOCK)[:, None] * D + d[None, :], rounded, mask=exists[:, None])
    if HAS_SUMS:
        values = rounded.to(tl.float32)
        sums += (group * tl.num_programs(0) + tile) * (2 * D)
        tl.store(sums + d, tl.sum(values, 0))
        tl.store(sums + D + d, tl.sum(values * values, 0))


@triton.jit
def _weight_kernel(  # type: ignore[no-untyped-def]
    x, gradient, out, count, tiles, N: tl.constexpr, C: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr
):
    """Products of four input columns, one row above, beside and below, with two columns of the output's gradient."""
    k, d = tl.arange(0, 4 * C), tl.arange(0, 2 * D)
    above, beside, below = (
        tl.zeros((4 * C, 2 * D), tl.float32),
        tl.zeros((4 * C, 2 * D), tl.float32),
        tl.zeros((4 * C, 2 * D), tl.float32),
    )
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), num_stages=3):
        pair = tile * PAIRS + tl.arange(0, PAIRS)
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


@torch.library.custom_op("matchkernel::convolution", mutates_args=())
def convolution(x: Tensor, w: Tensor, stride: int) -> Tensor:
    """x (B, C, N, N) and w (9 C, D), taps slow, of one type -> (B, D, n, n), channels last."""
    return _convolution(x, w, stride, 1, has_sums=False)[0]


@torch.library.custom_op("matchkernel::convolution_with_sums", mutates_args=())
def convolution_with_sums(x: Tensor, w: Tensor, stride: int, groups: int) -> tuple[Tensor, Tensor]:
    """As `convolution`; also sums of the output and of its squares: partial sums (groups, programs, 2, D)."""
    return _convolution(x, w, stride, groups, has_sums=True)


@torch.library.custom_op("matchkernel::weight_products", mutates_args=())
def weight_products(x: Tensor, gradient: Tensor) -> Tensor:
    """Sums of pixel products of x (B, C, N, N), N even, and (B, D, N, N): partial sums (programs, 3, 4, C, 2, D).

    By row of the weight, input column from -1 to 2 and output column 0 or 1 of a pair.
    """
    x, gradient = (t.contiguous(memory_format=torch.channels_last) for t in (x, gradient))
    count = x.numel() // (2 * x.shape[1])
    out = x.new_empty(_products_shape(x, gradient), dtype=torch.float32)
    tiles, C, D = triton.cdiv(count, PAIRS), x.shape[1], gradient.shape[1]
    _weight_kernel[(len(out),)](x, gradient, out, count, tiles, x.shape[-1], C, D, PAIRS, num_warps=8)
    return out


def weight_gradient(x: Tensor, gradient: Tensor) -> Tensor:
    """(D, C, 3, 3) in float32: of the weight of a convolution of stride 1 of x."""
    products = weight_products(x, gradient).sum(0)  # input column q is tap q of output column 0, tap q - 1 of column 1
    return (products[:, :3, :, 0] + products[:, 1:, :, 1]).permute(3, 2, 0, 1)


def _convolution(x: Tensor, w: Tensor, stride: int, groups: int, *, has_sums: bool) -> tuple[Tensor, Tensor]:
    x = x.contiguous(memory_format=torch.channels_last)
    (B, C, N, _), D = x.shape, w.shape[1]
    n = (N - 1) // stride + 1
    count = B // groups * n * n
    tiles = triton.cdiv(count, BLOCK)
    y = x.new_empty(B, n, n, D)
    sums = x.new_empty((groups, tiles, 2, D) if has_sums else (1,), dtype=torch.float32)
    _convolution_kernel[tiles, groups](x, w, y, sums, count, N, n, stride, C, D, min(STEP, C), BLOCK, has_sums)
    return y.permute(0, 3, 1, 2), sums


def _products_shape(x: Tensor, gradient: Tensor) -> tuple[int, ...]:
    programs = min(PROGRAMS, triton.cdiv(x.numel() // (2 * x.shape[1]), PAIRS))
    return programs, 3, 4, x.shape[1], 2, gradient.shape[1]


def _output_like(x: Tensor, w: Tensor, stride: int) -> Tensor:
    n = (x.shape[-1] - 1) // stride + 1
    return x.new_empty(x.shape[0], n, n, w.shape[1]).permute(0, 3, 1, 2)


@convolution.register_fake
def _(x: Tensor, w: Tensor, stride: int) -> Tensor:
    return _output_like(x, w, stride)


@convolution_with_sums.register_fake
def _(x: Tensor, w: Tensor, stride: int, groups: int) -> tuple[Tensor, Tensor]:
    y = _output_like(x, w, stride)
    tiles = triton.cdiv(y.numel() // (groups * w.shape[1]), BLOCK)
    return y, x.new_empty(groups, tiles, 2, w.shape[1], dtype=torch.float32)


@weight_products.register_fake
def _(x: Tensor, gradient: Tensor) -> Tensor:
    return x.new_empty(_products_shape(x, gradient), dtype=torch.float32)
