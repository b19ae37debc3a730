"""What the paper reports: facts to compare with, never results of this package."""

from dataclasses import dataclass


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
