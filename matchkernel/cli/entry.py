"""The `matchkernel` command: what has to be done before the command line itself is loaded."""

import io
import os
import sys

from matchkernel.cli.interrupts import end_at_once, not_waiting_for_threads


def main() -> None:
    """Run the command line."""
    end_at_once()
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
    with not_waiting_for_threads():
        app()


def _give_up(message: str) -> None:
    print(message, file=sys.stderr)
    sys.exit(2)
