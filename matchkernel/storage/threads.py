"""Work in threads, for libraries that release Python's lock while they compute, as OpenCV and NumPy do."""

import os
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from matchkernel.errors import MissingExtraError
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.system import cores, is_ending

Item = TypeVar("Item")
Result = TypeVar("Result")

_share: ContextVar[int | None] = ContextVar("threads that the current work may use", default=None)


def spare_threads() -> int:
    """Number of threads that the current work may use: this process's own, or its share of them."""
    return _share.get() or process_threads()


def process_threads() -> int:
    """Number of threads of this process: torch's if it is loaded, else OMP_NUM_THREADS, else one per core."""
    if torch := _loaded_torch():
        return int(torch.get_num_threads())
    given = os.environ.get("OMP_NUM_THREADS", "")
    return int(given) if given.isdecimal() and int(given) else cores()


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
