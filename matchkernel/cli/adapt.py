"""matchkernel adapt"""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.adapt.settings import AdaptSettings
from matchkernel.cli import options
from matchkernel.cli.console import answer, progress_bar, say

if TYPE_CHECKING:
    from matchkernel.adapt.judge import Adapted


@options.with_settings
def adapt(
    photos: Annotated[Path, typer.Argument(help="folder of photos of one scene")],
    out: Annotated[Path, typer.Option("--out", "-o", help="output folder; run the command again to resume")],
    settings: AdaptSettings,
    from_colmap: Annotated[
        Path | None, typer.Option(help="folder of a COLMAP model of the photos (default: reconstruct them)")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="the model's database (default: database.db in or beside its folder)")
    ] = None,
    device: options.Device = "auto",
    as_json: options.Json = False,
) -> None:
    """Adapt trained weights to your own photos, and measure the gain on photos held out."""
    from matchkernel.adapt.stages import adapt as run
    from matchkernel.adapt.stages import best_so_far

    try:
        with progress_bar("adapting") as bar:
            result = run(
                photos,
                out,
                settings,
                from_colmap=from_colmap,
                database=database,
                device=device,
                say=bar.announce,
                progress=bar,
            )
    except KeyboardInterrupt:
        best = best_so_far(out)
        so_far = f"; the best weights so far: {best}" if best else ""
        raise KeyboardInterrupt(f"run the same command again to resume {out}{so_far}") from None
    if result is None:
        say(f"stopped; run the same command again to resume {out}")
        raise typer.Exit(128 + signal.SIGTERM)  # there is no result yet
    _show(result, settings.model, as_json)


def _show(result: "Adapted", model: str, as_json: bool) -> None:
    for gain in (*result.gains, *result.elsewhere):
        answer(f"{gain.place}: {gain.text()}", as_json)
    answer(result.verdict, as_json)
    say(f"-> {result.weights}" if result.weights else f"use {model} as before; report: {result.folder / 'report.html'}")
    if as_json:
        gains = {"test": result.gains, "elsewhere": result.elsewhere}
        scores = {name: [gain.to_json() for gain in part] for name, part in gains.items()}
        weights = None if result.weights is None else str(result.weights)
        print(json.dumps({"verdict": result.verdict, "weights": weights, **scores}))
