"""Telling how far work has come: pieces add up to so many of so many."""

from collections.abc import Callable, Sequence
from typing import Any

Counting = Callable[[int], object]  # told the size of each finished piece
Progress = Callable[[str, int, int], object]  # told what is being done, how many are done, and of how many

Planned = Callable[[Sequence[dict[str, Any]]], object]  # told what each result will say of itself, before the work


def counting(progress: Progress | None, what: str, total: int) -> Counting | None:
    """A counter of finished pieces that tells `progress` their sum; None where nobody asks."""
    if progress is None:
        return None
    tell, done = progress, 0

    def count(more: int) -> None:
        nonlocal done
        done += more
        tell(what, done, total)

    return count
