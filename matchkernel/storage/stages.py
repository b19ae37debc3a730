"""Where the time goes: seconds by stage of the work, told to whoever asked, at no cost if nobody did."""

import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stages:
    """Seconds by stage; while several run at the same time, in threads, each counts with its share of that time."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running: Counter[str] = Counter()
        self._since = 0.0
        self._lock = threading.Lock()

    def change(self, stage: str, by: int) -> None:
        """One more block of this stage runs (1), or one less (-1)."""
        with self._lock:
            now, total = time.perf_counter(), self._running.total()
            for name, count in self._running.items():
                self.seconds[name] = self.seconds.get(name, 0.0) + (now - self._since) * count / (total or 1)
            self._since = now
            self._running[stage] += by

    def rounded(self) -> dict[str, float]:
        """The seconds for JSON."""
        return {name: round(seconds, 6) for name, seconds in self.seconds.items()}


_listening: ContextVar[Stages | None] = ContextVar("who asked for the seconds", default=None)


@contextmanager
def recording() -> Iterator[Stages]:
    """Collect the seconds of the stages inside the block; a recording around this one gets them too, at its end."""
    outer, inner = _listening.get(), Stages()
    token = _listening.set(inner)
    try:
        yield inner
    finally:
        _listening.reset(token)
        if outer is not None:
            for stage, seconds in inner.seconds.items():
                outer.seconds[stage] = outer.seconds.get(stage, 0.0) + seconds


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The block belongs to this stage."""
    listening = _listening.get()
    if listening is None:
        yield
        return
    listening.change(name, 1)
    try:
        yield
    finally:
        listening.change(name, -1)
