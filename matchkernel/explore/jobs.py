"""Work in threads, so that the server answers meanwhile: a bounded number of jobs, long and short ones apart."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Value = TypeVar("Value")


class BusyError(Exception):
    """The maximum number of jobs run or wait."""


class StoppedError(Exception):
    """The server is stopping; jobs are no longer awaited."""


class Jobs:
    """A pool for one kind of jobs.

    Args:
        workers: jobs that run at the same time.
        waiting: jobs that run or wait; those whose client went away count until they are done.
    """

    def __init__(self, workers: int, waiting: int) -> None:
        self._pool, self._waiting = ThreadPoolExecutor(workers), waiting
        self._jobs: set[Future[Any]] = set()
        self._stopped = asyncio.Event()

    async def run(self, work: Callable[..., Value], *arguments: Any) -> Value:
        """The result of work(*arguments), BusyError or StoppedError. Called from the event loop's thread only."""
        if self._stopped.is_set():
            raise StoppedError("the explorer was stopped")
        if len(self._jobs) >= self._waiting:
            raise BusyError("too many requests at once: try again in a moment")
        job = self._pool.submit(work, *arguments)
        self._jobs.add(job)
        job.add_done_callback(self._jobs.discard)
        answer, stopped = asyncio.wrap_future(job), asyncio.ensure_future(self._stopped.wait())
        try:
            await asyncio.wait((answer, stopped), return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
        if self._stopped.is_set():  # a job that waited is cancelled, too, and may be seen first
            raise StoppedError("the explorer was stopped")
        return answer.result()

    def close(self) -> None:
        """Drop what waits, and no longer await what runs: a thread cannot be ended."""
        self._stopped.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
