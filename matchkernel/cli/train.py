"""matchkernel train"""

from pathlib import Path
from typing import Annotated

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from matchkernel.cli.console import stderr, user_errors
from matchkernel.training.config import TrainingConfig
from matchkernel.training.loop import train as train_run
from matchkernel.training.state import Report


def train(
    config: Annotated[Path, typer.Argument(help="TOML file of the run; see docs/training.md")],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="folder of the run (runs/<config> unless given)")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value over the file; may be repeated")
    ] = None,
    resume: Annotated[bool, typer.Option(help="go on from the folder's last checkpoint")] = False,
    device: Annotated[str, typer.Option(help="cpu, cuda or auto")] = "auto",
) -> None:
    """Train a descriptor: checkpoints, a log and weights in one folder."""
    with user_errors():
        run = TrainingConfig.from_toml(config, settings or [])
        folder = out or default_folder(config)
        with _bar(run.sampling.steps) as bar:
            outcome = train_run(run, folder, resume=resume, device=device, report=lambda line: _show(bar, line))
        if not outcome.is_first:
            return
        if not outcome.is_finished:
            stderr.print(f"stopped after step {outcome.step}; --resume goes on with {folder}", markup=False)
            return
        best = outcome.best
        words = f"best on validation at step {best['step']:.0f}: " if best else "no validation set; "
        words += f"FPR@95 {best['fpr95']:.4f}, mAP {best['map']:.4f}; " if best else ""
        stderr.print(f"{outcome.step} steps, {words}weights -> {outcome.weights}", markup=False)


def default_folder(config: Path) -> Path:
    """runs/<name>; a file below a folder `configs` keeps the folders between, so that names do not collide."""
    parts = config.with_suffix("").parts
    below = len(parts) - 1 - parts[::-1].index("configs") if "configs" in parts[:-1] else len(parts) - 2
    return Path("runs", *parts[below + 1 :])


def _bar(steps: int) -> Progress:
    facts = TextColumn(
        "loss {task.fields[loss]:.4f}  rate {task.fields[rate]:.4g}  {task.fields[speed]:,.0f} patches/s"
    )
    columns = (TextColumn("training"), BarColumn(None), MofNCompleteColumn(), facts, TimeRemainingColumn())
    bar = Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal)
    bar.add_task("training", total=steps, loss=float("nan"), rate=float("nan"), speed=0.0)
    return bar


def _show(bar: Progress, line: Report) -> None:
    if line.validation is not None:
        measured = f"FPR@95 {line.validation['fpr95']:.4f}, mAP {line.validation['map']:.4f}"
        stderr.print(f"step {line.step}/{line.steps}  validation: {measured}", markup=False)
        return
    task, speed = bar.task_ids[0], line.patches_per_second
    bar.update(task, completed=line.step, loss=line.loss, rate=line.rate, speed=speed)
    if not stderr.is_terminal:
        words = f"step {line.step}/{line.steps}  loss {line.loss:.4f}  rate {line.rate:.4g}"
        stderr.print(f"{words}  {line.patches_per_second:,.0f} patches/s", markup=False)
