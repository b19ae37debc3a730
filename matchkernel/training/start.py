"""Start a run from trained weights: which weights fit, and which layers continue to learn."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from matchkernel.errors import ArgumentError
from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor, check_patch_size
from matchkernel.model.weights import load, state_digest
from matchkernel.runtime.weights import Card, read_card
from matchkernel.storage.settings import differences

FREE = ("D", "patch_size", "dropout")  # settings of the model that may differ from those of the weights
CONVOLUTION = 3  # modules of a convolution in a backbone: itself, BatchNorm, ReLU


class Start:
    """What a run started from.

    Args:
        base: the trained model.
        has_new_head: the run has another D than the weights, so that its head starts at random.
    """

    def __init__(self, base: Descriptor, *, has_new_head: bool) -> None:
        self.card, digest = base.card, state_digest(base)
        self.digest = hashlib.sha256(f"start {digest}".encode()).hexdigest()
        name = f"{base.name} {digest[:16]}"
        self.described = f"{name}{' with a new head' if has_new_head else ''}"
        self.unknown = [name] if base.card.has_unknown_sets else []

    def added_to(self, card: Card) -> Card:
        """The card of weights trained from this start: what was trained on before counts as well."""
        before, own = self.card.seen_sets, card.training_sets
        names = [name for name in (self.card.trained_on, card.trained_on) if name]
        return replace(
            card,
            trained_on=", ".join(names) or None,
            training_sets=(*before, *(entry for entry in own if entry not in before)),
            licence=self.card.licence,
            other={**card.other, "started_from": self.described},
        )


def base_config(weights: str, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of trained weights, as the defaults of a model that starts from them.

    Args:
        weights: a file, or a name of the package's weights.
        wanted: the run's own settings of the model.
    """
    config = read_card(weights).config
    assert config is not None  # read
    settings = config.to_dict()
    _check_fits(weights, settings, {**settings, **wanted})
    if config.variant in ("sum", "concat"):
        settings.pop("D")  # follows from the other settings
    return settings


def _check_fits(weights: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse a model whose settings are not those of the weights, except the ones that may differ."""
    for name, theirs, mine in differences(found, wanted):
        if name not in FREE and theirs != mine:
            raise ArgumentError(
                f"start.weights {weights} have {name} = {theirs!r}, the model {mine!r}: only D, the patch size and"
                f" dropout may differ; leave model.{name} out"
            )


@torch.no_grad()
def start_from(weights: str, model: Descriptor) -> Start:
    """Copy trained weights and their BatchNorm statistics into a new model.

    A model with another D than the weights keeps its own head: M or W, and the BatchNorm after it.
    """
    base = load(weights)
    _check_fits(weights, base.config.to_dict(), model.config.to_dict())
    check_patch_size(base.config, model.config.patch_size)
    has_new_head, own = base.config.D != model.config.D, dict(model.state_dict())
    for name, tensor in base.state_dict().items():
        if not (has_new_head and name.startswith(("projection.", "output_norm."))):
            own[name].copy_(tensor)
    return Start(base, has_new_head=has_new_head)


def fix_layers(model: Descriptor, layers: str) -> None:
    """Train only some layers, in place: "all", "last" (the last convolution and the head), or "head".

    A fixed layer keeps its weights; its BatchNorm keeps its statistics and normalises by them in training too.
    """
    if layers == "all":
        return
    for backbone in model.backbones:
        assert isinstance(backbone, Backbone)
        modules: list[nn.Module] = list(backbone.layers)
        for module in modules if layers == "head" else modules[:-CONVOLUTION]:
            module.eval().requires_grad_(False)
