"""Workers that die, fail and differ: what they were given is done nevertheless, and what cannot be done is named."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_work import Squares

from matchkernel.collection.choose_workers import choose_workers
from matchkernel.collection.local_workers import LocalWorkers, processes_that_fit
from matchkernel.collection.ray_workers import RayWorkers, check_address, offered_memory
from matchkernel.collection.workers import TRIES, Crew, Event, Lost, Queue
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.storage import system

TASKS = [[0, 1, 2], [3, 4], [5], [6, 7, 8, 9]]


def squares(outcomes):
    """Squares by number, and the numbers that were lost."""
    good, lost = {}, {}
    for task, result in outcomes:
        if isinstance(result, Lost):
            lost |= dict.fromkeys(task, result.reason)
        else:
            good |= dict(zip(task, result, strict=True))
    return good, lost


def test_results_of_processes_and_what_they_are_sent():
    with LocalWorkers(2).opened(Squares(weights=b"w" * 10**6), len(TASKS)) as crew:
        assert crew.facts == {"weights": 10**6}
        good, lost = squares(crew.run(TASKS))
    assert good == {number: number**2 for number in range(10)}
    assert lost == {}


def test_a_poisoned_item_costs_three_workers_and_no_other_item(tmp_path):
    work = Squares(tmp_path, killed=(1,), killed_once=(7,), fails=(4,))
    with LocalWorkers(2).opened(work, len(TASKS)) as crew:
        good, lost = squares(crew.run(TASKS))
    assert good == {number: number**2 for number in range(10) if number not in (1, 4)}
    assert "SIGKILL" in lost[1]
    assert lost[4] == "OverflowError: too large"
    assert len((tmp_path / "1.calls").read_text().split()) == TRIES
    assert len((tmp_path / "7.calls").read_text().split()) == 2


def test_an_error_of_ours_ends_the_work_and_the_processes(tmp_path):
    work = Squares(tmp_path, refused=(5,), seconds=0.01)
    with pytest.raises(ArgumentError, match="5 is refused"), LocalWorkers(1).opened(work, 9) as crew:
        list(crew.run([[number] for number in range(9)]))
    (worker,) = set((tmp_path / "5.calls").read_text().split())
    with pytest.raises(ProcessLookupError):
        os.kill(int(worker), 0)


def test_workers_that_cannot_start_are_said():
    with (
        pytest.raises(ArgumentError, match="no such engine"),
        LocalWorkers(2).opened(Squares(start="no such engine"), 5) as crew,
    ):
        crew.facts  # noqa: B018
    with (
        pytest.raises(WorkError, match=r"die while they start.*SIGKILL"),
        LocalWorkers(1).opened(Squares(start="killed"), 5) as crew,
    ):
        list(crew.run([[1]]))


def test_a_killed_starter_takes_its_workers_along(tmp_path):
    """They would go on writing files otherwise, while another run has begun."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); from made_work import Squares; from pathlib import Path;"
        "from matchkernel.collection.local_workers import LocalWorkers\n"
        "with LocalWorkers(1).opened(Squares(Path(sys.argv[2]), seconds=0.2), 9) as crew:\n"
        "    list(crew.run([[n] for n in range(999)]))"
    )
    command = [sys.executable, "-c", code, str(Path(__file__).parent), str(tmp_path)]
    with subprocess.Popen(command) as starter:
        while not (tmp_path / "1.calls").exists():
            time.sleep(0.05)
            assert starter.poll() is None
        starter.kill()
    worker = int((tmp_path / "1.calls").read_text())
    for _ in range(100):
        try:
            os.kill(worker, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("the worker lives on")


class Scripted(Crew):
    """Workers in this process that die and fail as a script says: a pure test of who gets what."""

    def __init__(self, work, size, script):
        super().__init__(work, size)
        self.script, self.number, self.coming, self.tasks = script, 0, [], []

    def start(self):
        self.number += 1
        self.coming.append(Event(self.number, "ready", {}))
        return self.number

    def send(self, worker, task):
        self.tasks.append(list(task))
        kind, is_guilty = self.script.pop() if self.script else ("done", True)
        value = {"done": [n * n for n in task], "error": RuntimeError("why"), "died": "gone"}[kind]
        self.coming.append(Event(worker, kind, value, is_guilty))

    def events(self):
        some, self.coming = self.coming[:2], self.coming[2:]
        return some


@given(
    st.lists(st.tuples(st.sampled_from(["done", "error", "died"]), st.booleans()), max_size=40),
    st.integers(1, 5),
    st.lists(st.lists(st.integers(), min_size=1, max_size=4), max_size=6),
)
def test_nothing_is_lost_or_doubled_whatever_dies(script, size, lists):
    """Every item comes out once, done or lost; only items that cost three guilty deaths are lost."""
    numbers = iter(range(100))
    tasks = [[next(numbers) for _ in some] for some in lists]
    crew = Scripted(Squares(), size, list(script))
    seen = []
    for task, result in crew.run(tasks):
        seen += task
        assert isinstance(result, Lost) or result == [n * n for n in task]
        if isinstance(result, Lost):
            assert sum(task[0] in tried for tried in crew.tasks) >= TRIES
    assert sorted(seen) == sorted(n for task in tasks for n in task)


def test_a_lost_machine_is_not_the_fault_of_a_task():
    queue = Queue([[1, 2]], lambda task: [[n] for n in task])
    for _ in range(10):
        task, tries = queue.take()
        assert (task, tries) == ([1, 2], 0)
        assert queue.retry(task, tries, is_guilty=False)


def test_workers_that_differ_are_refused():
    crew = Scripted(Squares(), 2, [])
    crew._handle_start(Event(1, "ready", {"engine": "torch"}))
    with pytest.raises(WorkError, match="engine is 'onnx' on one, 'torch' on another"):
        crew._handle_start(Event(2, "ready", {"engine": "onnx"}))


def test_who_works():
    assert choose_workers(items=100) is None
    assert choose_workers(items=101) == LocalWorkers(None)
    assert choose_workers(items=10**6, has_gpu=True) is None
    assert choose_workers("local", 3, items=2) == LocalWorkers(3)
    assert choose_workers("ray", items=2).address is None
    assert choose_workers("ray://head:10001", 8, items=2).label == "ray://head:10001, 8 workers"
    assert choose_workers("10.0.0.1:6379", items=2).address == "10.0.0.1:6379"
    for on in ("cluster", "ray:head", "ray://head", "ray://a b:1", "host:port"):
        with pytest.raises(ArgumentError, match="HOST:PORT"):
            choose_workers(on, items=2)
    with pytest.raises(ArgumentError, match="at least 1"):
        choose_workers(count=0, items=1)
    assert check_address("[::1]:6379") == "[::1]:6379"
    assert RayWorkers().label == "ray"
    assert LocalWorkers(1).label == "local, 1 process"


def test_as_many_processes_as_fit():
    assert processes_that_fit(1) == len(os.sched_getaffinity(0))
    assert processes_that_fit(2**60) == 1


@pytest.mark.parametrize(("limit", "is_kept"), [("3000", True), ("max\n", False), (str(2**63 - 4096), False)])
def test_a_container_may_have_less_memory_than_its_machine(limit, is_kept, tmp_path, monkeypatch):
    (tmp_path / "memory.max").write_text(limit)
    monkeypatch.setattr(system, "CONTAINER_LIMITS", (tmp_path / "memory.max", tmp_path / "absent"))
    assert (system.memory_here() == 3000) is is_kept
    assert processes_that_fit(2000) == (1 if is_kept else system.cores())


def test_a_worker_asks_ray_for_no_more_than_the_largest_machine_has():
    nodes = [{"Alive": alive, "Resources": there} for alive, there in
             ((True, {"memory": 3e9, "CPU": 2.0}), (True, {"CPU": 1.0}), (False, {"memory": 9e9}))]  # fmt: skip
    assert offered_memory(nodes, 4_440_000_000) == 3_000_000_000
    assert offered_memory(nodes, 1_100_000_000) == 1_100_000_000
    assert offered_memory([], 5) == 0


def test_ctrl_c_is_for_the_starter_only(tmp_path):
    """A worker in the middle of a task ignores it and finishes its file."""
    with LocalWorkers(1).opened(Squares(tmp_path, seconds=0.3), 2) as crew:
        outcomes = crew.run([[1], [2]])
        next(outcomes)
        os.kill(int((tmp_path / "1.calls").read_text()), signal.SIGINT)
        assert next(outcomes) == ([2], [4])
