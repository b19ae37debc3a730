"""Workers that die, fail or differ: all other items are done, and those that cannot be done are named."""

import os
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from helpers import refuses, wait_until
from hypothesis import given
from hypothesis import strategies as st
from made_work import Squares

from matchkernel.errors import ArgumentError, WorkError
from matchkernel.storage import work
from matchkernel.storage.files import is_running
from matchkernel.storage.pool import TRIES, Failure, LocalWorkers, Pool, WorkerDiedError, processes_that_fit

TASKS = [[0, 1, 2], [3, 4], [5], [6, 7, 8, 9]]


def squares(outcomes):
    """Squares by number, and the reasons of failures by number."""
    good, failed = {}, {}
    for items, result in outcomes:
        if isinstance(result, Failure):
            failed |= dict.fromkeys(items, result.reason)
        else:
            good |= dict(zip(items, result, strict=True))
    return good, failed


def test_processes_return_all_results_and_the_facts_of_the_work():
    with LocalWorkers(2).pool(Squares(weights=b"w" * 10**6).work, len(TASKS)) as pool:
        assert pool.facts == {"weights": 10**6}
        for _ in range(2):
            assert squares(pool.run(TASKS)) == ({number: number**2 for number in range(10)}, {})


def test_a_poisonous_item_costs_three_workers_and_no_other_item(tmp_path):
    work = Squares(tmp_path, killed=(1,), killed_once=(7,), fails=(4,)).work
    with LocalWorkers(2).pool(work, len(TASKS)) as pool:
        good, failed = squares(pool.run(TASKS))
    assert good == {number: number**2 for number in range(10) if number not in (1, 4)}
    assert "SIGKILL" in failed[1]
    assert failed[4] == "OverflowError: too large"
    assert len((tmp_path / "1.calls").read_text().split()) == TRIES
    assert len((tmp_path / "7.calls").read_text().split()) == 2


def test_an_error_of_ours_ends_the_work_and_the_processes(tmp_path):
    work = Squares(tmp_path, refused=(5,), seconds=0.01).work
    with refuses(ArgumentError), LocalWorkers(1).pool(work, 9) as pool:
        list(pool.run([[number] for number in range(9)]))
    (worker,) = set((tmp_path / "5.calls").read_text().split())
    assert not is_running(int(worker))


@pytest.mark.parametrize(("start", "error"), [("no such engine", ArgumentError), ("killed", WorkError)])
def test_workers_that_cannot_start_are_reported(start, error):
    with refuses(error), LocalWorkers(2).pool(Squares(start=start).work, 5) as pool:
        list(pool.run([[1]]))


def test_workers_end_with_the_process_that_started_them(tmp_path):
    """Otherwise they would go on writing files while another run has begun."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from made_work import Squares; from pathlib import Path;"
        "from matchkernel.storage.pool import LocalWorkers\n"
        "with LocalWorkers(1).pool(Squares(Path(sys.argv[2]), seconds=0.2).work, 9) as pool:\n"
        "    list(pool.run([[n] for n in range(999)]))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command) as starter:
        wait_until((tmp_path / "1.calls").exists, starter)
        starter.kill()
    worker = int((tmp_path / "1.calls").read_text())
    wait_until(lambda: not is_running(worker), seconds=20)


def test_a_worker_ignores_ctrl_c(tmp_path):
    """It reaches the whole group; a worker in the middle of a task finishes its file."""
    with LocalWorkers(1).pool(Squares(tmp_path, seconds=0.3).work, 2) as pool:
        outcomes = pool.run([[1], [2]])
        next(outcomes)
        os.kill(int((tmp_path / "1.calls").read_text()), signal.SIGINT)
        assert next(outcomes) == ([2], [4])


class Scripted:
    """A worker in this process that dies and fails according to a script that all workers share."""

    def __init__(self, script, tried, facts=None):
        self.script, self.tried, self.facts = script, tried, facts or {}

    def start(self):
        return self.facts

    def run(self, items):
        self.tried.append(list(items))
        try:
            kind, by_task = self.script.pop()
        except IndexError:
            kind, by_task = "done", True
        if kind == "died":
            raise WorkerDiedError("gone", by_task)
        if kind == "error":
            raise RuntimeError("why")
        return [number * number for number in items]

    def kill(self):
        pass

    close = kill


@given(
    st.lists(st.tuples(st.sampled_from(["done", "error", "died"]), st.booleans()), max_size=40),
    st.integers(1, 5),
    st.lists(st.lists(st.integers(), min_size=1, max_size=4), max_size=6),
)
def test_every_item_comes_out_once_whatever_dies(script, size, lists):
    """Done or failed; only items that failed three times are given up."""
    numbers = iter(range(100))
    tasks = [[next(numbers) for _ in some] for some in lists]
    script, tried, seen = list(script), [], []
    with closing(Pool([Scripted(script, tried) for _ in range(size)])) as pool:
        for items, result in pool.run(tasks):
            seen += items
            assert isinstance(result, Failure) or result == [n * n for n in items]
            if isinstance(result, Failure):
                assert sum(items[0] in some for some in tried) >= TRIES
    assert sorted(seen) == sorted(n for items in tasks for n in items)


def test_a_lost_machine_is_not_the_fault_of_a_task():
    tried = []
    with closing(Pool([Scripted([("died", False)] * 10, tried)])) as pool:
        assert list(pool.run([[1, 2]])) == [([1, 2], [1, 4])]
    assert tried == [[1, 2]] * 11


def test_workers_that_differ_are_refused():
    workers = [Scripted([], [], {"engine": engine}) for engine in ("torch", "onnx")]
    with refuses(WorkError), closing(Pool(workers)) as pool:
        while True:
            list(pool.run([[1]]))


def test_as_many_processes_as_fit_into_the_memory():
    assert processes_that_fit(1) == work.cores()
    assert processes_that_fit(2**60) == 1
    assert [LocalWorkers(count).label for count in (None, 1, 2)] == ["local", "local, 1 process", "local, 2 processes"]


@pytest.mark.parametrize(("limit", "is_kept"), [("3000", True), ("max\n", False), (str(2**63 - 4096), False)])
def test_a_container_may_have_less_memory_than_its_machine(limit, is_kept, tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(work, "CONTAINER_LIMITS", (tmp_path / "memory.max", tmp_path / "absent"))
    assert (work.memory_here() == 3000) is is_kept
    assert processes_that_fit(2000) == (1 if is_kept else work.cores())
