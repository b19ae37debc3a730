"""Overviews: the descriptors, the paper's Table 1, the trained weights, and what a weight file records."""

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.weights import Card, available, read_card, read_weights

TABLE_1 = (  # of the paper: variant, s, patch size, parameters after the convolutions, total
    ("fc", None, 32, 1_048_576, 1_334_560),
    ("fc", None, 64, 4_194_304, 4_480_288),
    ("cartesian", 1, 32, 147_584, 433_568),
    ("cartesian", 2, 32, 409_728, 695_712),
    ("polar", 1, 32, 147_584, 433_568),
    ("polar", 2, 32, 409_728, 695_712),
    ("combined", 1, 32, 295_040, 581_024),
    ("combined", 2, 32, 819_328, 1_105_312),
    ("dual", 1, 32, 295_040, 867_008),
    ("dual", 2, 32, 819_328, 1_391_296),
)


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
class CountedRow:
    """A row of Table 1 counted on the shapes of the tensors, next to the paper's numbers."""

    variant: str
    symbol: str
    s: int | None
    patch_size: int
    convolutions: int
    head: int  # after the convolutions: M and m, or W
    total: int
    paper_head: int
    paper_total: int
    independent_of_size: bool  # tested by counting: the same number at twice the patch size

    @property
    def agrees(self) -> bool:
        """Whether the counts equal the paper's."""
        return (self.head, self.total) == (self.paper_head, self.paper_total)


def table_1() -> list[CountedRow]:
    """The paper's Table 1, with every count taken from the shapes of the tensors of that row's descriptor."""
    rows = []
    for variant, s, N, paper_head, paper_total in TABLE_1:
        config, larger = (DescriptorConfig(variant, s=s, patch_size=size) for size in (N, 2 * N))
        counts = config.convolution_parameters, config.head_parameters, config.parameters
        is_free = larger.parameters == config.parameters
        rows.append(CountedRow(variant, VARIANTS[variant].symbol, s, N, *counts, paper_head, paper_total, is_free))
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
    rows = []
    for name in available():
        card = read_card(name)
        config, sampling = _config(card), card.training.get("sampling", {})
        descriptor = config.variant + (f", s={config.s}" if config.s else "")
        training = f"{sampling['steps']:,} x {sampling['pairs']:,}" if {"steps", "pairs"} <= set(sampling) else "-"
        matching = card.metrics.get("validation_matching")
        rows.append(WeightsRow(name, descriptor, config.parameters, config.patch_size, training, matching))
    return rows


def card_facts(weights: str | Path) -> dict[str, Any]:
    """What a weight file records, after checking its digest: the card by names, and the number of parameters."""
    card = read_weights(weights).card
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
    rest = {name: value for name, value in facts.items() if name != "training_sets"}

    def take(*names: str) -> dict[str, Any]:
        return {name: rest.pop(name) for name in names if name in rest}

    config, training, metrics, validation = (
        dict(rest.pop(name, {})) for name in ("config", "training", "metrics", "validation")
    )
    training.pop("model", None)  # the same as the configuration
    data = dict(training.pop("data")) if isinstance(training.get("data"), dict) else {}
    if "trained_on" in rest:
        data.pop("train", None)
    tables_last = sorted(training.items(), key=lambda entry: isinstance(entry[1], dict))
    limits = take("normalization", "match_threshold", "match_ratio")
    sections = {
        "configuration": {"variant": config.pop("variant"), **take("parameters"), **config, **limits},
        "training": {**take("command", "step"), **dict(tables_last)},
        "data": {**take("trained_on", "unknown_from"), **data},
        "scores": {**metrics, **{f"validation_{name}": value for name, value in validation.items()}},
        "licence": take("licence"),
        "file": rest,
    }
    filled = {
        heading: {name: value for name, value in section.items() if value not in (None, "", [], {})}
        for heading, section in sections.items()
    }
    return {heading: section for heading, section in filled.items() if section}


def _config(card: Card) -> DescriptorConfig:
    assert card.config is not None  # read from a file
    return card.config
