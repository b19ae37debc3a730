"""Overview of the descriptors, with their sizes and the patch sizes they accept, and of the trained weights."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.runtime.card import Card, available, read_card
from matchkernel.runtime.config import VARIANTS, DescriptorConfig


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
    """One row per descriptor at its default settings (s = 2, N = 32)."""
    trained: dict[str, list[str]] = {variant: [] for variant in VARIANTS}
    for name in available():
        trained[_config(read_card(name)).variant].append(name)
    rows = []
    for name, variant in VARIANTS.items():
        config = DescriptorConfig(name)
        sizes = "multiples of 4" if variant.any_size else f"as built ({config.patch_size})"
        rows.append(OverviewRow(name, variant.symbol, config.parameters, config.D or 0, sizes, trained[name]))
    return rows


@dataclass(frozen=True)
class WeightsRow:
    """Trained weights of the package."""

    name: str
    descriptor: str  # with its s, where it has one
    parameters: int
    patch_size: int
    training: str  # steps x pairs
    matching: float | None  # mAP in percent on validation, if the card has it


def trained_weights() -> list[WeightsRow]:
    """One row for each of the weights shipped with the package."""
    return [_weights_row(name) for name in available()]


def card_facts(weights: str | Path) -> dict[str, Any]:
    """What a weight file records, after checking its digest: the card by names, and the number of parameters."""
    card = read_card(weights, check_digest=True)
    config = _config(card)
    facts = {field.name: getattr(card, field.name) for field in dataclasses.fields(card) if field.name != "other"}
    sets = [{"name": name, "patches_sha256": sha256} for name, sha256 in card.training_sets]
    facts |= {"config": config.to_dict(), "training_sets": sets, **card.other}
    filled = {name: value for name, value in sorted(facts.items()) if value not in (None, "", [], {})}
    return {"parameters": config.parameters} | filled


def card_sections(facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The facts of a card grouped for a reader: heading -> name -> value, without empty ones.

    Duplicates and the hashes of the training sets are left out. Names that the package does not know are under "file".

    Args:
        facts: from card_facts.
    """
    rest = dict(facts)
    config, training, metrics, validation = (
        _take(rest, key) for key in ("config", "training", "metrics", "validation")
    )
    data = _take(training, "data")
    training.pop("model", None)  # the same as the configuration
    rest.pop("training_sets", None)
    if "trained_on" in rest:
        data.pop("train", None)
    sections = {
        "configuration": {
            "variant": config.pop("variant", None),
            "parameters": rest.pop("parameters", None),
            **config,
            "normalization": rest.pop("normalization", None),
            "match_threshold": rest.pop("match_threshold", None),
            "match_ratio": rest.pop("match_ratio", None),
        },
        "training": {
            "command": rest.pop("command", None),
            "step": rest.pop("step", None),
            **dict(sorted(training.items(), key=_is_table)),
        },
        "data": {"trained_on": rest.pop("trained_on", None), **data},
        "scores": {**metrics, **{f"validation_{name}": value for name, value in validation.items()}},
        "licence": {"licence": rest.pop("licence", None)},
        "file": rest,
    }
    filled = {
        heading: {name: value for name, value in section.items() if value is not None and value not in ("", [], {})}
        for heading, section in sections.items()
    }
    return {heading: section for heading, section in filled.items() if section}


def _weights_row(name: str) -> WeightsRow:
    card = read_card(name)
    config, sampling = _config(card), card.training.get("sampling", {})
    descriptor = config.variant + (f", s={config.s}" if config.s else "")
    training = f"{sampling['steps']:,} x {sampling['pairs']:,}" if {"steps", "pairs"} <= set(sampling) else "-"
    matching = card.metrics.get("validation_matching")
    return WeightsRow(name, descriptor, config.parameters, config.patch_size, training, matching)


def _config(card: Card) -> DescriptorConfig:
    assert card.config is not None  # read from a file
    return card.config


def _is_table(entry: tuple[str, Any]) -> bool:
    return isinstance(entry[1], dict)


def _take(facts: dict[str, Any], key: str) -> dict[str, Any]:
    """Remove a table and return a copy of it; a value that is not a table is left in place."""
    return dict(facts.pop(key)) if isinstance(facts.get(key), dict) else {}
