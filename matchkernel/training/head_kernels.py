"""The encoding c vec(Phi^T F) of maps in bfloat16 and the product with M in training on a GPU, in float32.

A number of float32 is the sum of two of bfloat16, high and low, up to 2^-17 of it. So products of Phi, which has eight
bits, with both halves of F are those of float32, and run on the fast units. Phi is read once, as it lies in memory.

Products with M are computed in TF32, which rounds numbers to eleven bits: Phi has eight.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

POINTS_AT_A_TIME = 64
MOST_CODES = 64  # position values per channel, beyond which a block does not fit every GPU: s up to 3


@triton.jit
def _encode_kernel(  # type: ignore[no-untyped-def]
    phi, high, low, out, points, C: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, SOME: tl.constexpr
):
    patch = tl.program_id(0).to(tl.int64)
    c, k = tl.arange(0, C), tl.arange(0, WIDTH)
    total = tl.zeros((C, WIDTH), tl.float32)
    for first in range(0, points, SOME):
        p = first + tl.arange(0, SOME)
        place = phi + (patch * points + p[None, :]) * C + c[:, None]
        a = tl.load(place, mask=(p < points)[None, :], other=0.0)
        code = p[:, None] * WIDTH + k[None, :]
        total = tl.dot(a, tl.load(high + code, mask=(p < points)[:, None], other=0.0), total)
        total = tl.dot(a, tl.load(low + code, mask=(p < points)[:, None], other=0.0), total)
    tl.store(out + (patch * C + c[:, None]) * P + k[None, :], total, mask=(k < P)[None, :])


@triton.jit
def _gradient_kernel(  # type: ignore[no-untyped-def]
    gradient, high, low, out, points, C: tl.constexpr, P: tl.constexpr, WIDTH: tl.constexpr, SOME: tl.constexpr
):
    patch = tl.program_id(0).to(tl.int64)
    c, k = tl.arange(0, C), tl.arange(0, WIDTH)
    g = tl.load(gradient + (patch * C + c[None, :]) * P + k[:, None], mask=(k < P)[:, None], other=0.0)
    top = g.to(high.dtype.element_ty)
    rest = (g - top.to(tl.float32)).to(high.dtype.element_ty)
    for first in range(0, points, SOME):
        p = first + tl.arange(0, SOME)
        code = p[:, None] * WIDTH + k[None, :]
        a = tl.load(high + code, mask=(p < points)[:, None], other=0.0)
        b = tl.load(low + code, mask=(p < points)[:, None], other=0.0)
        total = tl.dot(b, top, tl.dot(a, rest, tl.dot(a, top)))
        place = out + (patch * points + p[:, None]) * C + c[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(p < points)[:, None])


@torch.library.custom_op("matchkernel::encode", mutates_args=())
def _encode(phi: Tensor, high: Tensor, low: Tensor, P: int) -> Tensor:
    """(B, C, n, n) and halves of F (n * n, WIDTH), zeros from column P -> (B, C P) in float32."""
    phi = phi.contiguous(memory_format=torch.channels_last)
    B, C, n, _ = phi.shape
    out = phi.new_empty(B, C * P, dtype=torch.float32)
    _encode_kernel[(B,)](phi, high, low, out, n * n, C, P, high.shape[1], POINTS_AT_A_TIME)
    return out


@torch.library.custom_op("matchkernel::encode_gradient", mutates_args=())
def _encode_gradient(gradient: Tensor, high: Tensor, low: Tensor, C: int) -> Tensor:
    """(B, C P) in float32 -> (B, C, n, n) in the type of the halves, channels last."""
    gradient = gradient.contiguous()
    (B, width), points = gradient.shape, len(high)
    out = high.new_empty(B, points, C)
    _gradient_kernel[(B,)](gradient, high, low, out, points, C, width // C, high.shape[1], POINTS_AT_A_TIME)
    return _map(out)


def _map(rows: Tensor) -> Tensor:
    """(B, n * n, C) -> (B, C, n, n), the same memory."""
    n = round(rows.shape[1] ** 0.5)
    return rows.unflatten(1, (n, n)).permute(0, 3, 1, 2)


@_encode.register_fake
def _(phi: Tensor, high: Tensor, low: Tensor, P: int) -> Tensor:
    return phi.new_empty(len(phi), phi.shape[1] * P, dtype=torch.float32)


@_encode_gradient.register_fake
def _(gradient: Tensor, high: Tensor, low: Tensor, C: int) -> Tensor:
    return _map(high.new_empty(len(gradient), len(high), C))


class Encode(torch.autograd.Function):
    """c vec(Phi^T F) in float32."""

    @staticmethod
    def forward(ctx, phi: Tensor, F: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """phi (B, C, n, n), C a power of two, and F (n * n, P) with c -> (B, C P)."""
        P = F.shape[1]
        F = torch.nn.functional.pad(F.float(), (0, max(16, triton.next_power_of_2(P)) - P))
        high = F.to(phi.dtype)
        low = (F - high.float()).to(phi.dtype)
        ctx.save_for_backward(high, low)
        ctx.channels = phi.shape[1]
        return _encode(phi, high, low, P)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[no-untyped-def]
        """Of phi."""
        return _encode_gradient(gradient, *ctx.saved_tensors, ctx.channels), None


@torch.library.custom_op("matchkernel::product", mutates_args=())
def _product(a: Tensor, b: Tensor) -> Tensor:
    """The matrix product in TF32."""
    settings = torch.backends.cuda.matmul
    before = settings.allow_tf32
    settings.allow_tf32 = True
    try:
        return a @ b
    finally:
        settings.allow_tf32 = before


@_product.register_fake
def _(a: Tensor, b: Tensor) -> Tensor:
    return a.new_empty(len(a), b.shape[1])


class Product(torch.autograd.Function):
    """rows M^T, all three products in TF32."""

    @staticmethod
    def forward(ctx, rows: Tensor, M: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
        """rows (B, K), M (D, K) -> (B, D)."""
        ctx.save_for_backward(rows, M)
        return _product(rows, M.t())

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def]
        """Of both."""
        rows, M = ctx.saved_tensors
        return _product(gradient, M), _product(gradient.t(), rows)
