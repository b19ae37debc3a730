"""What all verbs share: errors in one line, results on stdout, progress and everything else on stderr."""

import errno
import os
import re
import select
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from matchkernel.errors import MatchKernelError, WorkError
from matchkernel.storage.work import announce_end, end_at_once

if TYPE_CHECKING:
    from matchkernel.storage.work import StageTimes

INTERRUPTED, CLOSED_PIPE = 130, 141  # exit codes: 128 and the number of SIGINT, and of SIGPIPE, which Windows lacks
UNITS = {  # the first word of a line that begins a stage of long work, and what that stage counts
    "extracting": "images",
    "global": "images",
    "matching": "pairs",
    "colmap": "",
    "cutting": "photos",
    "training": "",
    "calibrating": "",
    "scoring": "",
}
SECONDS_BETWEEN_LINES = 30.0
SECONDS_OF_SPEED = 300.0  # the speed is the average over this time
show_traceback: ContextVar[bool] = ContextVar("show_traceback", default=False)


# What a terminal would obey instead of showing it, such as in the name of a file, and what turns the direction of text.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """A text with its control characters written as in Python: `\\x1b`."""
    return CONTROLS.sub(lambda found: ascii(found[0])[1:-1], text)


class _SafeConsole(Console):
    def render_str(self, text: str, **options: Any) -> Text:
        """Text of a line or of the cell of a table."""
        return super().render_str(visible(text), **options)


class _Console(_SafeConsole):
    def on_broken_pipe(self) -> None:
        """Leave it to user_errors; rich itself would exit with 1, the code of failed work."""
        raise BrokenPipeError


stdout = _Console(emoji=False)
stderr = _SafeConsole(stderr=True, soft_wrap=True, highlight=False, emoji=False)


def say(line: str) -> None:
    """Print a line to stderr without interpreting markup."""
    stderr.print(line, markup=False)


def say_error(message: str) -> None:
    """Print an error to stderr, on one line."""
    stderr.print(f"error: {' '.join(message.split())}", style="red", markup=False)


def say_stages(stages: "StageTimes") -> None:
    """Print the seconds of each stage, one line each, to stderr."""
    whole = sum(stages.seconds.values())
    for name, seconds in [*stages.seconds.items(), ("total", whole)]:
        say(f"{name:9} {seconds:8.3f} s {seconds / (whole or 1):6.1%}")


def answer(line: str, as_json: bool = False) -> None:
    """Print the result of a verb to stdout; to stderr if stdout has it as JSON."""
    (stderr if as_json else stdout).print(line, markup=False, highlight=False, soft_wrap=True)


