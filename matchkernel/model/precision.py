"""Which precision to compute in: half precision is not enough for sums of squares, and is slow on CPUs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


def widened_type(dtype: torch.dtype) -> torch.dtype:
    """float32 for float16 and bfloat16; every other type itself."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def widened(values: Tensor) -> Tensor:
    """float16 and bfloat16 as float32; everything else as it is."""
    return values.to(widened_type(values.dtype))


def exact_type(device: torch.device | None) -> torch.dtype:
    """float64, or float32 on Apple's GPUs (mps), which have no float64."""
    return torch.float32 if device is not None and device.type == "mps" else torch.float64


def has_bfloat16(device: torch.device) -> bool:
    """Whether a device has bfloat16 arithmetic.

    On a CPU without it, torch would warn at the first matrix product and switch mkldnn off for the whole process.
    """
    if device.type != "cpu":
        return True
    supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)  # what torch itself asks before it warns
    return supported is not None and bool(supported())


def unit_rows(rows: Tensor) -> Tensor:
    """Scale every row to length 1 [M3]; a row of zeros stays zero, and its gradient stays finite.

    Args:
        rows: (B, D) floats.
    """
    wide = widened(rows)
    norm = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    return (wide / torch.where(norm > 0, norm, 1)).to(rows.dtype)


class _FullPrecision:
    """torch has one setting for all threads: the first user saves the old value, the last one restores it."""

    def __init__(self) -> None:
        self.lock, self.users, self.before = threading.Lock(), 0, ""

    def enter(self) -> None:
        with self.lock:
            if not self.users:
                self.before = torch.get_float32_matmul_precision()
                torch.set_float32_matmul_precision("highest")
            self.users += 1

    def leave(self) -> None:
        with self.lock:
            self.users -= 1
            if not self.users:
                torch.set_float32_matmul_precision(self.before)


_FULL = _FullPrecision()


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 matrix products at full precision inside the block, even if TF32 is enabled."""
    _FULL.enter()
    try:
        yield
    finally:
        _FULL.leave()
