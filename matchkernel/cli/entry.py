"""The `matchkernel` command. Says what to install where the command line's packages are missing."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from matchkernel.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in ("typer", "rich"):
            raise
        print("the command line needs typer, rich and Pillow: pip install 'matchkernel[cli]'", file=sys.stderr)
        sys.exit(2)
    app()
