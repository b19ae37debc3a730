"""Work in threads: for libraries that let other threads of Python run while they compute, as OpenCV and NumPy do."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar, copy_context
from typing import TypeVar

from matchkernel.errors import MissingExtraError
from matchkernel.storage.ending import ends_soon
from matchkernel.storage.extras import need_opencv

Item = TypeVar("Item")
Result = TypeVar("Result")

_share: ContextVar[int | None] = ContextVar("threads that the current work may use", default=None)


def spare_threads() -> int:
    """Number of threads that the current work may use: as many as torch does, or its share of them."""
    import torch

    return _share.get() or torch.get_num_threads()


def use_threads(threads: int) -> None:
    """Make torch and OpenCV use so many threads in this process, and `spare_threads` say so."""
    import torch

    torch.set_num_threads(threads)
    with suppress(MissingExtraError):
        need_opencv().setNumThreads(threads)


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Inside the block torch itself uses one thread, so that sums have one order; `spare_threads` says what it had."""
    import torch

    had = torch.get_num_threads()
    token = _share.set(_share.get() or had)
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(had)
        _share.reset(token)


def in_threads(work: Callable[[Item], Result], items: Iterable[Item], threads: int) -> Iterator[Result]:
    """The results of work on each item, in their order; so many items are worked on at the same time.

    Items are taken, and results are kept, at most twice that many ahead. After an error, or if the caller stops, only
    work that has begun is finished; not even that if the process is about to end (see ending.py). Variables of the
    context are those of the caller.

    Args:
        work: called in a thread; in the calling one, if there is only one.
        items: what to work on.
        threads: how many to use.
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
            if len(waiting) > 2 * threads:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=not ends_soon(), cancel_futures=True)
