"""What Ctrl-C and SIGTERM do: before a verb's work has begun they end the process, afterwards they raise."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from matchkernel.storage.work import announce_end, is_ending

_NUMBERS = (signal.SIGINT, signal.SIGTERM)


def end_at_once() -> None:
    """Make both signals end the process: there is nothing to clean up, and an import may swallow an exception."""
    for number in _NUMBERS:
        if signal.getsignal(number) != signal.SIG_IGN:  # a background job ignores them
            signal.signal(number, _leave)


@contextmanager
def raised_inside() -> Iterator[None]:
    """Make both raise inside the block, so that partial files are removed; no effect if end_at_once was not called."""
    replaced = [number for number in _NUMBERS if signal.getsignal(number) == _leave]
    for number in replaced:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, _leave)


@contextmanager
def not_waiting_for_threads() -> Iterator[None]:
    """If one of them was raised, end the process with the block; Python would wait for threads that still compute."""
    try:
        yield
    except SystemExit as end:
        main = threading.main_thread()
        if is_ending() and any(not thread.daemon for thread in threading.enumerate() if thread is not main):
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):  # nobody reads it, or it is closed
                    stream.flush()
            os._exit(end.code if isinstance(end.code, int) else 1)
        raise


def _raise(number: int, _frame: object) -> None:
    announce_end()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _leave(number: int, _frame: object) -> None:
    if number == signal.SIGINT:
        os.write(2, b"interrupted\n")
    os._exit(128 + number)
