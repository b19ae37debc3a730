"""The official whitening and power law of HPatches (`--pcapl`)."""

from collections.abc import Sequence

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors

FLOOR_AT = 0.6  # of the eigenvalues, in ascending order: the one that smaller ones are raised to


def learn_whitening(rows: np.ndarray) -> np.ndarray:
    """(D, D) float64 W = V d^(-1/2) V^T from (K, D) descriptors.

    Small eigenvalues d are raised to the one at position floor(0.6 D).
    """
    if rows.ndim != 2 or len(rows) < 2:
        raise ArgumentError(f"whitening is learned from (K, D) descriptors, K >= 2, got shape {rows.shape}")
    centred = rows.astype(np.float64)
    centred -= centred.mean(0)
    d, V = np.linalg.eigh(centred.T @ centred / len(rows))
    floor = np.sort(d)[int(FLOOR_AT * len(d))]
    if not floor > 1e-12 * d.max():
        raise ArgumentError(f"{len(rows)} descriptors span too few directions to learn a whitening of {len(d)}")
    return (V / np.sqrt(np.maximum(d, floor))) @ V.T


def whiten(rows: np.ndarray, W: np.ndarray) -> np.ndarray:
    """(N, D) float64 of the (N, D) descriptors of one image; a zero row stays zero.

    They are centred by their own mean, multiplied by W, and divided by their norm after signed square roots.
    """
    centred = rows.astype(np.float64)
    centred -= centred.mean(0)
    projected = centred @ W
    rooted = np.sign(projected) * np.sqrt(np.abs(projected))
    norms = np.linalg.norm(rooted, axis=1, keepdims=True)
    return np.divide(rooted, norms, out=np.zeros_like(rooted), where=norms > 0)


def pcapl(descriptors: HPatchesDescriptors, train: Sequence[str], test: Sequence[str]) -> HPatchesDescriptors:
    """Learn on ref of the training sequences, apply to every image of the test sequences, each centred by itself."""
    if descriptors.rows.dtype == np.uint8:
        raise ArgumentError(f"{descriptors.name}: bits cannot be whitened")
    if not train:
        raise ArgumentError("whitening is learned on a split's training sequences, and this split has none")
    W = learn_whitening(np.concatenate([descriptors.sequence(name)[0] for name in train]))
    counts = {name: descriptors.sequence(name).shape[1] for name in test}
    rows = np.empty((16 * sum(counts.values()), descriptors.rows.shape[1]), np.float32)
    whitened = HPatchesDescriptors(descriptors.name, rows, counts)
    for name in test:
        for target, image in zip(whitened.sequence(name), descriptors.sequence(name), strict=True):
            target[:] = whiten(image, W)
    return whitened
