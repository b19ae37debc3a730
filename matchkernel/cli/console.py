"""What all verbs share: errors as one line, tables on stdout, everything else on stderr."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from matchkernel.errors import MatchKernelError, WriteError

show_traceback: ContextVar[bool] = ContextVar("show_traceback", default=False)
stdout = Console()
stderr = Console(stderr=True, soft_wrap=True, highlight=False)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors into one line on stderr and an exit code: 2 wrong input, 1 failed work, 130 Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        stderr.print("interrupted")
        raise typer.Exit(130) from None
    except (MatchKernelError, OSError, MemoryError) as error:
        if show_traceback.get():
            raise
        stderr.print(f"error: {' '.join(str(error).split()) or type(error).__name__}", style="red", markup=False)
        failed_work = isinstance(error, WriteError) or not isinstance(error, MatchKernelError)
        raise typer.Exit(1 if failed_work else 2) from None


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Progress]:
    """A progress bar on stderr, gone when done; silent where stderr is no terminal."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=stderr, transient=True, disable=not stderr.is_terminal) as progress:
        progress.add_task(what, total=total)
        yield progress
