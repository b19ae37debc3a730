"""matchkernel train-matcher"""

import signal
from pathlib import Path
from typing import Annotated

import typer

from matchkernel.cli.console import progress_bar, say
from matchkernel.cli.options import Device, Model, Settings
from matchkernel.runtime.config import PHOTO_MODEL


def train_matcher(
    scenes: Annotated[list[Path], typer.Argument(help="folders with images/ and a COLMAP model in sparse/")],
    out: Annotated[
        Path, typer.Option("--out", "-o", help=".safetensors file to write; run the command again to resume")
    ],
    model: Model = PHOTO_MODEL,
    validate: Annotated[
        list[Path] | None, typer.Option(help="scene with true cameras to validate on; may be given several times")
    ] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file of settings (default: those of configs/context.toml)")
    ] = None,
    settings: Settings = None,
    steps: Annotated[int | None, typer.Option(min=1, help="number of updates")] = None,
    minutes: Annotated[float | None, typer.Option(min=0, help="end the updates after this time")] = None,
    device: Device = "auto",
) -> None:
    """Train a matcher, which judges candidate matches by their context, on COLMAP's scenes."""
    from matchkernel.training.matcher.config import MatcherConfig
    from matchkernel.training.matcher.loop import train_matcher as run

    given = {"steps": steps, "minutes": minutes}
    overrides = [f"{name}={value}" for name, value in given.items() if value is not None]
    recipe = MatcherConfig.read(config, [*(settings or []), *overrides])
    with progress_bar("training") as bar:
        outcome = run(
            scenes, out, recipe, model=model, validate=validate or (), device=device, say=bar.announce, progress=bar
        )
    if not outcome.is_finished:
        say(f"stopped after step {outcome.step}; run the same command again to resume")
        raise typer.Exit(128 + signal.SIGTERM)
    scores = "".join(f", {name} {value:g}" for name, value in outcome.scores.items())
    say(f"{outcome.step} steps, loss {outcome.loss:.4f}{scores} -> {out}")
