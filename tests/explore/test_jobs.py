"""Jobs in threads: a bounded number, dropped when the server stops."""

import asyncio
import threading

import pytest
from made_photos import in_own_loop

from matchkernel.explore.jobs import BusyError, Jobs, StoppedError


def test_more_jobs_than_may_wait_are_refused_and_counted_down():
    async def main():
        jobs, gate = Jobs(1, 2), threading.Event()
        waiting = [asyncio.ensure_future(jobs.run(gate.wait, 10)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await jobs.run(int)
        gate.set()
        assert await asyncio.gather(*waiting) == [True, True]
        assert await jobs.run(int, "7") == 7
        jobs.close()

    in_own_loop(main())


def test_jobs_that_run_or_wait_are_given_up_at_the_end():
    async def main():
        jobs, gate = Jobs(1, 3), threading.Event()
        waiting = [asyncio.ensure_future(jobs.run(gate.wait, 10)) for _ in range(2)]
        await asyncio.sleep(0)
        jobs.close()
        assert [type(found) for found in await asyncio.gather(*waiting, return_exceptions=True)] == [StoppedError] * 2
        with pytest.raises(StoppedError):
            await jobs.run(int)
        return gate

    gate = in_own_loop(main())
    gate.set()  # the thread that runs finds the loop closed
