"""matchkernel adapt"""

import json
import signal
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli.console import announcing, answer, progress_bar, say, user_errors
from matchkernel.cli.options import Device, Json, Seed

if TYPE_CHECKING:
    from matchkernel.cli.console import Bar
    from matchkernel.cli.progress_lines import ProgressLines
    from matchkernel.data.split import Counts
    from matchkernel.training.log import LogLine


def adapt(
    photos: Annotated[Path, typer.Argument(help="folder of photos of one scene")],
    out: Annotated[Path, typer.Option("--out", "-o", help="folder of everything; run the command again to go on")],
    base: Annotated[str, typer.Option(help="weights to adapt: a name, or a .safetensors file")] = "light",
    model: Annotated[
        Path | None, typer.Option(help="folder of a COLMAP model of the photos (default: reconstruct them)")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="the model's database (default: database.db in or beside its folder)")
    ] = None,
    minutes: Annotated[float, typer.Option(help="minutes of training; cutting and scoring come on top")] = 10.0,
    layers: Annotated[str, typer.Option(help="what goes on learning: all, last or head")] = "all",
    rate: Annotated[float, typer.Option(help="highest learning rate")] = 0.1,
    pairs: Annotated[int, typer.Option(help="pairs of patches per update")] = 512,
    remember: Annotated[float, typer.Option(help="weight of staying near the base's rows; 0 for none")] = 1.0,
    mix: Annotated[
        list[Path] | None,
        typer.Option(metavar="SET", help="patch set for half of the pairs; may be given several times"),
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(metavar="SET", help="patch set to see what is forgotten; may be given several times"),
    ] = None,
    keep: Annotated[
        bool, typer.Option("--keep", help="write the weights that are best on validation even if test does not gain")
    ] = False,
    geometric: Annotated[
        bool, typer.Option(help="look for positives that no track contains; cutting takes longer")
    ] = True,
    seed: Seed = 0,
    device: Device = "auto",
    as_json: Json = False,
) -> None:
    """Adapt trained weights to your own photos, and say honestly what that gained."""
    with user_errors():
        from matchkernel.adapt.settings import AdaptSettings
        from matchkernel.adapt.stages import adapt as adapt_to
        from matchkernel.adapt.stages import best_so_far

        settings = AdaptSettings(
            base, minutes, layers, rate, pairs, remember, _names(mix), _names(check), keep, geometric, seed
        )
        try:
            with progress_bar("adapting") as bar:
                result = adapt_to(
                    photos,
                    out,
                    settings,
                    model=model,
                    database=database,
                    device=device,
                    say=announcing(bar),
                    progress=bar,
                    report=partial(_show, bar),
                    counted=_count,
                )
        except KeyboardInterrupt:
            best = best_so_far(out)
            so_far = f"; the best weights so far: {best}" if best else ""
            raise KeyboardInterrupt(f"run the same command again to go on in {out}{so_far}") from None
        if result is None:
            say(f"stopped; run the same command again to go on in {out}")
            raise typer.Exit(128 + signal.SIGTERM)  # there is no result yet
        for gain in (*result.gains, *result.elsewhere):
            answer(f"{gain.place}: {gain.text()}", as_json)
        answer(result.verdict, as_json)
        say(f"-> {result.weights}" if result.weights else f"use {base} as before; report: {out / 'report.html'}")
        if as_json:
            gains = {"test": result.gains, "elsewhere": result.elsewhere}
            told = {name: [gain.to_json() for gain in part] for name, part in gains.items()}
            weights = None if result.weights is None else str(result.weights)
            print(json.dumps({"verdict": result.verdict, "weights": weights, **told}))


def _count(counts: "dict[str, Counts]") -> None:
    for name, count in counts.items():
        say(f"{name}: {count}")


def _names(folders: list[Path] | None) -> tuple[str, ...]:
    return tuple(str(folder) for folder in folders or [])


def _show(bar: "Bar | ProgressLines", line: "LogLine", left: float) -> None:
    bar.spoken()
    remaining = f"{int(left) // 60}:{int(left) % 60:02d} left"
    if line.validation is not None:
        say(f"step {line.step}/{line.steps}  validation mAP {100 * line.validation['map']:.2f}  {remaining}")
    else:
        say(f"step {line.step}/{line.steps}  loss {line.loss:.4f}  {remaining}")
