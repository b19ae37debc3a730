"""The one way to report progress: a callback that is called with the number of items done and their total."""

from collections.abc import Callable

Progress = Callable[[int, int], object]  # (done, total)
Say = Callable[[str], object]  # called with the name of each stage as it begins


def adding(progress: Progress | None, total: int) -> Callable[[int], None]:
    """A function that takes the size of each finished piece and reports their sum; silent without `progress`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return add


def within(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The progress of one part of the work, reported as progress of the whole.

    Args:
        progress: of the whole.
        before: items done before this part.
        total: items of the whole.
    """
    return None if progress is None else lambda done, _: progress(before + done, total)
