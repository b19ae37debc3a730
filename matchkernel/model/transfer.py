"""Patches to the device and rows back: one after the other, or while the GPU computes."""

from collections import deque
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = TypeVar("Array", np.ndarray, Tensor)
SLOTS = 3  # pieces under way: one is uploaded, one computed, one downloaded


class Transfer(Generic[Array]):
    """Moves pieces of patches to a device, and their rows and validity back, in the order of the pieces.

    Args:
        patches: (B, N, N) or (B, 1, N, N); bytes stay bytes, everything else becomes `dtype`.
        rows: (B, D) to fill.
        valid: (B,) to fill.
        device: where pieces go.
        dtype: of pieces that are not bytes.
    """

    def __init__(self, patches: Array, rows: Array, valid: Array, device: torch.device, dtype: torch.dtype) -> None:
        self.patches: Array = patches
        self.rows: Array = rows
        self.valid: Array = valid
        self.device = device
        is_bytes = patches.dtype in (np.uint8, torch.uint8)
        self.dtype = torch.uint8 if is_bytes else dtype  # bytes are the cheapest to move

    def upload(self, start: int, stop: int) -> Tensor:
        """(b, 1, N, N) on the device; numpy arrays are copied, as they may be read-only or have any strides."""
        if isinstance(self.patches, Tensor):
            piece = self.patches[start:stop].detach().to(self.device).to(self.dtype)
        else:
            with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite and therefore invalid
                copied = np.array(self.patches[start:stop], dtype=numpy_dtype(self.dtype), order="C")
            piece = torch.from_numpy(copied).to(self.device)
        return piece.reshape(len(piece), 1, *piece.shape[-2:])

    def download(self, start: int, described: Tensor, good: Tensor) -> None:
        """Store what belongs to the piece from `start`."""
        _store(self.rows, start, described)
        _store(self.valid, start, good)

    def finish(self) -> None:
        """Wait until everything is stored."""


class PinnedTransfer(Transfer[np.ndarray]):
    """The same between numpy arrays and a GPU, through pinned memory and on streams of its own.

    While the GPU computes one piece, the next one is uploaded and the rows of the one before are downloaded.
    """

    def __init__(
        self,
        patches: np.ndarray,
        rows: np.ndarray,
        valid: np.ndarray,
        device: torch.device,
        dtype: torch.dtype,
        step: int,
    ) -> None:
        super().__init__(patches, rows, valid, device, dtype)
        side, D = int(patches.shape[-1]), int(rows.shape[1])
        rows_type = torch.float64 if dtype == torch.float64 else torch.float32
        is_cuda = device.type == "cuda"
        self.free = deque(_Slot.make(step, side, D, self.dtype, rows_type, is_cuda) for _ in range(SLOTS))
        self.busy: deque[tuple[_Slot, int, int]] = deque()  # slot, start, number of patches
        self.up, self.down = (torch.cuda.Stream(device) if is_cuda else None for _ in range(2))

    def upload(self, start: int, stop: int) -> Tensor:
        """(b, 1, N, N) on the device, to be used on the current stream."""
        if not self.free:
            self._store_oldest()
        slot, source = self.free[0], self.patches[start:stop]
        side, b = int(source.shape[-1]), len(source)
        with np.errstate(over="ignore"):
            np.copyto(slot.patches.numpy()[:b], source.reshape(b, 1, side, side), casting="unsafe")
        if self.up is None:
            return slot.patches[:b]
        now = torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.up):
            piece = slot.patches[:b].to(self.device, non_blocking=True)
        now.wait_stream(self.up)
        piece.record_stream(now)
        return piece

    def download(self, start: int, described: Tensor, good: Tensor) -> None:
        """Store what belongs to the piece that was uploaded last."""
        slot, b = self.free.popleft(), len(described)
        self.busy.append((slot, start, b))
        if self.down is None or slot.done is None:
            slot.take(described, good)
            return
        self.down.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.down):
            slot.take(described, good)
            slot.done.record(self.down)
        for tensor in (described, good):
            tensor.record_stream(self.down)

    def finish(self) -> None:
        """Wait until everything is stored."""
        while self.busy:
            self._store_oldest()

    def _store_oldest(self) -> None:
        slot, start, b = self.busy.popleft()
        if slot.done is not None:
            slot.done.synchronize()
        self.rows[start : start + b] = slot.rows[:b].numpy()
        self.valid[start : start + b] = slot.good[:b].numpy()
        self.free.append(slot)


@dataclass(frozen=True)
class _Slot:
    """Pinned memory for one piece."""

    patches: Tensor
    rows: Tensor
    good: Tensor
    done: torch.cuda.Event | None  # downloaded

    @classmethod
    def make(cls, step: int, side: int, D: int, dtype: torch.dtype, rows_type: torch.dtype, is_cuda: bool) -> "_Slot":
        return cls(
            torch.empty(step, 1, side, side, dtype=dtype, pin_memory=is_cuda),
            torch.empty(step, D, dtype=rows_type, pin_memory=is_cuda),
            torch.empty(step, dtype=torch.bool, pin_memory=is_cuda),
            torch.cuda.Event() if is_cuda else None,
        )

    def take(self, described: Tensor, good: Tensor) -> None:
        self.rows[: len(described)].copy_(described, non_blocking=True)
        self.good[: len(good)].copy_(good, non_blocking=True)


def open_transfer(
    patches: Array, rows: Array, valid: Array, device: torch.device, dtype: torch.dtype, step: int
) -> Transfer[Array]:
    """The fastest transfer between these arrays and a device."""
    if device.type == "cuda" and isinstance(patches, np.ndarray) and len(patches) > step:
        return PinnedTransfer(patches, rows, valid, device, dtype, step)
    return Transfer(patches, rows, valid, device, dtype)


def numpy_dtype(dtype: torch.dtype) -> type[Any]:
    """The same type in numpy."""
    return {torch.uint8: np.uint8, torch.float64: np.float64}.get(dtype, np.float32)


def _store(target: Array, start: int, values: Tensor) -> None:
    if isinstance(target, Tensor):
        target[start : start + len(values)] = values.to(target.device)
    else:
        target[start : start + len(values)] = values.cpu().numpy()
