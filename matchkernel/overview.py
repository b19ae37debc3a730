"""What there is to choose from: every descriptor with its size, what it accepts, and its trained weights."""

import json
from dataclasses import dataclass

from matchkernel.config import VARIANTS
from matchkernel.counting import count_parameters
from matchkernel.descriptors import build
from matchkernel.weights import available, read_card


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
