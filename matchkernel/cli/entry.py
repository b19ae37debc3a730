"""The `matchkernel` command: what must be settled before the command line itself can be loaded."""

import io
import signal
import sys


def main() -> None:
    """Run the command line."""
    # A terminated process ends like any other: what it was writing is removed on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without Greek letters gets question marks, no traceback
    try:
        from matchkernel.cli.app import app
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("the command line needs typer, rich and Pillow: pip install 'matchkernel[cli]'", file=sys.stderr)
        sys.exit(2)
    app()
