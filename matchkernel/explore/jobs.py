"""Work in threads, so that the server answers meanwhile: a bounded number of jobs, long and short ones apart."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

Value = TypeVar("Value")


class BusyError(Exception):
    """More jobs wait than may."""


class StoppedError(Exception):
    """The server ends; nobody waits for jobs any more."""


class Jobs:
    """A pool for one kind of jobs.

    Args:
        workers: jobs that run at the same time.
        waiting: jobs that run or wait; those whose client went away count until they are done.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._pool = ThreadPoolExecutor(workers)
        self._waiting, self._count = waiting, 0
        self._awaited: set[asyncio.Future[Any]] = set()
        self._is_closed = False

    async def run(self, work: Callable[..., Value], *arguments: Any) -> Value:
        """The result of work(*arguments), BusyError or StoppedError. Called from the event loop's thread only."""
        if self._is_closed:
            raise StoppedError
        if self._count >= self._waiting:
            raise BusyError
        self._count += 1
        loop, future = asyncio.get_running_loop(), self._pool.submit(work, *arguments)

        def done(_: "Future[Value]") -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._finished)

        future.add_done_callback(done)
        answer = asyncio.shield(asyncio.wrap_future(future))
        self._awaited.add(answer)
        answer.add_done_callback(self._awaited.discard)
        return await answer

    def _finished(self) -> None:
        self._count -= 1

    def close(self) -> None:
        """Give up what waits, and what runs too: a thread cannot be ended, but its result is not awaited."""
        self._is_closed = True
        for answer in self._awaited:
            if not answer.done():
                answer.set_exception(StoppedError())
        self._pool.shutdown(wait=False, cancel_futures=True)
