"""The command line as a whole: its verbs and its options for all of them."""

from typing import Annotated

import typer

from matchkernel.cli import describe, info, params, plot
from matchkernel.cli.console import show_traceback

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(info.info)
app.command()(params.params)
app.command()(describe.describe)
app.add_typer(plot.app, name="plot")


@app.callback()
def options(debug: Annotated[bool, typer.Option(help="show the traceback of an error")] = False) -> None:
    """Local patch descriptors with explicit spatial encoding."""
    show_traceback.set(debug)
