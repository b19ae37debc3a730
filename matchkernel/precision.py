"""Where half precision is not enough: sums of squares."""

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
