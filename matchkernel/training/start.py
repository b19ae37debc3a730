"""Start a run from trained weights: which fit, and which layers go on learning."""

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError
from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor, check_patch_size
from matchkernel.model.weights import load, state_digest
from matchkernel.runtime.card import Card, read_card

FREE = ("D", "patch_size", "dropout")  # settings of the model that may differ from those of the weights
CONVOLUTION = 3  # modules of a convolution in a backbone: itself, BatchNorm, ReLU


class Start:
    """What a run started from.

    Args:
        base: the trained model.
        layers: which layers are trained.
        has_new_head: the head has another D than the weights, and starts at random.
    """

    def __init__(self, base: Descriptor, layers: str, *, has_new_head: bool) -> None:
        self.card, self.layers, self.has_new_head = base.card, layers, has_new_head
        digest = state_digest(base)
        self.digest = hashlib.sha256(f"start {digest}".encode()).hexdigest()
        self.described = f"{base.name} {digest[:16]}{' with a new head' if has_new_head else ''}"

    def added_to(self, card: Card) -> Card:
        """The card of weights trained from this start: what was trained on before counts as well."""
        before, own = self.card.training_sets, card.training_sets
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
        wanted: settings of the model that the run gives itself.
    """
    config = read_card(weights).config
    assert config is not None  # read
    settings = config.to_dict()
    _check_fits(weights, settings, wanted)
    if config.variant in ("sum", "concat"):
        settings.pop("D")  # follows from the other settings
    return settings


def _check_fits(weights: str, found: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuse settings of a model that its weights do not have, except those that may differ."""
    for name, value in wanted.items():
        if name not in FREE and value != found.get(name):
            raise ArgumentError(
                f"start.weights {weights} have {name} = {found.get(name)!r}, the model {value!r}: only D, the patch"
                f" size and dropout may differ; leave model.{name} out"
            )


@torch.no_grad()
def start_from(weights: str, layers: str, model: Descriptor) -> Start:
    """Copy trained weights and their BatchNorm statistics into a new model, and fix the layers that are not trained.

    A model with another D than the weights keeps its own head, M or W and the BatchNorm after it.
    """
    base = load(weights)
    _check_fits(weights, base.config.to_dict(), model.config.to_dict())
    try:
        check_patch_size(base.config, model.config.patch_size)
    except ArgumentError as error:
        raise ArgumentError(f"start.weights {weights}: {error}") from None
    is_new = base.config.D != model.config.D
    kept = {
        name: tensor
        for name, tensor in base.state_dict().items()
        if not (is_new and name.startswith(("projection.", "output_norm.")))
    }
    own: dict[str, Tensor] = dict(model.state_dict())
    for name, tensor in kept.items():
        own[name].copy_(tensor)
    return Start(base, layers, has_new_head=is_new)


def fix_layers(model: Descriptor, layers: str) -> None:
    """Let only some layers learn, in place: "all", "last" (the last convolution and the head), or "head".

    A fixed layer keeps its weights, and its BatchNorm the statistics, by which it normalises also in training.
    """
    if layers == "all":
        return
    for backbone in model.backbones:
        assert isinstance(backbone, Backbone)
        modules: list[nn.Module] = list(backbone.layers)
        for module in modules if layers == "head" else modules[:-CONVOLUTION]:
            module.eval().requires_grad_(False)
