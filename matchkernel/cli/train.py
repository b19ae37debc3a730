"""matchkernel train"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from matchkernel.cli.console import progress_bar, say, stderr
from matchkernel.cli.options import Device, Settings

if TYPE_CHECKING:
    from matchkernel.cli.console import Bar
    from matchkernel.training.log import LogLine


def train(
    config: Annotated[Path, typer.Argument(help="TOML file of the run; see docs/training.md")],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="folder of the run (default: runs/<config>)")] = None,
    settings: Settings = None,
    start: Annotated[
        str | None, typer.Option("--from", metavar="WEIGHTS", help="start from these weights: a file, or a name")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="resume from the last checkpoint in the folder")] = False,
    device: Device = "auto",
) -> None:
    """Train a descriptor; checkpoints, a log and the weights are written to one folder."""
    from matchkernel.training.config import TrainingConfig
    from matchkernel.training.loop import train as train_run
    from matchkernel.training.sets import validated_on_training_patches

    begin = [] if start is None else [f"start.weights={json.dumps(start)}"]
    run = TrainingConfig.from_toml(config, [*begin, *(settings or [])])
    folder = out or default_folder(config)
    for place in validated_on_training_patches(run.data):
        say(f"warning: {place} is trained on and validated on: its scores also show what was memorised")
    with progress_bar("training", run.sampling.steps) as bar:
        outcome = train_run(run, folder, resume=resume, device=device, report=lambda line: _show(bar, line))
    if not outcome.is_first:
        return
    if not outcome.is_finished:
        say(f"stopped after step {outcome.step}; run it again with --resume to continue in {folder}")
        return
    best = outcome.best
    score = "no validation set"
    if best:
        score = f"best on validation at step {best['step']:.0f}: FPR@95 {best['fpr95']:.4f}, mAP {best['map']:.4f}"
    say(f"{outcome.step} steps, {score}; weights -> {outcome.weights}")


def default_folder(config: Path) -> Path:
    """runs/<name>; subfolders below a folder `configs` are kept, so that names do not collide."""
    parts = config.with_suffix("").parts
    below = len(parts) - 1 - parts[::-1].index("configs") if "configs" in parts[:-1] else len(parts) - 2
    return Path("runs", *parts[below + 1 :])


def _show(bar: "Bar", line: "LogLine") -> None:
    bar(line.step, line.steps)
    if line.validation is not None or not stderr.is_terminal:
        bar.announce(str(line))
    else:
        bar.describe(f"loss {line.loss:.4f}  rate {line.rate:.4g}  {line.patches_per_second:,.0f} patches/s")
