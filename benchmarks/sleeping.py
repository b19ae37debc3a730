"""Work that takes a known time and computes nothing, to measure what workers themselves cost."""

import time
from dataclasses import dataclass


@dataclass(frozen=True)
class Sleep:
    """A task is a number of seconds to wait."""

    memory: int = 10**8
    uses_gpu: bool = False

    def open(self, threads: int, gpu: bool) -> "Sleep":
        """Nothing to open."""
        return self

    @property
    def facts(self) -> dict[str, str]:
        """Nothing that could differ."""
        return {}

    def do(self, task: float) -> float:
        """Wait."""
        time.sleep(task)
        return task

    def split(self, task: float) -> list[float]:
        """It cannot be split."""
        return [task]