def plain_table(headings: Sequence[str], text: Sequence[str], caption: str | None = None) -> Table:
    """A table that fits a terminal of 80 columns; columns that are not named in `text` hold numbers."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), caption=caption, caption_justify="left")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in text else "right", no_wrap=True)
    return table


def show_table(table: Table) -> None:
    """Print a table to stdout; nothing is cut off, however narrow the window."""
    width = Measurement.get(stdout, stdout.options.update(max_width=1000), table).maximum
    _Console(emoji=False, width=max(width, stdout.width)).print(table, crop=False)


@contextmanager
def user_errors() -> Iterator[None]:
    """Turn errors into one line on stderr and an exit code: 2 wrong input, 1 failed work, 130 Ctrl-C.

    If nobody reads stdout any more, the exit code is 141 and nothing is printed.
    """
    try:
        with _signals_raise():
            yield
    except KeyboardInterrupt as stop:
        say(f"interrupted: {stop}" if stop.args else "interrupted")
        raise typer.Exit(INTERRUPTED) from None
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


def run_script(main: Callable[[], None]) -> None:
    """Run a script outside the command line, reporting errors as the verbs do."""
    try:
        with user_errors():
            main()
    except typer.Exit as stop:
        raise SystemExit(stop.exit_code) from None


@contextmanager
def _signals_raise() -> Iterator[None]:
    """Make Ctrl-C and SIGTERM raise inside the block, so that partial files are removed; see __main__.main."""
    replaced = [number for number in (signal.SIGINT, signal.SIGTERM) if signal.getsignal(number) == end_at_once]
    for number in replaced:
        signal.signal(number, _raise)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, end_at_once)


def _raise(number: int, _frame: object) -> None:
    announce_end()
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)


def _report(message: str) -> None:
    if show_traceback.get():
        traceback.print_exc()
    say_error(message)


def _is_of_a_pipe(error: BaseException) -> bool:
    """True if a pipe broke, which on Windows may be an invalid argument without a file."""
    is_invalid = isinstance(error, OSError) and error.errno == errno.EINVAL and error.filename is None
    return isinstance(error, BrokenPipeError) or is_invalid


def _is_stdout_closed() -> bool:
    """True if nobody reads stdout any more, after a failed write; on Windows, where none can tell, if it is a pipe.

    It is then redirected, or Python would complain at the end.
    """
    try:
        place = sys.stdout.fileno()
    except (OSError, ValueError):  # not a file
        return False
    if hasattr(select, "poll"):
        look = select.poll()
        look.register(place, select.POLLOUT)
        is_closed = any(state & (select.POLLERR | select.POLLHUP) for _, state in look.poll(0))
    else:
        is_closed = stat.S_ISFIFO(os.fstat(place).st_mode)
    if is_closed:
        os.dup2(os.open(os.devnull, os.O_WRONLY), place)
    return is_closed


def _is_out_of_memory(error: RuntimeError) -> bool:
    """True if torch ran out of memory; only on a GPU it has a class for that, found by name as torch may be absent."""
    known = ("DefaultCPUAllocator", "CUDA error: out of memory")
    return type(error).__name__ == "OutOfMemoryError" or any(part in str(error) for part in known)


@contextmanager
def progress_bar(what: str, total: int = 1, unit: str = "", *, resumes: Path | None = None) -> Iterator["Bar"]:
    """A progress bar on stderr, removed when done; plain lines if stderr is not a terminal.

    `unit` is what the items are, to show how many are done in a second. `resumes` is the output of work that the same
    command resumes; Ctrl-C then says so.
    """
    bar, is_over = Bar(what, total, unit), threading.Event()

    def keep_time() -> None:
        with suppress(OSError, ValueError):  # nobody reads it, or it is closed
            while not is_over.wait(1):
                bar.tick()

    thread = threading.Thread(target=keep_time, daemon=True)
    thread.start()
    try:
        with bar.progress:
            yield bar
    except KeyboardInterrupt:
        if resumes is None:
            raise
        raise KeyboardInterrupt(f"run the same command again to resume {resumes}") from None
    finally:
        is_over.set()
        thread.join(timeout=1)  # no line comes after the result


class Bar:
    """Progress of long work, to be passed as a `progress` callback: a bar on a terminal, lines in a log file.

    In a log file nothing is printed in the first half minute; later, each stage and its state every half minute.
    """

    def __init__(self, what: str, total: int, unit: str, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = [TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[rate]}"), TimeRemainingColumn()]
        self.progress = Progress(
            *columns,
            console=stderr,
            transient=True,
            get_time=clock,
            speed_estimate_period=SECONDS_OF_SPEED,
            disable=not stderr.is_terminal,
        )
        self._task = self.progress.add_task(what, total=total, rate="")
        self._unit, self._clock = unit, clock
        self._start = self._last = clock()

    def __call__(self, done: int, total: int) -> None:
        """Report the number of items done and their total."""
        self.progress.update(self._task, completed=done, total=total)
        if stderr.is_terminal:
            self.progress.update(self._task, rate=self._rate())

    def rename(self, what: str, unit: str = "") -> None:
        """Begin another stage, with nothing done yet."""
        self._begin(what, unit)
        if not stderr.is_terminal and self._clock() - self._start >= SECONDS_BETWEEN_LINES:
            self._print(what)

    def describe(self, text: str) -> None:
        """Show another text on the bar, in the same stage."""
        self.progress.update(self._task, description=text)

    def announce(self, line: str) -> None:
        """Print a line in any case; it may begin another stage."""
        if (unit := unit_of(line)) is not None:
            self._begin(line, unit)
        self._print(line)

    def show(self, line: str) -> None:
        """Begin the stage that a line names; print a line that names none."""
        unit = unit_of(line)
        say(line) if unit is None else self.rename(line, unit)

    def tick(self) -> None:
        """Print how far the work is, if it is time and there is no bar that shows it."""
        if not stderr.is_terminal and self._clock() - self._last >= SECONDS_BETWEEN_LINES:
            self._print(self._state())

    def _begin(self, what: str, unit: str) -> None:
        self._unit = unit
        self.progress.reset(self._task, description=what, rate="")

    def _print(self, line: str) -> None:
        say(line)
        self._last = self._clock()

    def _speed(self) -> float:
        """Items done in a second, lately; 0 if not known. Results that come at one moment are no speed."""
        task = self.progress.tasks[0]
        if not task.speed or not task.elapsed:
            return 0.0
        in_all = task.completed / task.elapsed
        return task.speed if task.speed < 2 * in_all else in_all

    def _rate(self) -> str:
        speed = self._speed()
        if not speed or not self._unit:
            return ""
        return f"{speed:,.1f} {self._unit}/s" if speed >= 1 else f"{speed:.2g} {self._unit}/s"

    def _state(self) -> str:
        task, speed = self.progress.tasks[0], self._speed()
        if not task.completed:
            return f"{task.description}: {duration(task.elapsed or 0)} so far"
        parts = [f"{task.description}: {task.completed:,.0f} of {task.total:,.0f} {self._unit}".rstrip(), self._rate()]
        if speed and task.remaining:
            parts.append(f"about {duration(ceil(task.remaining / speed))} left")
        return ", ".join(filter(None, parts))


def unit_of(line: str) -> str | None:
    """What is counted in the stage that a line begins; None if it begins none."""
    return UNITS.get(line.partition(" ")[0])


def duration(seconds: float) -> str:
    """A time as text: `45 s`, `1 min 30 s`, `2 h 5 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60} h {minutes % 60} min"
    parts = [f"{minutes} min"] * bool(minutes) + [f"{rest} s"] * bool(rest or not minutes)
    return " ".join(parts)
