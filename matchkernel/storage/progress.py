"""Progress of long work: callbacks for items done and for messages, and the seconds that each stage takes."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Progress = Callable[[int, int], object]  # (done, total)
Say = Callable[[str], object]  # called with the name of each stage as it begins


def progress_counter(progress: Progress | None, total: int) -> Callable[[int], None]:
    """A function that takes the size of each finished piece and reports their sum; silent without `progress`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return add


def part_progress(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The progress of one part of the work, reported as progress of the whole.

    Args:
        progress: of the whole.
        before: items done before this part.
        total: items of the whole.
    """
    return None if progress is None else lambda done, _: progress(before + done, total)


class StageTimes:
    """Seconds by stage; time in which several run, in threads, is divided between them."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._running: Counter[str] = Counter()
        self._since = 0.0
        self._lock = threading.Lock()

    def change(self, stage: str, by: int) -> None:
        """One more block of this stage runs (1), or one less (-1)."""
        with self._lock:
            now, total = time.perf_counter(), self._running.total()
            for name, count in self._running.items():
                self.seconds[name] += (now - self._since) * count / (total or 1)
            self._since = now
            self._running[stage] += by

    def rounded(self) -> dict[str, float]:
        """The seconds for JSON."""
        return {name: round(seconds, 6) for name, seconds in self.seconds.items()}


_recording: ContextVar[StageTimes | None] = ContextVar("recording", default=None)


@contextmanager
def recording() -> Iterator[StageTimes]:
    """Measure the stages inside the block; at its end, the seconds are added to a recording around it."""
    outer, inner = _recording.get(), StageTimes()
    token = _recording.set(inner)
    try:
        yield inner
    finally:
        _recording.reset(token)
        if outer is not None:
            for name, seconds in inner.seconds.items():
                outer.seconds[name] += seconds


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The time of the block counts for this stage, if somebody records."""
    times = _recording.get()
    if times is None:
        yield
        return
    times.change(name, 1)
    try:
        yield
    finally:
        times.change(name, -1)
