"""Patches to the device and rows back: one piece after the other, or while the GPU computes."""

from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

import numpy as np
import torch
from torch import Tensor

Array = TypeVar("Array", np.ndarray, Tensor)
PIECES = 2  # copied before they are asked for, and maximum number of pieces whose download is pending
COPIERS = 4  # threads that copy


class Transfer(Generic[Array]):
    """Moves pieces of patches to a device, and their rows and validity back, in the order of the pieces.

    Args:
        patches: (B, N, N) or (B, 1, N, N); bytes stay bytes, everything else becomes `dtype`.
        rows: (B, D) to fill.
        valid: (B,) to fill.
        device: where pieces go.
        dtype: type of pieces that are not bytes.
    """

    def __init__(self, patches: Array, rows: Array, valid: Array, device: torch.device, dtype: torch.dtype) -> None:
        self.patches: Array = patches
        self.rows: Array = rows
        self.valid: Array = valid
        self.device = device
        is_bytes = patches.dtype in (np.uint8, torch.uint8)
        self.dtype = torch.uint8 if is_bytes else dtype  # bytes are the cheapest to move

    def upload(self, start: int, stop: int) -> Tensor:
        """(b, 1, N, N) on the device."""
        if isinstance(self.patches, Tensor):
            piece = self.patches[start:stop].detach().to(self.device).to(self.dtype)
            return piece.reshape(len(piece), 1, *piece.shape[-2:])
        return self._copied(start, stop).to(self.device)

    def download(self, start: int, described: Tensor, valid: Tensor) -> None:
        """Store the rows of the piece from `start`."""
        for target, values in ((self.rows, described), (self.valid, valid)):
            part = slice(start, start + len(values))
            if isinstance(target, Tensor):
                target[part] = values.to(target.device)
            else:
                target[part] = values.cpu().numpy()

    def finish(self) -> None:
        """Wait until everything is stored."""

    def _copied(self, start: int, stop: int, *, pinned: bool = False) -> Tensor:
        """(b, 1, N, N) copied from an array that may be read-only, of any strides and of any type."""
        source = self.patches[start:stop]
        side = source.shape[-1]
        piece = torch.empty(len(source), 1, side, side, dtype=self.dtype, pin_memory=pinned, device="cpu")
        with np.errstate(over="ignore"):  # a value too large for float32 becomes infinite and therefore invalid
            np.copyto(piece.numpy(), source.reshape(piece.shape), casting="unsafe")
        return piece


class PinnedTransfer(Transfer[np.ndarray]):
    """The same between numpy arrays and a GPU, through pinned memory and on streams of its own.

    While the GPU computes one piece, the next ones are uploaded and the rows of those before are downloaded. Threads
    copy between the arrays and pinned memory: one alone is slower than the GPU with a small network. torch keeps pinned
    memory and reuses it once the copies from or to it have ended.
    """

    def __init__(
        self, patches: np.ndarray, rows: np.ndarray, valid: np.ndarray, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(patches, rows, valid, device, dtype)
        self.up, self.down = torch.cuda.Stream(device), torch.cuda.Stream(device)
        self.copiers = ThreadPoolExecutor(COPIERS)
        self.copied: dict[int, Future[Tensor]] = {}  # by the start of a piece
        self.stored: deque[Future[None]] = deque()

    def upload(self, start: int, stop: int) -> Tensor:
        """(b, 1, N, N) on the device, to be used on the current stream; begins to copy the next pieces."""
        step = stop - start
        for first in range(start, min(start + (PIECES + 1) * step, len(self.patches)), step):
            if first not in self.copied:
                self.copied[first] = self.copiers.submit(self._copied, first, first + step, pinned=True)
        source, now = self.copied.pop(start).result(), torch.cuda.current_stream(self.device)
        with torch.cuda.stream(self.up):
            piece = source.to(self.device, non_blocking=True)
        now.wait_stream(self.up)
        piece.record_stream(now)
        return piece

    def download(self, start: int, described: Tensor, valid: Tensor) -> None:
        """Begin to copy and store the rows of the piece from `start`; waits for those of an earlier piece."""
        self.down.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self.down):
            rows, good = (tensor.to("cpu", non_blocking=True) for tensor in (described, valid))  # to pinned memory
            done = self.down.record_event()
        for tensor in (described, valid):
            tensor.record_stream(self.down)
        self.stored.append(self.copiers.submit(self._store, start, rows, good, done))
        if len(self.stored) > PIECES:
            self.stored.popleft().result()

    def finish(self) -> None:
        """Wait until everything is stored."""
        while self.stored:
            self.stored.popleft().result()
        self.copiers.shutdown()

    def _store(self, start: int, rows: Tensor, valid: Tensor, done: torch.cuda.Event) -> None:
        done.synchronize()
        super().download(start, rows, valid)


def open_transfer(
    patches: Array, rows: Array, valid: Array, device: torch.device, dtype: torch.dtype, step: int
) -> Transfer[Array]:
    """The fastest transfer between these arrays and a device."""
    if device.type == "cuda" and isinstance(patches, np.ndarray) and len(patches) > step:
        return PinnedTransfer(patches, rows, valid, device, dtype)
    return Transfer(patches, rows, valid, device, dtype)
