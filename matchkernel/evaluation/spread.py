"""Mean and standard deviation of a score over seeds or splits, written as `1.43 ± 0.02`."""

import math
import statistics
from dataclasses import dataclass

from matchkernel.errors import ArgumentError


@dataclass(frozen=True)
class Spread:
    """One score, from one run or from several that differ only in seed or split.

    Attributes:
        values: of the runs.
        estimated: standard deviation that is known in another way, such as by bootstrap, for a single run.
    """

    values: tuple[float, ...]
    estimated: float | None = None

    def __post_init__(self) -> None:
        if not self.values or not all(math.isfinite(value) for value in self.values):
            raise ArgumentError(f"a score needs finite values, got {self.values}")

    @property
    def mean(self) -> float:
        """Mean over the runs."""
        return math.fsum(self.values) / len(self.values)

    @property
    def std(self) -> float | None:
        """Standard deviation over the runs, with n - 1, or the estimated one; None for a single run without one."""
        return statistics.stdev(self.values) if len(self.values) > 1 else self.estimated

    def text(self, digits: int = 2, scale: float = 1.0) -> str:
        """`1.43 ± 0.02`, or `1.43` for a single run.

        Args:
            digits: decimals of both numbers.
            scale: factor for both, such as 100 to show shares in percent.
        """
        spread = "" if self.std is None else f" ± {scale * self.std:.{digits}f}"
        return f"{scale * self.mean:.{digits}f}{spread}"
