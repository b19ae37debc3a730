"""What all verbs share: errors as one line, tables on stdout, everything else on stderr."""

import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from matchkernel.errors import MatchKernelError, WorkError

show_traceback: ContextVar[bool] = ContextVar("show_traceback", default=False)
stdout = Console(emoji=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def plain_table(*headings: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table that fits a terminal of 80 columns; columns of numbers stand to the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
    return table


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors into one line on stderr and an exit code: 2 wrong input, 1 failed work, 130 Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt as stop:
        stderr.print(f"interrupted: {stop}" if stop.args else "interrupted", markup=False)
        raise typer.Exit(130) from None
    except (MatchKernelError, OSError, MemoryError) as error:
        _tell(" ".join(str(error).split()) or type(error).__name__)
        failed_work = isinstance(error, WorkError) or not isinstance(error, MatchKernelError)
        raise typer.Exit(1 if failed_work else 2) from None
    except RuntimeError as error:  # torch has no MemoryError
        if not _is_out_of_memory(error):
            raise
        asked = re.search(r"ried to allocate ([\d.]+ \w+)", str(error))
        reason = f" (tried to allocate {asked[1]})" if asked else ""
        _tell(f"not enough memory{reason}; lower --batch-size or --keypoints, in training sampling.pairs")
        raise typer.Exit(1) from None


def run_script(main: Callable[[], None]) -> None:
    """Run a script that is no verb of ours, with errors as the verbs have them."""
    try:
        with user_errors():
            main()
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None


def _tell(words: str) -> None:
    if show_traceback.get():
        traceback.print_exc()
    stderr.print(f"error: {words}", style="red", markup=False)


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch got no memory; for that of the CPU it has no class of its own."""
    known = ("DefaultCPUAllocator", "CUDA error: out of memory")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in known)


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Progress]:
    """A progress bar on stderr, gone when done; silent where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        progress.add_task(what, total=total)
        yield progress


@contextmanager
def counting_bar(what: str, total: int = 1) -> Iterator[Callable[[int, int], None]]:
    """A progress bar that is told how many of how many are done; `total` stands there until then."""
    with progress_bar(what, total) as progress:

        def update(done: int, total: int) -> None:
            progress.update(progress.task_ids[0], completed=done, total=total)

        yield update
