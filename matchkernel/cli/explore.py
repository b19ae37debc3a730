"""matchkernel explore"""

import threading
import webbrowser
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli.console import say
from matchkernel.cli.options import with_settings
from matchkernel.errors import ArgumentError
from matchkernel.explore.settings import ExploreSettings

if TYPE_CHECKING:
    from matchkernel.explore.photos import PagePhoto


@with_settings
def explore(
    settings: ExploreSettings,
    a: Annotated[Path | None, typer.Argument(metavar="A", help="photo (default: a sample pair)")] = None,
    b: Annotated[Path | None, typer.Argument(metavar="B", help="another photo")] = None,
    compare: Annotated[str | None, typer.Option(help="second model, side by side with --model, for --save")] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            help="results of `matchkernel evaluate`, folders of them, or workspaces of `matchkernel colmap` to show; "
            "may be given several times"
        ),
    ] = None,
    save: Annotated[
        Path | None, typer.Option(help="write one self-contained .html file for these photos instead of serving")
    ] = None,
    matches: Annotated[
        int,
        typer.Option(
            help="maximum number of matches in the saved file, of all models together; chosen evenly by distance"
        ),
    ] = 300,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="open the page in a browser")] = True,
) -> None:
    """Explore matches, patches and similarity maps of two photos in a local page, or in one file."""
    from matchkernel.explore.photos import read_photo, read_sample
    from matchkernel.storage.files import check_output

    photos = [path for path in (a, b) if path is not None]
    if len(photos) == 1:
        raise ArgumentError("give two photos, or none for the sample pair")
    if save is None:
        if compare is not None:
            raise ArgumentError("--compare is for --save; on the page that is served, choose the models there")
    else:
        if not open_browser or settings != ExploreSettings(model=settings.model, keypoints=settings.keypoints):
            raise ArgumentError("--host, --port and --no-open are for the page that is served, not for --save")
        check_output(save, *photos, suffixes=(".html",))
        _ask_to_replace(save)
    report = _report(results) if results else None
    pair = (read_photo(photos[0], settings), read_photo(photos[1], settings)) if photos else None
    if save is not None:
        from matchkernel.explore.save import save_page

        size = save_page(save, pair or read_sample(settings), settings, compare, matches, report)
        say(f"-> {save}, {size / 1e6:.1f} MB")
    else:
        _serve(settings, pair, report, open_browser)


def _ask_to_replace(path: Path) -> None:
    """Go on if there is no such file, or if whoever sits at the terminal wants it replaced."""
    if not path.exists():
        return
    try:
        is_wanted = typer.confirm(f"{path} exists. Replace it?", err=True)
    except typer.Abort:  # nobody answers
        is_wanted = False
    if not is_wanted:
        raise ArgumentError(f"{path}: already exists; choose another name")


def _serve(
    settings: ExploreSettings, pair: "tuple[PagePhoto, PagePhoto] | None", report: str | None, open_browser: bool
) -> None:
    from matchkernel.storage.extras import need

    need("starlette", "explore", "the explorer page")
    need("uvicorn", "explore", "the explorer page")
    from matchkernel.explore.serve import serve

    def started(address: str) -> None:
        say(f"{address}  (Ctrl-C ends it)")
        if open_browser:  # one in the terminal ends when its user quits it, and waits for the server until then
            threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()

    serve(settings, pair, report, started)


def _report(results: list[Path]) -> str:
    from matchkernel.report.blocks import Report
    from matchkernel.report.page import html_page
    from matchkernel.report.workspace import is_workspace, workspace_section
    from matchkernel.report.write import gather

    models = tuple(workspace_section(path) for path in results if is_workspace(path))
    others = [path for path in results if not is_workspace(path)]
    report = gather(others) if others else Report("Cameras and points", ())
    return html_page(replace(report, sections=report.sections + models))
