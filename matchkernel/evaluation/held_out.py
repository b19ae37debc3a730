"""Patches to calibrate on, and patches of other points to see what that costs."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError
from matchkernel.model.describe import resize_patches

CALIBRATION, HELD_OUT = 1024, 4000  # maximum numbers of patches, of all sets together
FEWEST = 64  # patches to calibrate on


def shown_and_held_out(sets: Sequence[PatchSet], N: int) -> tuple[Tensor, Tensor, np.ndarray]:
    """Patches to calibrate on, (B, 1, N, N); patches of every other point, held out, and their points."""
    shown: list[Tensor] = []
    held_out: list[Tensor] = []
    labels: list[np.ndarray] = []
    for part in sets:
        groups = part.groups().members()
        first = np.sort(np.concatenate([*groups[::2], np.empty(0, np.int64)]))
        shown.append(_read(part, _spread(first, CALIBRATION // len(sets)), N)[0])
        pairs = [group[:2] for group in groups[1::2] if len(group) > 1]
        chosen = [pairs[k] for k in _spread(np.arange(len(pairs)), HELD_OUT // 2 // len(sets))]
        patches, kept = _read(part, np.concatenate([*chosen, np.empty(0, np.int64)]), N)
        held_out.append(patches)
        labels.append(part.labels[kept] * len(sets) + len(labels))  # points of different sets stay different
    both = torch.cat(shown), torch.cat(held_out), np.concatenate(labels)
    if len(both[0]) < FEWEST or len(both[1]) < FEWEST:
        raise ArgumentError(
            f"calibration needs at least {FEWEST} patches, and as many of other points that have two patches; "
            f"found {len(both[0])} and {len(both[1])}"
        )
    return both


def _spread(values: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` of the values, evenly spread."""
    return values[np.unique(np.linspace(0, max(len(values) - 1, 0), min(len(values), limit)).astype(int))]


def _read(part: PatchSet, chosen: np.ndarray, N: int) -> tuple[Tensor, np.ndarray]:
    """Patches of a set at the size N, without constant ones, and which they are."""
    chosen = np.sort(chosen)
    patches = torch.from_numpy(np.array(part.patches[chosen])).float()[:, None]
    resized = patches if patches.shape[-1] == N else resize_patches(patches, N)
    varied = resized.flatten(1).std(1) > 0.1 if len(resized) else torch.zeros(0, dtype=torch.bool)
    return resized[varied], chosen[varied.numpy()]
