"""The command line as a whole: its verbs and its options for all of them."""

from typing import Annotated

import typer

import matchkernel
from matchkernel.cli import (
    colmap,
    data,
    demo,
    describe,
    evaluate,
    export,
    extract,
    info,
    match,
    params,
    plot,
    report,
    train,
)
from matchkernel.cli.console import show_traceback


def _say_version(wanted: bool) -> None:
    if wanted:
        print(f"matchkernel {matchkernel.__version__}")
        raise typer.Exit


app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command()(info.info)
app.command()(params.params)
app.command()(describe.describe)
app.command()(extract.extract)
app.command()(match.match)
app.command()(demo.demo)
app.command()(colmap.colmap)
app.command()(export.export)
app.command()(train.train)
app.command()(report.report)
app.add_typer(plot.app, name="plot")
app.add_typer(data.app, name="data")
app.add_typer(evaluate.app, name="evaluate")


@app.callback()
def options(
    debug: Annotated[bool, typer.Option(help="show the traceback of an error")] = False,
    version: Annotated[
        bool, typer.Option("--version", is_eager=True, callback=_say_version, help="say it and end")
    ] = False,
) -> None:
    """Local patch descriptors with explicit spatial encoding."""
    show_traceback.set(debug)
