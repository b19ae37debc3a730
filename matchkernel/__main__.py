"""The start of `matchkernel` and of `python -m matchkernel`, before the packages of the command line are imported."""

import errno
import io
import os
import signal
import sys
import threading
from contextlib import suppress

from matchkernel.storage.work import end_at_once, is_ending


def main() -> None:
    """Run the command line."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) != signal.SIG_IGN:  # a background job ignores them
            signal.signal(number, end_at_once)
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # without Greek letters: question marks instead of a traceback
    try:
        os.getcwd()  # noqa: PTH109 - pathlib takes long to import
    except OSError:
        _give_up("error: the current directory no longer exists")
    try:
        from matchkernel.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        _give_up("the command line needs typer and rich: pip install --force-reinstall typer rich")
    try:
        app()
    except SystemExit as end:
        _end_interrupted_threads(end)
        _write_what_is_left(end)
        raise


def _write_what_is_left(end: SystemExit) -> None:
    """Output that cannot be written is an error of one line: Python itself would tell it at its end, in two."""
    try:
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not end.code and not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"error: {error}\n")
        end.code = end.code or 1


def _open_missing_streams() -> None:
    """If stdout is closed, what is printed must fail, not vanish; and no file may be opened in its place."""
    while (place := os.open(os.devnull, os.O_RDONLY)) <= 2:
        pass
    os.close(place)
    if sys.stdout is None:
        sys.stdout = io.TextIOWrapper(_Closed(), write_through=True)


class _Closed(io.RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, _: object) -> int:
        raise OSError(errno.EBADF, "stdout is closed")


def _give_up(message: str) -> None:
    sys.stderr.write(f"{message}\n")
    sys.exit(2)


def _end_interrupted_threads(end: SystemExit) -> None:
    """After a signal, end the process now: Python would wait for threads that still compute."""
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    if is_ending() and not all(thread.daemon for thread in others):
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # nobody reads it, or it is closed
                stream.flush()
        os._exit(end.code if isinstance(end.code, int) else 1)


if __name__ == "__main__":
    main()
