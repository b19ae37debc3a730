"""How this process works: its processors and memory, threads, progress, and the seconds that each stage takes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from functools import cache, partial
from pathlib import Path
from typing import Any, TypeVar

from matchkernel.errors import MissingExtraError
from matchkernel.storage.extras import need_opencv

CONTAINER_LIMITS = (  # of cgroups, version 2 and 1
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
MOST_THREADS = 256  # that are begun, whatever OMP_NUM_THREADS asks for
ASSUMED_MEMORY = 8 * 2**30  # bytes, where the system cannot be asked

Progress = Callable[[int, int], object]  # (done, total)
Say = Callable[[str], object]  # called with the name of each stage as it begins
Item = TypeVar("Item")
Result = TypeVar("Result")

_ending: list[bool] = []  # a list needs no lock, which a signal handler could not take
_share: ContextVar[int | None] = ContextVar("threads that the current work may use", default=None)


def cores() -> int:
    """Number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_here() -> int:
    """Bytes of memory of the machine or of its container; an assumed number on Windows."""
    limits = []
    with suppress(AttributeError, OSError, ValueError):
        limits.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for limit in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # not there, or "max"
            limits.append(int(limit.read_text(encoding="ascii")))
    return min(limits, default=ASSUMED_MEMORY)


def announce_end() -> None:
    """Note that the process is about to end: what its threads still compute is lost, and nobody should wait for it."""
    _ending.append(True)


def is_ending() -> bool:
    """True once `announce_end` has been called."""
    return bool(_ending)


def end_at_once(number: int, _frame: object) -> None:
    """Handle a signal that comes before any work: an exception might be swallowed by the module being imported."""
    if number == signal.SIGINT:
        os.write(2, b"interrupted\n")
    os._exit(128 + number)


def spare_threads() -> int:
    """Number of threads that the current work may use: this process's own, or its share of them."""
    return _share.get() or process_threads()


def process_threads() -> int:
    """Number of threads of this process: torch's if it is loaded, else OMP_NUM_THREADS, else one per core."""
    if torch := _loaded_torch():
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return min(int(given), MOST_THREADS) if given.isdecimal() and int(given) else cores()


def _loaded_torch() -> Any:
    """The module torch if it has been imported completely; None otherwise."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "get_num_threads") else None


def use_threads(threads: int) -> None:
    """Limit the threads of this process: of torch, if it is loaded now or later, of OpenCV, and our own."""
    os.environ["OMP_NUM_THREADS"] = str(threads)
    if torch := _loaded_torch():
        torch.set_num_threads(threads)
    with suppress(MissingExtraError):
        need_opencv().setNumThreads(threads)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Inside the block torch uses one thread, so that sums have one order; `spare_threads` stays as before."""
    had, torch = spare_threads(), _loaded_torch()
    token = _share.set(had)
    if torch is not None:
        before = torch.get_num_threads()
        torch.set_num_threads(1)
    try:
        yield
    finally:
        if torch is not None:
            torch.set_num_threads(before)
        _share.reset(token)


def in_threads(
    work: Callable[[Item], Result], items: Iterable[Item], threads: int, ahead: int | None = None
) -> Generator[Result, None, None]:
    """The results of work on each item, in their order; several items are worked on at the same time.

    After an error, or if the caller stops, only work that has begun is finished; not even that if the process is about
    to end (see announce_end). Variables of the context are those of the caller.

    Args:
        work: called in a thread; in the calling one, if there is only one.
        items: what to work on.
        threads: how many to use.
        ahead: maximum number of items that are taken, and results that are kept, in advance (default: two per thread).
    """
    if threads < 2:
        yield from map(work, items)
        return
    each = max(1, spare_threads() // threads)

    def shared(item: Item) -> Result:
        _share.set(each)
        return work(item)

    waiting: deque[Future[Result]] = deque()
    pool = ThreadPoolExecutor(threads)
    try:
        for item in items:
            waiting.append(pool.submit(copy_context().run, shared, item))
            if len(waiting) > (2 * threads if ahead is None else ahead):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=not is_ending(), cancel_futures=True)


class InTurn:
    """Delays the reports of work that is done beside other work, so that each is reported as a whole."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Callable[[], object]] | None = []

    def delayed(self, report: Callable[..., object]) -> Callable[..., None]:
        """A function that reports now, or as soon as it is this work's turn."""

        def call(*arguments: object) -> None:
            with self._lock:
                if self._waiting is None:
                    report(*arguments)
                else:
                    self._waiting.append(partial(report, *arguments))

        return call

    def begin(self) -> None:
        """It is this work's turn: what waits is reported."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
            for report in waiting or ():
                report()


def progress_counter(progress: Progress | None, total: int) -> Callable[[int], None]:
    """A function that takes the size of each finished piece and reports their sum; silent without `progress`."""
    done = 0

    def add(more: int) -> None:
        nonlocal done
        done += more
        if progress is not None:
            progress(done, total)

    return add


def part_progress(progress: Progress | None, before: int, total: int) -> Progress | None:
    """The progress of one part, reported as that of the whole, of which so many items were done `before`."""
    return None if progress is None else lambda done, _: progress(before + done, total)


class StageTimes:
    """Seconds by stage; time in which several run, in threads, is divided between them."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self._running: Counter[str] = Counter()
        self._since = 0.0
        self._lock = threading.Lock()

    def change(self, stage: str, by: int) -> None:
        """One more block of this stage runs (1), or one less (-1)."""
        with self._lock:
            now, total = time.perf_counter(), self._running.total()
            for name, count in self._running.items():
                self.seconds[name] += (now - self._since) * count / (total or 1)
            self._since = now
            self._running[stage] += by

    def rounded(self) -> dict[str, float]:
        """The seconds for JSON."""
        return {name: round(seconds, 6) for name, seconds in self.seconds.items()}


_recording: ContextVar[StageTimes | None] = ContextVar("recording", default=None)


@contextmanager
def recording() -> Iterator[StageTimes]:
    """Measure the stages inside the block; at its end, the seconds are added to a recording around it."""
    outer, inner = _recording.get(), StageTimes()
    token = _recording.set(inner)
    try:
        yield inner
    finally:
        _recording.reset(token)
        if outer is not None:
            for name, seconds in inner.seconds.items():
                outer.seconds[name] += seconds


@contextmanager
def stage(name: str) -> Iterator[None]:
    """The time of the block counts for this stage, if somebody records."""
    times = _recording.get()
    if times is None:
        yield
        return
    times.change(name, 1)
    try:
        yield
    finally:
        times.change(name, -1)


def output_of(*command: str) -> tuple[int, str]:
    """Exit code and output, of both streams, of a program that needs no screen."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=offscreen(), check=False)
    return done.returncode, done.stdout + done.stderr


@cache
def help_of(command: tuple[str, ...], *stage: str) -> str:
    """What a program prints about itself, or about one of its stages, with `help` and `--help` as COLMAP has them."""
    return output_of(*command, *stage, "--help" if stage else "help")[1]


def offscreen() -> dict[str, str]:
    """The environment for a program that would look for a screen."""
    return {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
