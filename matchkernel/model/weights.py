"""Save and load weight files: safetensors whose metadata holds the configuration, a card and a digest of everything."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError, WeightsError
from matchkernel.model.descriptors import Descriptor, check_model, why_size_is_fixed
from matchkernel.runtime.config import VARIANTS
from matchkernel.runtime.hub import ADDRESS
from matchkernel.runtime.weights import NORMALIZATION, Card, Weights, bad_numbers, read_weights
from matchkernel.storage.tensors import as_stored, as_tensor, write_tensors


def save(model: Descriptor, path: str | Path, card: Card | Mapping[str, str] | None = None) -> None:
    """Write a model's weights with its configuration, atomically.

    Args:
        model: the descriptor; not a folded copy, from which the learned tensors cannot be recovered.
        path: file to write, .safetensors.
        card: what is known about the weights, as a Card or as strings by name (default: the card of the file the model
            was loaded from; pass another, or {}, for weights that have changed since).

    Example:
        >>> import matchkernel, tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> matchkernel.save(matchkernel.build("sum"), f"{folder.name}/mine.safetensors", {"licence": "CC0-1.0"})
        >>> matchkernel.load(f"{folder.name}/mine.safetensors").card.licence
        'CC0-1.0'
        >>> folder.cleanup()
    """
    check_model(model)
    if model.is_folded:
        raise ArgumentError("a folded model cannot be saved: save the model it was folded from")
    if card is None:
        card = model.card
    elif not isinstance(card, Card):
        if not isinstance(card, Mapping):
            raise ArgumentTypeError(f"card must be a Card or strings by name, got {type(card).__name__}")
        card = Card.from_strings(card)
    if bad := bad_numbers(weights_of(model)):
        raise ArgumentError(f"the model contains {bad}: not saved")
    config = json.dumps(model.config.to_dict(), sort_keys=True)
    metadata = {"format": "pt", "config": config, "normalization": NORMALIZATION, **card.to_strings()}
    write_tensors(path, _tensors(model), metadata)


def load(name_or_path: str | Path, *, patch_size: int | None = None, revision: str | None = None) -> Descriptor:
    """Read a descriptor, ready for inference (eval mode, on the CPU). No code is executed, and nothing is downloaded
    unless a hub is named.

    Args:
        name_or_path: a name of `available()`, a .safetensors file, a folder of `save_pretrained`, or hf://owner/name,
            which the library huggingface_hub downloads.
        patch_size: prepare the model for this size instead of the one it was trained at; not for `fc` and `concat`.
        revision: of the repository on the hub: a branch, a tag or a commit.

    Example:
        >>> import matchkernel
        >>> matchkernel.load("tiny").config.D
        128
    """
    if revision is not None:
        if not str(name_or_path).startswith(ADDRESS):
            raise ArgumentError(f"a revision belongs to a model of a hub, hf://owner/name, got {name_or_path}")
        name_or_path = f"{name_or_path}@{revision}"
    weights = read_weights(name_or_path)
    if patch_size not in (None, weights.config.patch_size) and not VARIANTS[weights.config.variant].any_size:
        raise WeightsError(f"{name_or_path}: {why_size_is_fixed(weights.config)}, requested {patch_size} px")
    return to_descriptor(weights, patch_size)


def to_descriptor(weights: Weights, patch_size: int | None = None) -> Descriptor:
    """The descriptor of these weights, ready for inference; the arguments are those of `load`."""
    config = weights.config
    if patch_size is not None and patch_size != config.patch_size:
        config = dataclasses.replace(config, patch_size=patch_size)
    tensors = {name: as_tensor(stored) for name, stored in weights.tensors.items()}
    with torch.device("meta"):
        model = Descriptor(config)
    model = model._apply(_on_cpu).to(next(iter(tensors.values())).dtype)  # type: ignore[no-untyped-call]
    model.load_state_dict(tensors)
    model.name, model.card = weights.name, weights.card
    return model.eval()


def weights_of(model: Descriptor) -> Weights:
    """The weights of a descriptor, or the tensors of a folded copy; on a CPU they share its memory."""
    return Weights(model.name, model.config, model.card, as_stored(_tensors(model)))


def state_digest(model: Descriptor) -> str:
    """sha256 of what determines a model's output: its configuration and tensors, but not its card."""
    return weights_of(model).state_sha256


def _tensors(model: Descriptor) -> dict[str, Tensor]:
    return {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}


def _on_cpu(tensor: Tensor) -> Tensor:
    """Memory for a tensor of the meta device; to_empty(), for the same, would import sympy: a second."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu")
