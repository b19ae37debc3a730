"""Validation during training: FPR@95 on pairs and retrieval mAP, on sets that are not trained on."""

from collections.abc import Sequence

import numpy as np
import torch

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.metrics import fpr95
from matchkernel.evaluation.patch_sets import retrieval_map
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import Descriptor

QUERIES, PAIRS = 2000, 10_000


def validate(model: Descriptor, sets: Sequence[PatchSet]) -> dict[str, float]:
    """{"fpr95": ..., "map": ...}: means over the sets. The same sets always give the same pairs and queries."""
    results = [_validate_one(model, patch_set) for patch_set in sets]
    return {name: float(np.mean([result[name] for result in results])) for name in ("fpr95", "map")}


def is_better(result: dict[str, float], best: dict[str, float], measure: str) -> bool:
    """Whether a validation is better than the best so far (empty at first)."""
    if measure not in best:
        return True
    return result[measure] > best[measure] if measure == "map" else result[measure] < best[measure]


def validation_pairs(patch_set: PatchSet) -> np.ndarray:
    """(M, 3) patch, patch, is match: the set's own pairs, or random ones if it has none; of both kinds."""
    order, starts, sizes = patch_set.groups()
    groups = np.flatnonzero(sizes > 1)
    if not len(groups) or len(sizes) < 2:
        raise ArgumentError(f"{patch_set.folder}: validation needs two points, one of them with two patches")
    if patch_set.pairs:
        listed = np.concatenate([patch_set.pairs[name] for name in sorted(patch_set.pairs)])
        matches = np.count_nonzero(listed[:, 2])
        if not 0 < matches < len(listed):
            kinds = f"{matches} that match and {len(listed) - matches} others"
            raise ArgumentError(f"{patch_set.folder}: validation needs pairs of both kinds, its lists have {kinds}")
        return listed
    random = np.random.default_rng(0)
    group = groups[random.integers(len(groups), size=PAIRS)]
    first = random.integers(sizes[group])
    second = (first + random.integers(1, sizes[group])) % sizes[group]
    positive = np.column_stack([order[starts[group] + first], order[starts[group] + second], np.ones(PAIRS, int)])
    a, b = random.integers(len(patch_set), size=(2, 2 * PAIRS))
    differ = np.flatnonzero(patch_set.labels[a] != patch_set.labels[b])[:PAIRS]
    negative = np.column_stack([a[differ], b[differ], np.zeros(len(differ), int)])
    return np.concatenate([positive, negative])


def _validate_one(model: Descriptor, patch_set: PatchSet) -> dict[str, float]:
    device = next(model.parameters()).device
    rows = torch.empty(len(patch_set), model.config.D or 0, device=device)
    step = 2**16
    for start in range(0, len(patch_set), step):
        piece = torch.from_numpy(np.array(patch_set.patches[start : start + step])).to(device)
        rows[start : start + step] = describe(piece, model, resize=True)
    pairs = torch.from_numpy(validation_pairs(patch_set)).to(device)
    distances = (rows[pairs[:, 0]] - rows[pairs[:, 1]]).norm(dim=1).cpu().numpy()
    labels = torch.from_numpy(np.array(patch_set.labels)).to(device)
    return {
        "fpr95": fpr95(distances, pairs[:, 2].cpu().numpy().astype(bool)),
        "map": retrieval_map(rows, labels, queries=QUERIES)[0],
    }
