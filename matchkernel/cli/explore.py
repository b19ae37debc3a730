"""matchkernel explore"""

from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import say, user_errors
from matchkernel.cli.options import PhotoModel


def explore(
    a: Annotated[Path | None, typer.Argument(metavar="A", help="photo (default: a sample pair)")] = None,
    b: Annotated[Path | None, typer.Argument(metavar="B", help="another photo")] = None,
    model: PhotoModel = "light-wide",
    compare: Annotated[str | None, typer.Option(help="second model, side by side with --model, for --save")] = None,
    keypoints: Annotated[int, typer.Option(help="maximum number of keypoints per photo at the start")] = 2000,
    results: Annotated[
        list[Path] | None,
        typer.Option(help="results of `matchkernel evaluate` to show, or folders of them; may be given several times"),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="write one self-contained .html file for these photos instead of serving")
    ] = None,
    matches: Annotated[
        int,
        typer.Option(
            help="maximum number of matches in the saved file, of all models together: an even choice by distance"
        ),
    ] = 300,
    host: Annotated[str, typer.Option(help="name or address to serve at")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="port to serve at; 0 for any free one")] = 8765,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = True,
) -> None:
    """Explore matches, patches and similarity maps of two photos in a local page, or in one file."""
    from matchkernel.errors import ArgumentError
    from matchkernel.explore.photos import read_photo, read_sample
    from matchkernel.explore.settings import ExploreSettings
    from matchkernel.storage.extras import need
    from matchkernel.storage.files import check_output

    with user_errors():
        settings = ExploreSettings(host=host, port=port, model=model, keypoints=keypoints)
        if (a is None) != (b is None):
            raise ArgumentError("give two photos, or none for the sample pair")
        if save is None:
            if compare is not None:
                raise ArgumentError("--compare is for --save; on the page that is served, choose the models there")
            need("starlette", "explore", "the explorer page")
            need("uvicorn", "explore", "the explorer page")
        else:
            if not open_browser or settings != ExploreSettings(model=model, keypoints=keypoints):
                raise ArgumentError("--host, --port and --no-open are for the page that is served, not for --save")
            check_output(save, *(path for path in (a, b) if path), suffixes=(".html",))
        report = _report(results) if results else None
        pair = None if a is None or b is None else (read_photo(a, settings), read_photo(b, settings))
        if save is not None:
            from matchkernel.explore.save import save_page

            size = save_page(save, pair or read_sample(settings), settings, compare, matches, report)
            say(f"-> {save}, {size / 1e6:.1f} MB")
            return
        from matchkernel.explore.serve import serve

        def started(address: str) -> None:
            say(f"{address}  (Ctrl-C ends it)")
            if open_browser:
                import webbrowser

                webbrowser.open(address)

        serve(settings, pair, report, started)


def _report(results: list[Path]) -> str:
    from matchkernel.report.page import html_page
    from matchkernel.report.write import gather

    return html_page(gather(results))
