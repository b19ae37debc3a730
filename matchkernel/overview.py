"""What there is to choose from: every descriptor with its size, what it accepts, and its trained weights."""

import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.config import VARIANTS
from matchkernel.counting import count_parameters
from matchkernel.descriptors import build
from matchkernel.weights import available, load, read_card


@dataclass(frozen=True)
class OverviewRow:
    """One descriptor at its default settings."""

    variant: str
    symbol: str
    parameters: int
    D: int
    sizes: str
    weights: list[str]


def overview() -> list[OverviewRow]:
    """A row for each descriptor, counted from a model built at the defaults (s = 2, N = 32)."""
    trained: dict[str, list[str]] = {variant: [] for variant in VARIANTS}
    for name in available():
        trained[json.loads(read_card(name)["config"])["variant"]].append(name)
    rows = []
    for name, variant in VARIANTS.items():
        model = build(name)
        sizes = "multiples of 4" if variant.any_size else f"as built ({model.config.patch_size})"
        rows.append(
            OverviewRow(name, variant.symbol, count_parameters(model), model.config.D or 0, sizes, trained[name])
        )
    return rows


@dataclass(frozen=True)
class WeightsRow:
    """Trained weights of the package."""

    name: str
    descriptor: str  # with its s, where it has one
    parameters: int
    patch_size: int
    training: str  # steps x pairs
    matching: float | None  # mAP in percent on validation, where the card says it


def trained_weights() -> list[WeightsRow]:
    """A row for each of the weights that came with the package."""
    return [_weights_row(name) for name in available()]


def card_facts(weights: str | Path) -> dict[str, Any]:
    """What a weight file says of itself: its card, with tables where words hold JSON, and its size in parameters."""
    model, facts = load(weights), dict[str, Any](read_card(weights))
    for key, word in facts.items():
        with suppress(ValueError, RecursionError):
            value = json.loads(word)
            facts[key] = value if isinstance(value, dict | list) else word
    return {"parameters": count_parameters(model), **dict(sorted(facts.items()))}


def _weights_row(name: str) -> WeightsRow:
    facts = card_facts(name)
    config, sampling = facts["config"], _table(_table(facts, "training"), "sampling")
    descriptor = config["variant"] + (f", s={config['s']}" if config.get("s") else "")
    training = f"{sampling['steps']:,} x {sampling['pairs']:,}" if {"steps", "pairs"} <= set(sampling) else "-"
    matching = _table(facts, "metrics").get("validation_matching")
    return WeightsRow(name, descriptor, facts["parameters"], config["patch_size"], training, matching)


def _table(facts: dict[str, Any], key: str) -> dict[str, Any]:
    value = facts.get(key)
    return value if isinstance(value, dict) else {}
