"""Where and in which precision to compute: half precision is not enough for sums of squares, and is slow on CPUs."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, short_message

_LOCK = threading.Lock()
_SAVED: list[str] = []  # torch's precision when each active block of `full_precision` began


def open_device(device: str | torch.device | None) -> torch.device:
    """A usable device, or a one-line error: "cpu", "cuda", ...; "auto" is a GPU if there is one, None is the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.empty(0, device=device or "cpu").device
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise ArgumentError(f"device {device!r} cannot be used: {short_message(error)}") from None
    if found.type == "meta":
        raise ArgumentError("device 'meta' holds no numbers to compute with")
    return found


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


@contextmanager
def full_precision() -> Iterator[None]:
    """Compute float32 matrix products at full precision inside the block, even if TF32 is enabled.

    torch has one setting for all threads: it is restored when the last of several blocks ends.
    """
    with _LOCK:
        _SAVED.append(torch.get_float32_matmul_precision())
        torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        with _LOCK:
            before = _SAVED.pop()
            if not _SAVED:
                torch.set_float32_matmul_precision(before)
