"""Count the parameters of live models, and the paper's Table 1 with them."""

from dataclasses import dataclass
from typing import Any

import torch

from matchkernel.model.config import VARIANTS
from matchkernel.model.descriptors import Descriptor, build
from matchkernel.model.paper import TABLE_1, PaperCount


@dataclass(frozen=True)
class CountedRow:
    """A row of Table 1 counted from a live model, beside the paper's."""

    variant: str
    symbol: str
    s: int | None
    patch_size: int
    convolutions: int
    head: int
    total: int
    paper_head: int
    paper_total: int
    independent_of_size: bool  # counted: the same descriptor at twice the patch size has as many

    @property
    def agrees(self) -> bool:
        """Whether the counts are the paper's."""
        return (self.head, self.total) == (self.paper_head, self.paper_total)


def count_parameters(model: Descriptor) -> int:
    """Learned numbers of a model."""
    return sum(parameter.numel() for parameter in model.parameters())


def table_1() -> list[CountedRow]:
    """The paper's Table 1, every count taken from a model built for it."""
    with torch.device("meta"):  # shapes are enough to count, and take no time to fill
        return [_counted(row) for row in TABLE_1]


def _counted(row: PaperCount) -> CountedRow:
    settings: dict[str, Any] = {} if row.s is None else {"s": row.s}
    model = build(row.variant, patch_size=row.patch_size, **settings)
    larger = build(row.variant, patch_size=2 * row.patch_size, **settings)
    total = count_parameters(model)
    head = sum(parameter.numel() for parameter in model.projection.parameters())
    return CountedRow(
        variant=row.variant,
        symbol=VARIANTS[row.variant].symbol,
        s=row.s,
        patch_size=row.patch_size,
        convolutions=total - head,
        head=head,
        total=total,
        paper_head=row.head,
        paper_total=row.total,
        independent_of_size=count_parameters(larger) == total,
    )
