"""Work in threads keeps its order, its errors and its share of the cores."""

import os
import subprocess
import sys
import threading
from contextvars import ContextVar

import cv2
import pytest
import torch

from matchkernel.storage import work as module
from matchkernel.storage.work import in_threads, one_thread_each, spare_threads, use_threads


def test_results_come_in_the_order_of_the_items():
    first_may_end = threading.Event()

    def work(number):
        if number:
            first_may_end.set()
        else:
            assert first_may_end.wait(10)  # the second one runs meanwhile
        return number, threading.get_ident()

    found = list(in_threads(work, range(20), 2))
    assert [number for number, _ in found] == list(range(20))
    assert len({thread for _, thread in found} - {threading.get_ident()}) == 2
    assert {thread for _, thread in in_threads(lambda n: (n, threading.get_ident()), range(3), 1)} == {
        threading.get_ident()
    }


def test_items_are_taken_only_a_few_ahead_and_an_error_stops_the_rest():
    taken = []

    def items():
        for number in range(1000):
            taken.append(number)
            yield number

    def work(number):
        if number == 3:
            raise KeyboardInterrupt
        return number

    results = in_threads(work, items(), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(KeyboardInterrupt):
        next(results)
    assert len(taken) < 12


def test_work_that_has_begun_is_awaited_unless_the_process_is_about_to_end(monkeypatch):
    monkeypatch.setattr(module, "_ending", [])
    for is_announced, ended in ((False, [0, 1]), (True, [0])):
        begun, may_end, done = threading.Event(), threading.Event(), []

        def work(number, begun=begun, may_end=may_end, done=done):
            if number:
                begun.set()
                assert may_end.wait(10)
            done.append(number)

        results = in_threads(work, range(2), 2)
        next(results)
        assert begun.wait(10)
        if is_announced:
            module.announce_end()
        else:
            threading.Timer(0.05, may_end.set).start()
        results.close()
        assert done == ended
        may_end.set()


def test_cores_are_shared_and_variables_are_those_of_the_caller():
    torch.set_num_threads(4)
    word = ContextVar("word", default="none")
    word.set("caller's")
    try:
        found = list(in_threads(lambda _: (word.get(), spare_threads()), range(4), 2))
        inner = list(in_threads(lambda _: list(in_threads(lambda _: spare_threads(), range(2), 2)), range(2), 2))
        assert spare_threads() == 4
    finally:
        torch.set_num_threads(1)
    assert found == [("caller's", 2)] * 4
    assert inner == [[1, 1], [1, 1]]


def test_one_thread_of_torch_leaves_the_spare_threads_as_they_were():
    """Torch computes with one thread, work may use as many as before; afterwards all is as it was."""
    torch.set_num_threads(2)
    try:
        with one_thread_each():
            assert (torch.get_num_threads(), spare_threads()) == (1, 2)
            with one_thread_each():
                assert (torch.get_num_threads(), spare_threads()) == (1, 2)
        assert (torch.get_num_threads(), spare_threads()) == (2, 2)
        use_threads(1)
        assert (torch.get_num_threads(), cv2.getNumThreads()) == (1, 1)
    finally:
        torch.set_num_threads(1)
        cv2.setNumThreads(-1)


def test_an_absurd_number_of_threads_is_not_begun():
    code = "from matchkernel.storage.work import process_threads; print(process_threads())"
    asked = {**os.environ, "OMP_NUM_THREADS": "100000"}
    done = subprocess.run([sys.executable, "-c", code], env=asked, capture_output=True, text=True, check=True)
    assert int(done.stdout) <= 256
