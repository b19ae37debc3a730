"""Where half precision is not enough: sums of squares."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def widened(values: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; everything else as it is."""
    return values.float() if values.dtype in (torch.float16, torch.bfloat16) else values


def unit_rows(rows: Tensor) -> Tensor:
    """Scale every row to length 1 [M3]; a row of zeros stays zero, and its gradient finite.

    Args:
        rows: (B, D) floats.
    """
    wide = widened(rows)
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / torch.where(norm > 0, norm, 1)).to(rows.dtype)


@contextmanager
def full_precision() -> Iterator[None]:
    """Matrix products of float32 with all its bits meanwhile, whatever a program allows for its own (such as TF32)."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
