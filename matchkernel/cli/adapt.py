"""matchkernel adapt"""

import json
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli.console import answer, progress_bar, say
from matchkernel.cli.options import Device, Json, Seed

if TYPE_CHECKING:
    from matchkernel.adapt.result import Adapted
    from matchkernel.adapt.settings import AdaptSettings
    from matchkernel.data.split import Counts
    from matchkernel.training.log import LogLine


def adapt(
    photos: Annotated[Path, typer.Argument(help="folder of photos of one scene")],
    out: Annotated[Path, typer.Option("--out", "-o", help="output folder; run the command again to resume")],
    base: Annotated[str, typer.Option(help="weights to adapt: a name, or a .safetensors file")] = "light",
    model: Annotated[
        Path | None, typer.Option(help="folder of a COLMAP model of the photos (default: reconstruct them)")
    ] = None,
    database: Annotated[
        Path | None, typer.Option(help="the model's database (default: database.db in or beside its folder)")
    ] = None,
    minutes: Annotated[float, typer.Option(help="minutes of training; cutting and scoring come on top")] = 10.0,
    layers: Annotated[str, typer.Option(help="which layers are trained: all, last or head")] = "all",
    rate: Annotated[float, typer.Option(help="highest learning rate")] = 0.1,
    pairs: Annotated[int, typer.Option(help="pairs of patches per update")] = 512,
    remember: Annotated[
        float, typer.Option(help="weight of the distance from the base's descriptors; 0 for none")
    ] = 1.0,
    mix: Annotated[
        list[Path] | None,
        typer.Option(metavar="SET", help="patch set for half of the pairs; may be given several times"),
    ] = None,
    check: Annotated[
        list[Path] | None,
        typer.Option(metavar="SET", help="patch set to measure forgetting on; may be given several times"),
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
    """Adapt trained weights to your own photos, and measure the gain on photos held out."""
    from matchkernel.adapt.settings import AdaptSettings

    settings = AdaptSettings(
        base=base,
        minutes=minutes,
        layers=layers,
        rate=rate,
        pairs=pairs,
        remember=remember,
        mix=tuple(map(str, mix or ())),
        check=tuple(map(str, check or ())),
        keep=keep,
        geometric=geometric,
        seed=seed,
    )
    result = _run(photos, out, settings, model, database, device)
    if result is None:
        say(f"stopped; run the same command again to resume {out}")
        raise typer.Exit(128 + signal.SIGTERM)  # there is no result yet
    _show_result(result, base, out, as_json)


def _run(
    photos: Path, out: Path, settings: "AdaptSettings", model: Path | None, database: Path | None, device: str
) -> "Adapted | None":
    """Adapt with a progress bar; Ctrl-C says how to resume."""
    from matchkernel.adapt.stages import adapt as adapt_to
    from matchkernel.adapt.stages import best_so_far

    try:
        with progress_bar("adapting") as bar:
            return adapt_to(
                photos,
                out,
                settings,
                model=model,
                database=database,
                device=device,
                say=bar.announce,
                progress=bar,
                report=lambda line, seconds: bar.announce(_state(line, seconds)),
                counted=_say_counts,
            )
    except KeyboardInterrupt:
        best = best_so_far(out)
        so_far = f"; the best weights so far: {best}" if best else ""
        raise KeyboardInterrupt(f"run the same command again to resume {out}{so_far}") from None


def _say_counts(counts: "dict[str, Counts]") -> None:
    for name, count in counts.items():
        say(f"{name}: {count}")


def _state(line: "LogLine", seconds_left: float) -> str:
    """The state of the training in one line."""
    score = f"loss {line.loss:.4f}"
    if line.validation is not None:
        score = f"validation mAP {100 * line.validation['map']:.2f}"
    minutes, seconds = divmod(int(seconds_left), 60)
    return f"step {line.step}/{line.steps}  {score}  {minutes}:{seconds:02d} left"


def _show_result(result: "Adapted", base: str, out: Path, as_json: bool) -> None:
    for gain in (*result.gains, *result.elsewhere):
        answer(f"{gain.place}: {gain.text()}", as_json)
    answer(result.verdict, as_json)
    say(f"-> {result.weights}" if result.weights else f"use {base} as before; report: {out / 'report.html'}")
    if as_json:
        gains = {"test": result.gains, "elsewhere": result.elsewhere}
        scores = {name: [gain.to_json() for gain in part] for name, part in gains.items()}
        weights = None if result.weights is None else str(result.weights)
        print(json.dumps({"verdict": result.verdict, "weights": weights, **scores}))
