"""Fewer numbers per patch: a trained descriptor with a smaller D, exact in the directions that it keeps."""

import copy
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.weights import state_digest
from matchkernel.runtime.card import Card


def principal_directions(rows: np.ndarray, D: int) -> np.ndarray:
    """(D, columns of rows) orthonormal directions that keep most of the products of rows: principal, not centred."""
    _, vectors = np.linalg.eigh(rows.astype(np.float64).T @ rows.astype(np.float64))
    return np.ascontiguousarray(vectors[:, ::-1][:, :D].T)


def check_dimensions(model: Descriptor, D: int) -> None:
    """Refuse as many dimensions as the model has, or more."""
    if not 0 < D < (model.config.D or 0):
        raise ArgumentError(f"dimensions must be from 1 to {(model.config.D or 0) - 1}, got {D}")


@torch.no_grad()
def reduced(model: Descriptor, directions: np.ndarray) -> Descriptor:
    """A model whose rows are those of `model` along so many directions, scaled to unit length again.

    The directions become part of M (of W in `fc`): the result is a descriptor like any other, with another D.

    Args:
        model: trained, not folded, with M or W.
        directions: (D, D of the model) orthonormal rows.
    """
    D = len(directions)
    if model.is_folded or not isinstance(model.projection, nn.Linear):
        raise ArgumentError(f"{model.name} cannot be reduced: that takes a descriptor with M or W, not folded")
    check_dimensions(model, D)
    P = torch.from_numpy(directions).double()
    result = Descriptor(replace(model.config, D=D)).to(next(model.parameters()).dtype).eval()
    for name in ("backbones", "aggregations"):
        getattr(result, name).load_state_dict(getattr(model, name).state_dict())
    old, new = model.projection, result.projection
    assert isinstance(new, nn.Linear)
    scale, offset = _affine(model.output_norm, len(old.weight))
    new.weight.copy_(P @ (scale[:, None] * old.weight.double()))
    if old.bias is not None:
        offset = offset + scale * old.bias.double()
        new.bias.copy_(torch.zeros(D))
    _shift(result, P @ offset)
    result.name = f"{model.name}-{D}"
    result.card = _card_of(model)
    return result


def _affine(norm: nn.Module, D: int) -> tuple[Tensor, Tensor]:
    """Scale and offset of the BatchNorm after M."""
    if not isinstance(norm, nn.BatchNorm1d):
        return torch.ones(D, dtype=torch.float64), torch.zeros(D, dtype=torch.float64)
    assert norm.running_mean is not None
    assert norm.running_var is not None
    scale = (norm.running_var.double() + norm.eps).rsqrt()
    return scale, -scale * norm.running_mean.double()


def _shift(model: Descriptor, offset: Tensor) -> None:
    """Add an offset to what M gives: as the mean of a BatchNorm with variance 1, or in the bias."""
    norm, projection = model.output_norm, model.projection
    if isinstance(norm, nn.BatchNorm1d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        norm.running_mean.copy_(-offset)
        norm.running_var.fill_(1 - norm.eps)
    elif bool(offset.any()):
        assert isinstance(projection, nn.Linear)
        assert projection.bias is not None
        projection.bias.copy_(offset)


def _card_of(model: Descriptor) -> Card:
    """The card without scores and limits, which were of the longer rows."""
    card = copy.deepcopy(model.card)
    other = {**card.other, "reduced_from": f"{model.name} {state_digest(model)[:16]}"}
    return replace(card, sha256="", metrics={}, validation={}, match_threshold=None, match_ratio=None, other=other)
