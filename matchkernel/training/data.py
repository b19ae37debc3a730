"""The patch sets of a run as one: patches, labels that do not collide, and what identifies them."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from matchkernel.data.patch_set import PatchSet, join_labels, open_patch_set
from matchkernel.errors import ArgumentError


class TrainingSet:
    """Several patch sets seen as one, in the order given; a point of one is never a point of another."""

    def __init__(self, sets: Sequence[PatchSet]) -> None:
        self.sets = list(sets)
        self.labels = join_labels(sets)
        self.side = sets[0].patches.shape[-1]
        self.firsts = np.cumsum([0, *(len(patch_set) for patch_set in sets)])  # number of each set's first patch

    def __len__(self) -> int:
        return len(self.labels)

    def gather(self, index: np.ndarray) -> np.ndarray:
        """Patches (..., S, S) uint8 at these numbers, read from the memory maps."""
        flat = index.ravel()
        if len(flat) and not (flat.min() >= 0 and flat.max() < len(self)):
            raise ArgumentError(f"patches are numbered 0 to {len(self) - 1}, asked for {flat.min()} to {flat.max()}")
        patches = np.empty((len(flat), self.side, self.side), np.uint8)
        which = np.searchsorted(self.firsts, flat, side="right") - 1
        for number, patch_set in enumerate(self.sets):
            mine = np.flatnonzero(which == number)
            mine = mine[np.argsort(flat[mine])]  # ascending places: kinder to the disk
            patches[mine] = patch_set.patches[flat[mine] - self.firsts[number]]
        return patches.reshape(*index.shape, self.side, self.side)

    def gather_all(self) -> np.ndarray:
        """All patches (K, S, S) uint8, in memory."""
        return np.concatenate([patch_set.patches for patch_set in self.sets])

    @property
    def identity(self) -> str:
        """sha256 over what the sets hold: the hashes of their manifests' patches and labels, in order."""
        return identity(self.sets)


def identity(sets: Sequence[PatchSet]) -> str:
    """sha256 over the recorded hashes of patches and labels of sets, in order; where they lie does not matter."""
    parts = [[s.manifest["sha256"].get(name) for name in ("patches.npy", "labels.npy")] for s in sets]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()


def open_sets(folders: Sequence[str | Path]) -> list[PatchSet]:
    """Open patch sets by folder."""
    return [open_patch_set(folder) for folder in folders]
