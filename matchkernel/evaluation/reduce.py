"""Shorter rows of trained weights, and what they lose on patches that the directions were not chosen on."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matchkernel.data.patch_set import PatchSet
from matchkernel.evaluation.held_out import shown_and_held_out
from matchkernel.evaluation.patch_sets import retrieval_map
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.reduce import check_dimensions, principal_directions, reduced


@dataclass(frozen=True)
class Reduction:
    """Weights with shorter rows.

    Attributes:
        model: the weights.
        shown: number of patches that the directions were chosen on.
        held_out: number of other patches, of other points, that the rest was measured on.
        kept: mean share of the squared length of a row that lies in the directions kept.
        map_before: retrieval mAP of the longer rows among the patches held out, in per cent.
        map_after: the same of the shorter ones.
    """

    model: Descriptor
    shown: int
    held_out: int
    kept: float
    map_before: float
    map_after: float


def reduce_rows(model: Descriptor, D: int, sets: Sequence[PatchSet]) -> Reduction:
    """Choose the D directions that keep most of the products of rows, on every other point of patch sets.

    Args:
        model: trained weights.
        D: dimensions to keep.
        sets: patches like those it was trained on, with at least two patches of some points.
    """
    check_dimensions(model, D)
    shown, held_out, labels = shown_and_held_out(sets, model.config.patch_size)
    directions = principal_directions(describe(shown.numpy(), model), D)
    shorter = reduced(model, directions)
    before, after = (describe(held_out.numpy(), each) for each in (model, shorter))
    kept = float(np.square(before.astype(np.float64) @ directions.T).sum(1).mean())
    scores = [100 * retrieval_map(rows, labels)[0] for rows in (before, after)]
    return Reduction(shorter, len(shown), len(held_out), kept, scores[0], scores[1])
