"""Progress in a log file: plain lines, few enough to read."""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Self

HALF_A_MINUTE = 30.0


class ProgressLines:
    """Work says nothing in its first half minute; later, each stage as it begins and every half minute how far it is.

    To be passed as a `progress` callback, and used as a context manager: a thread keeps the time, so that lines come
    even while nothing is reported.

    Args:
        what: the first stage.
        unit: what the items are.
        say: prints a line.
        clock: seconds.
    """

    def __init__(
        self, what: str, unit: str, say: Callable[[str], object], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._say, self._clock = say, clock
        self._begun = self._last = clock()
        self._is_over = threading.Event()
        self._begin(what, unit)

    def _begin(self, what: str, unit: str) -> None:
        self._what, self._unit, self._since = what, unit, self._clock()
        self._count: tuple[int, int] | None = None

    def __call__(self, done: int, total: int) -> None:
        """Report the number of items done and their total."""
        before = self._count
        if before is None or done < before[0] or total != before[1]:
            self._first = done, self._clock()  # what was done before this moment tells no speed
        self._count = done, total

    def rename(self, what: str, unit: str = "") -> None:
        """Begin another stage."""
        self._begin(what, unit)
        if self._clock() - self._begun >= HALF_A_MINUTE:
            self._tell(what)

    def announce(self, what: str, unit: str = "") -> None:
        """Begin another stage, and say so in any case."""
        self._begin(what, unit)
        self._tell(what)

    def spoken(self) -> None:
        """The work has said itself how far it is."""
        self._last = self._clock()

    def tick(self) -> None:
        """Say how far the work is, if it is time."""
        if self._clock() - self._last >= HALF_A_MINUTE:
            self._tell(self._line())

    def _tell(self, line: str) -> None:
        self._say(line)
        self.spoken()

    def _line(self) -> str:
        now, count = self._clock(), self._count
        if count is None:
            return f"{self._what}: {in_words(now - self._since)} so far"
        (done, total), (first, then) = count, self._first
        line = f"{self._what}: {done:,} of {total:,} {self._unit}".rstrip()
        if done == first or now == then:
            return line
        rate = (done - first) / (now - then)
        if self._unit:
            line += f", {rate:,.1f} {self._unit}/s" if rate >= 1 else f", {rate:.2g} {self._unit}/s"
        return f"{line}, about {in_words((total - done) / rate)} left" if done < total else line

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._keep_time, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over.set()
        self._thread.join(timeout=1)  # no line comes after the result

    def _keep_time(self) -> None:
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            while not self._is_over.wait(1):
                self.tick()


def in_words(seconds: float) -> str:
    """A time, such as `45 s`, `1 min 30 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    parts = [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest or not minutes)
    return " ".join(parts)
