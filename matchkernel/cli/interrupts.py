"""What Ctrl-C and SIGTERM do: before a verb's work has begun they end the process, afterwards they raise."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_RAISING: dict[int, Callable[..., object]] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: lambda *_: sys.exit(143),
}


def end_at_once() -> None:
    """Make both signals end the process: there is nothing to clean up, and an import may swallow an exception."""
    for number in _RAISING:
        if signal.getsignal(number) != signal.SIG_IGN:  # a background job ignores them
            signal.signal(number, _leave)


@contextmanager
def raised_inside() -> Iterator[None]:
    """Make both raise inside the block, so that partial files are removed; no effect if end_at_once was not called."""
    replaced = [number for number in _RAISING if signal.getsignal(number) == _leave]
    for number in replaced:
        signal.signal(number, _RAISING[number])
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, _leave)


def _leave(number: int, _frame: object) -> None:
    if number == signal.SIGINT:
        os.write(2, b"interrupted\n")
    os._exit(128 + number)
