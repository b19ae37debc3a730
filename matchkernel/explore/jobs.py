"""Work in threads, so that the server answers meanwhile: a bounded number of jobs, long and short ones apart."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Value = TypeVar("Value")


class BusyError(Exception):
    """More jobs wait than may."""


class Jobs:
    """A pool for one kind of jobs.

    Args:
        workers: jobs that run at the same time.
        waiting: jobs that run or wait; those whose client went away count until they are done.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._waiting, self._count = waiting, 0

    async def run(self, work: Callable[..., Value], *arguments: Any) -> Value:
        """The result of work(*arguments), or BusyError. Called from the event loop's thread only."""
        if self._count >= self._waiting:
            raise BusyError
        self._count += 1
        loop, future = asyncio.get_running_loop(), self._pool.submit(work, *arguments)

        def done(_: "Future[Value]") -> None:
            loop.call_soon_threadsafe(self._finished)

        future.add_done_callback(done)
        return await asyncio.shield(asyncio.wrap_future(future))

    def _finished(self) -> None:
        self._count -= 1

    def close(self) -> None:
        """Give up what waits."""
        self._pool.shutdown(wait=False, cancel_futures=True)
