"""Reduce a trained descriptor to a smaller D, exact in the directions that it keeps."""

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from matchkernel.errors import ArgumentError
from matchkernel.model.backbone import fold_into
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.weights import state_digest


def principal_directions(rows: np.ndarray, D: int) -> np.ndarray:
    """(D, columns of rows) orthonormal principal directions of rows that are not centred."""
    _, vectors = np.linalg.eigh(rows.astype(np.float64).T @ rows.astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :D].T)


def check_dimensions(model: Descriptor, D: int) -> None:
    """Refuse a number of dimensions that is not smaller than the model's."""
    if not 0 < D < (model.config.D or 0):
        raise ArgumentError(f"dimensions must be from 1 to {(model.config.D or 0) - 1}, got {D}")


@torch.no_grad()
def reduced(model: Descriptor, directions: np.ndarray) -> Descriptor:
    """A model whose rows are those of `model` projected on these directions, scaled to unit length again.

    The directions become part of M (of W in `fc`): the result is a descriptor like any other, with another D.

    Args:
        model: trained, not folded, with M or W.
        directions: (D, D of the model) orthonormal rows.
    """
    D = len(directions)
    if model.is_folded or not isinstance(model.projection, nn.Linear):
        raise ArgumentError(f"{model.name} cannot be reduced: that takes a descriptor with M or W, not folded")
    check_dimensions(model, D)
    result = Descriptor(replace(model.config, D=D)).to(next(model.parameters()).dtype).eval()
    for name in ("backbones", "aggregations"):
        getattr(result, name).load_state_dict(getattr(model, name).state_dict())
    exact = copy.deepcopy(model.projection).double()
    if isinstance(model.output_norm, nn.BatchNorm1d):
        fold_into(exact, model.output_norm, torch.float64)
    P = torch.from_numpy(directions).double()
    offset = torch.zeros(D, dtype=torch.float64) if exact.bias is None else P @ exact.bias
    assert isinstance(result.projection, nn.Linear)
    result.projection.weight.copy_(P @ exact.weight)
    if result.projection.bias is not None:
        result.projection.bias.zero_()
    norm = result.output_norm
    if isinstance(norm, nn.BatchNorm1d):  # with variance 1, its mean adds the offset
        variance = torch.full((D,), 1 - norm.eps, dtype=torch.float64)
        norm.load_state_dict({**norm.state_dict(), "running_mean": -offset, "running_var": variance})
    elif result.projection.bias is not None:
        result.projection.bias.copy_(offset)
    result.name = f"{model.name}-{D}"
    # Scores and limits were those of the longer rows.
    card = copy.deepcopy(model.card)
    other = {**card.other, "reduced_from": f"{model.name} {state_digest(model)[:16]}"}
    result.card = replace(
        card, sha256="", metrics={}, validation={}, match_threshold=None, match_ratio=None, other=other
    )
    return result
