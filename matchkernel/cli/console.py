"""What all verbs share: errors in one line, results on stdout, everything else on stderr."""

import errno
import os
import re
import select
import stat
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from matchkernel.cli.interrupts import raised_inside
from matchkernel.cli.progress_lines import ProgressLines
from matchkernel.errors import MatchKernelError, WorkError

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress
    from rich.progress import ProgressColumn, Task, TaskID

    from matchkernel.storage.work import Say, StageTimes

STAGES = {  # first words of lines that say what long work does now, and what it counts
    "extracting": "images",
    "global": "images",
    "matching": "pairs",
    "colmap": "",
    "cutting": "photos",
    "training": "",
    "calibrating": "",
    "scoring": "",
}
CLOSED_PIPE = 141  # exit code: 128 and the number of SIGPIPE, which Windows does not have
show_traceback: ContextVar[bool] = ContextVar("show_traceback", default=False)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to user_errors; rich's own answer is exit code 1, which is that of failed work."""
        raise BrokenPipeError


stdout = _Console(emoji=False)
stderr = Console(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def say(line: str) -> None:
    """Print a line to stderr without interpreting markup."""
    stderr.print(line, markup=False)


def answer(line: str, as_json: bool = False) -> None:
    """Print the answer of a verb to stdout; to stderr where stdout has it as JSON."""
    (stderr if as_json else stdout).print(line, markup=False, highlight=False, soft_wrap=True)


def show_table(table: Table) -> None:
    """Print a table to stdout; nothing is cut off, however narrow the window."""
    width = Measurement.get(stdout, stdout.options.update(max_width=1000), table).maximum
    _Console(emoji=False, width=max(width, stdout.width)).print(table, crop=False)


def say_stages(stages: "StageTimes") -> None:
    """Print the seconds of each stage, one line each, to stderr."""
    whole = sum(stages.seconds.values())
    for name, seconds in [*stages.seconds.items(), ("total", whole)]:
        say(f"{name:9} {seconds:8.3f} s {seconds / (whole or 1):6.1%}")


def plain_table(*headings: str, numbers: tuple[str, ...] = ()) -> Table:
    """A table that fits a terminal of 80 columns; columns of numbers are right-aligned."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right" if heading in numbers else "left", no_wrap=True)
    return table


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors into one line on stderr and an exit code: 2 wrong input, 1 failed work, 130 Ctrl-C.

    Where nobody reads stdout any more, the exit code is 141 and nothing is said.
    """
    try:
        with raised_inside():
            yield
    except KeyboardInterrupt as stop:
        say(f"interrupted: {stop}" if stop.args else "interrupted")
        raise typer.Exit(130) from None
    except (MatchKernelError, OSError, MemoryError) as error:
        if _is_of_a_pipe(error) and _is_stdout_closed():  # `| head` has read enough
            raise typer.Exit(CLOSED_PIPE) from None
        _report(str(error).strip() or type(error).__name__)
        failed_work = isinstance(error, WorkError) or not isinstance(error, MatchKernelError)
        raise typer.Exit(1 if failed_work else 2) from None
    except RuntimeError as error:  # torch has no MemoryError
        if not _is_out_of_memory(error):
            raise
        asked = re.search(r"ried to allocate ([\d.]+ \w+)", str(error))
        reason = f" (tried to allocate {asked[1]})" if asked else ""
        _report(f"not enough memory{reason}; lower --batch-size or --keypoints, or sampling.pairs in training")
        raise typer.Exit(1) from None


@contextmanager
def goes_on(out: Path) -> Iterator[None]:
    """Say at Ctrl-C that work is kept, for verbs that resume."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"run the same command again to go on with {out}") from None


def run_script(main: Callable[[], None]) -> None:
    """Run a script outside the command line, reporting errors as the verbs do."""
    try:
        with user_errors():
            main()
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None


def say_error(message: str) -> None:
    """Print what went wrong to stderr, on one line."""
    stderr.print(f"error: {' '.join(message.split())}", style="red", markup=False)


def _report(message: str) -> None:
    if show_traceback.get():
        traceback.print_exc()
    say_error(message)


def _is_of_a_pipe(error: BaseException) -> bool:
    """Whether a pipe broke, which on Windows may be an invalid argument, of no file."""
    is_invalid = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or is_invalid


def _is_stdout_closed() -> bool:
    """Whether nobody reads stdout any more; then it is pointed elsewhere, or Python would complain when it ends."""
    try:
        place = sys.stdout.fileno()
    except (OSError, ValueError):  # it is no file
        return False
    if not _lost_its_reader(place):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), place)
    return True


def _is_out_of_memory(error: RuntimeError) -> bool:
    """Whether torch ran out of memory, for which it has a class on a GPU only; by name, as torch may not be loaded."""
    known = ("DefaultCPUAllocator", "CUDA error: out of memory")
    return type(error).__name__ == "OutOfMemoryError" or any(part in str(error) for part in known)


@contextmanager
def progress_bar(what: str, total: int = 1, unit: str = "") -> Iterator["Bar | ProgressLines"]:
    """A progress bar on stderr, removed when done; plain lines, see ProgressLines, if stderr is not a terminal.

    Args:
        what: the first stage.
        total: number of items.
        unit: what the items are, to show how many are done in a second.
    """
    if not stderr.is_terminal:
        with ProgressLines(what, unit, say) as lines:
            yield lines
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), _rate_column()]
    with Progress(*columns, TimeRemainingColumn(), console=stderr, transient=True) as progress:
        yield Bar(progress, progress.add_task(what, total=total, unit=unit))


def announcing(bar: "Bar | ProgressLines") -> "Say":
    """A function that says a line, and makes it the name of the bar if it begins another stage."""

    def tell(line: str) -> None:
        unit = unit_of(line)
        say(line) if unit is None else bar.announce(line, unit)

    return tell


def unit_of(line: str) -> str | None:
    """What is counted in the stage that a line begins; None if it begins none."""
    return STAGES.get(line.partition(" ")[0])


def _rate_column() -> "ProgressColumn":
    from rich.progress import ProgressColumn
    from rich.text import Text

    class Rate(ProgressColumn):
        def render(self, task: "Task") -> Text:
            return Text(f"{task.speed:.1f} {task.fields['unit']}/s" if task.speed and task.fields["unit"] else "")

    return Rate()


@dataclass(frozen=True)
class Bar:
    """A progress bar that can be passed as a `progress` callback."""

    progress: "RichProgress"
    task: "TaskID"

    def __call__(self, done: int, total: int) -> None:
        """Report the number of items done and their total."""
        self.progress.update(self.task, completed=done, total=total)

    def rename(self, what: str, unit: str = "") -> None:
        """Begin another stage with this name and unit, with nothing done yet."""
        self.progress.reset(self.task, description=what, unit=unit)

    def announce(self, what: str, unit: str = "") -> None:
        """Begin another stage, and say so."""
        say(what)
        self.rename(what, unit)

    def spoken(self) -> None:
        """The work has said itself how far it is."""


def _lost_its_reader(place: int) -> bool:
    """True if nobody reads what is written here any more; for use after a failed write.

    Args:
        place: file descriptor. On Windows every pipe counts as one without a reader, as the system cannot tell.
    """
    if not hasattr(select, "poll"):
        return stat.S_ISFIFO(os.fstat(place).st_mode)
    look = select.poll()
    look.register(place, select.POLLOUT)
    return any(state & (select.POLLERR | select.POLLHUP) for _, state in look.poll(0))
