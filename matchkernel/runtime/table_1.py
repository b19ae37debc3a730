"""The paper's Table 1: parameters counted on the shapes of the tensors, next to the numbers the paper reports."""

from dataclasses import dataclass

from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.weights import count_parameters


@dataclass(frozen=True)
class PaperCount:
    """One row of the paper's Table 1."""

    variant: str
    s: int | None
    patch_size: int
    head: int  # parameters after the convolutions: W, or M and m
    total: int


TABLE_1 = (
    PaperCount("fc", None, 32, 1_048_576, 1_334_560),
    PaperCount("fc", None, 64, 4_194_304, 4_480_288),
    PaperCount("cartesian", 1, 32, 147_584, 433_568),
    PaperCount("cartesian", 2, 32, 409_728, 695_712),
    PaperCount("polar", 1, 32, 147_584, 433_568),
    PaperCount("polar", 2, 32, 409_728, 695_712),
    PaperCount("combined", 1, 32, 295_040, 581_024),
    PaperCount("combined", 2, 32, 819_328, 1_105_312),
    PaperCount("dual", 1, 32, 295_040, 867_008),
    PaperCount("dual", 2, 32, 819_328, 1_391_296),
)


@dataclass(frozen=True)
class CountedRow:
    """A row of Table 1 counted on shapes, next to the paper's numbers."""

    variant: str
    symbol: str
    s: int | None
    patch_size: int
    convolutions: int
    head: int
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
    return [_counted(row) for row in TABLE_1]


def _counted(row: PaperCount) -> CountedRow:
    config = DescriptorConfig(variant=row.variant, s=row.s, patch_size=row.patch_size)
    larger = DescriptorConfig(variant=row.variant, s=row.s, patch_size=2 * row.patch_size)
    total, head = count_parameters(config), count_parameters(config, "projection.")
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
