"""Baselines: they turn square patches into one row per patch, with a record of exactly how it is computed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, overload

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.model.describe import resize_patches
from matchkernel.storage.progress import Progress, adding

# Patches per batch. A network always gets this many, the last batch padded with blank patches: PyTorch chooses its
# algorithms by batch size, so the last bits of a row would otherwise depend on the number of patches in its batch.
PIECE = 64
RESIZED = "others resized to it by exact area means (linear to enlarge)"

Rows = Callable[[Tensor], np.ndarray]


@dataclass(frozen=True)
class Baseline:
    """A third-party descriptor to compare with; see `baseline`."""

    name: str
    distance: Literal["l2", "hamming"]
    dimension: int  # length of a row: number of values, or of bits if binary
    parameters: int  # number of learned parameters, including a learned whitening
    hand_crafted: bool
    patch_size: int  # side of the patches that the method works on
    settings: dict[str, str]
    compute: Rows = field(repr=False)  # (PIECE, 1, patch_size, patch_size) floats 0 to 255 -> (PIECE, width)

    @property
    def width(self) -> int:
        """Entries of a row: `dimension`, or the number of bytes that hold its bits."""
        return self.dimension if self.distance == "l2" else self.dimension // 8

    @overload
    def describe(
        self, patches: np.ndarray, progress: Progress | None = ..., *, return_valid: Literal[False] = ...
    ) -> np.ndarray: ...
    @overload
    def describe(
        self, patches: np.ndarray, progress: Progress | None = ..., *, return_valid: Literal[True]
    ) -> tuple[np.ndarray, np.ndarray]: ...
    def describe(
        self, patches: np.ndarray, progress: Progress | None = None, *, return_valid: bool = False
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Describe patches, in the order given and in bounded memory; a row does not depend on the other patches.

        A constant patch, or one in which the method finds nothing, cannot be described: its row is zeros and its entry
        in the mask False.

        Args:
            patches: (K, N, N) uint8, of any size; a memory map is read piece by piece. K may be 0.
            progress: called with the number of patches done and their total.
            return_valid: also return the mask.

        Returns:
            (K, dimension) float32, or (K, dimension / 8) uint8 for a binary descriptor; with `return_valid` also (K,)
            bool.
        """
        check_patches(patches, self.name)
        rows = np.zeros((len(patches), self.width), np.float32 if self.distance == "l2" else np.uint8)
        add = adding(progress, len(patches))
        for start in range(0, len(patches), PIECE):
            piece, good = prepared(patches[start : start + PIECE], self.patch_size)
            found = self.compute(piece)[: len(good)]
            rows[start : start + PIECE] = np.where(good[:, None] & np.isfinite(found).all(1, keepdims=True), found, 0)
            add(len(good))
        return (rows, np.asarray(rows.any(1))) if return_valid else rows


def prepared(patches: np.ndarray, size: int) -> tuple[Tensor, np.ndarray]:
    """A batch of patches in the form that a method expects, and which of them are not constant.

    Args:
        patches: (k, N, N) uint8, k at most PIECE.
        size: new side.

    Returns:
        (PIECE, 1, size, size) float32 from 0 to 255, the rest blank; (k,) bool.
    """
    piece = torch.from_numpy(np.array(patches, order="C")).float()[:, None]
    if piece.shape[-1] != size:
        piece = resize_patches(piece, size)
    low, high = piece.flatten(1).aminmax(dim=1)
    good = (high - low > 16 * torch.finfo(piece.dtype).eps * high).numpy()  # a fine checkerboard becomes rounding noise
    blank = piece.new_zeros(PIECE - len(piece), *piece.shape[1:])
    return torch.cat([piece, blank]), good


def check_patches(patches: object, name: str) -> None:
    """Refuse anything but (K, N, N) uint8."""
    if not isinstance(patches, np.ndarray) or patches.dtype != np.uint8:
        kind = patches.dtype if isinstance(patches, np.ndarray) else type(patches).__name__
        raise ArgumentTypeError(f"{name} takes a numpy array of uint8 patches, got {kind}")
    if patches.ndim != 3 or patches.shape[1] != patches.shape[2] or not patches.shape[1]:
        raise ArgumentError(f"{name} takes patches of shape (K, N, N), got {patches.shape}")
