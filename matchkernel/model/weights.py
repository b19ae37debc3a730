"""Save and load weight files: safetensors whose metadata holds the configuration, a card and a digest of everything."""

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError, WeightsError
from matchkernel.model.card import NORMALIZATION, Card, card_of, damaged, find_weights
from matchkernel.model.config import VARIANTS, DescriptorConfig
from matchkernel.model.descriptors import Descriptor, check_model, why_size_is_fixed
from matchkernel.storage.tensors import digest, first_not_finite, readable, write_tensors

AT_SIZE = "statistics."  # names of BatchNorm statistics by patch size: statistics.48.<name>
FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors calls them


def save(model: Descriptor, path: str | Path, card: Card | Mapping[str, str] | None = None) -> None:
    """Write a model's weights with its configuration, atomically.

    Args:
        model: the descriptor; not a folded copy, from which the learned tensors cannot be recovered. Statistics for
            several patch sizes are written too, unless the model has been trained since they were measured.
        path: file to write, .safetensors.
        card: what is known about the weights, as a Card or as strings by name (default: the card of the file the model
            was loaded from; pass another, or {}, for weights that have changed since).
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
    named = dict(model.state_dict())
    for size, statistics in model.current_size_statistics().items():
        named |= {f"{AT_SIZE}{size}.{name}": tensor.clone() for name, tensor in statistics.items()}
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in named.items()}
    bad = _bad_numbers(tensors)
    if bad:
        raise ArgumentError(f"the model contains {bad}: not saved")
    config = json.dumps(model.config.to_dict(), sort_keys=True)
    metadata = {"format": "pt", "config": config, "normalization": NORMALIZATION, **card.to_strings()}
    write_tensors(path, tensors, metadata)


def load(name_or_path: str | Path, *, patch_size: int | None = None) -> Descriptor:
    """Read a descriptor, ready for inference (eval mode, on the CPU). Nothing is downloaded and no code is executed.

    Args:
        name_or_path: a name of `available()`, or a .safetensors file.
        patch_size: prepare the model for this size instead of the one it was trained at; not for `fc` and `concat`. If
            the model was also trained at this size, BatchNorm uses the statistics for it.
    """
    path = find_weights(name_or_path)
    with readable(path):
        metadata, tensors, card = _read(path)
    assert card.config is not None  # read
    config = card.config
    if card.sha256 != digest(metadata, tensors):
        raise WeightsError(damaged(path))
    bad = _bad_numbers(tensors)
    if bad:
        raise WeightsError(f"{path}: holds {bad}")
    if patch_size is not None and patch_size != config.patch_size:
        config = _at_size(config, patch_size, path)
    model = _empty(config)._apply(_on_cpu)  # type: ignore[no-untyped-call]
    model = model.to(next(iter(tensors.values())).dtype)
    model.load_state_dict({name: tensor for name, tensor in tensors.items() if not name.startswith(AT_SIZE)})
    model.size_statistics = _size_statistics(tensors)
    if model.size_statistics:  # including those of its own size
        own = {name: tensor.clone() for name, tensor in model.statistics().items()}
        model.size_statistics.setdefault(card.config.patch_size, own)
    if patch_size is not None:
        model.use_statistics(patch_size)
    model.name, model.card = path.stem, card
    return model.eval()


def _read(path: Path) -> tuple[dict[str, str], dict[str, Tensor], Card]:
    """Metadata, tensors and card. The tensors are read only after their names and shapes have been checked."""
    with safe_open(path, framework="pt") as file:
        metadata = dict(file.metadata() or {})
        card = card_of(path, metadata)
        config = card.config
        assert config is not None  # read
        model = _empty(config)
        wanted = {name: list(tensor.shape) for name, tensor in model.state_dict().items()}
        found = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (not a dict)
        if VARIANTS[config.variant].any_size:
            for size in _sizes(found):
                wanted |= {f"{AT_SIZE}{size}.{name}": list(tensor.shape) for name, tensor in model.statistics().items()}
        difference = _difference(wanted, found)
        if difference:
            raise WeightsError(
                f"{path}: does not contain the weights of {config.variant!r} that it claims: {difference}"
            )
        for name in wanted:
            kind = file.get_slice(name).get_dtype()
            fitting = ("I64",) if name.endswith(".num_batches_tracked") else FLOATS
            if kind not in fitting:
                raise WeightsError(f"{path}: tensor {name} is of kind {kind}, wanted {' or '.join(fitting)}")
        return metadata, {name: file.get_tensor(name) for name in wanted}, card


def _bad_numbers(tensors: Mapping[str, Tensor]) -> str:
    """What makes these tensors unusable in a model, with all of them in the precision of the first."""
    dtype = next(iter(tensors.values())).dtype
    bad = first_not_finite({name: t.to(dtype) if t.is_floating_point() else t for name, t in tensors.items()})
    if bad:
        return f"NaN or infinite values in {bad}, as {dtype}"
    bad = next((name for name, t in tensors.items() if name.endswith(".running_var") and bool((t < 0).any())), None)
    return f"negative variances in {bad}" if bad else ""


def _sizes(names: Iterable[str]) -> list[int]:
    """The patch sizes for which a file has statistics; malformed names are left to be reported as unexpected."""
    found = {match[1] for name in names if (match := re.match(rf"{re.escape(AT_SIZE)}([1-9]\d{{0,3}})\.", name))}
    return sorted(map(int, found))


def _size_statistics(tensors: Mapping[str, Tensor]) -> dict[int, dict[str, Tensor]]:
    """Patch size -> name in the state dict -> statistics."""
    prefixes = {size: f"{AT_SIZE}{size}." for size in _sizes(tensors)}
    return {
        size: {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
        for size, prefix in prefixes.items()
    }


def _empty(config: DescriptorConfig) -> Descriptor:
    with torch.device("meta"):
        return Descriptor(config)


def _on_cpu(tensor: Tensor) -> Tensor:
    """Memory for a tensor of the meta device; to_empty(), for the same, would import sympy: a second."""
    return torch.empty(tensor.shape, dtype=tensor.dtype)


def _difference(wanted: dict[str, list[int]], found: dict[str, list[int]]) -> str:
    for name in sorted(wanted.keys() | found.keys()):
        if name not in found:
            return f"tensor {name} is missing"
        if name not in wanted:
            return f"tensor {name[:80]!r} is unexpected"
        if wanted[name] != found[name]:
            return f"tensor {name} has shape {found[name]}, expected {wanted[name]}"
    return ""


def _at_size(config: DescriptorConfig, patch_size: int, path: Path) -> DescriptorConfig:
    if not VARIANTS[config.variant].any_size:
        raise WeightsError(f"{path}: {why_size_is_fixed(config)}, requested {patch_size} px")
    return dataclasses.replace(config, patch_size=patch_size)


def state_digest(model: Descriptor) -> str:
    """sha256 of what determines a model's output: its configuration and tensors, but not its card."""
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    return digest({"config": str(model.config.to_dict())}, tensors)
