"""Counts of items add up, and seconds by stage add up to the time that passed, also for stages in parallel."""

import pytest

from matchkernel.storage import work as module
from matchkernel.storage.work import InTurn, StageTimes, in_threads, part_progress, progress_counter, recording, stage


@pytest.fixture
def clock(monkeypatch):
    times = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: times[0])
    return times


def test_stages_that_run_at_the_same_time_share_it(clock):
    found = StageTimes()
    found.change("detect", 1)
    clock[0] = 2.0
    found.change("describe", 1)
    clock[0] = 6.0
    found.change("describe", 1)
    clock[0] = 9.0
    found.change("detect", -1)
    clock[0] = 10.0
    found.change("describe", -1)
    found.change("describe", -1)
    clock[0] = 50.0  # nothing runs
    found.change("read", 1)
    found.change("read", -1)
    assert found.rounded() == {"detect": 2 + 4 / 2 + 3 / 3, "describe": 4 / 2 + 3 * 2 / 3 + 1, "read": 0}


def test_a_recording_hears_what_happens_inside_in_every_thread(clock):
    def work(name):
        with stage(name):
            clock[0] += 1

    def fail():
        with stage("c"):
            clock[0] += 2
            raise ZeroDivisionError

    work("unheard")
    with recording() as outer:
        work("a")
        with recording() as inner:
            assert list(in_threads(work, ["b"], 2)) == [None]
            with pytest.raises(ZeroDivisionError):
                fail()
        work("a")
    assert inner.rounded() == {"b": 1, "c": 2}
    assert outer.rounded() == {"a": 2, "b": 1, "c": 2}


def test_pieces_add_up():
    seen = []
    add = progress_counter(lambda *counts: seen.append(counts), 9)
    for piece in (4, 4, 1):
        add(piece)
    assert seen == [(4, 9), (8, 9), (9, 9)]
    progress_counter(None, 9)(4)


def test_a_part_is_counted_within_the_whole():
    seen = []
    part = part_progress(lambda *counts: seen.append(counts), 10, 50)
    part(3, 20)
    assert seen == [(13, 50)]
    assert part_progress(None, 10, 50) is None


def test_work_beside_other_work_is_reported_in_its_turn():
    seen, turns = [], (InTurn(), InTurn())
    turns[0].begin()
    first, second = (turn.delayed(lambda *said: seen.append(said)) for turn in turns)
    second("b", 1)
    first("a", 1)
    second("b", 2)
    first("a", 2)
    turns[1].begin()
    second("b", 3)
    assert seen == [("a", 1), ("a", 2), ("b", 1), ("b", 2), ("b", 3)]
