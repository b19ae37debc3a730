"""Results of a function are computed once, and only the last ones are kept."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from matchkernel.storage.memo import Memo


def test_a_result_is_computed_once_for_all_who_ask_at_the_same_time():
    calls, gate = [], threading.Event()

    def work(key):
        calls.append(key)
        gate.wait(10)
        return key + 1

    memo = Memo(work, 4)
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(memo, 7) for _ in range(5)]
        gate.set()
        assert [one.result() for one in waiting] == [8] * 5
    assert calls == [7]


def test_a_failure_is_not_kept_and_the_number_of_results_is_bounded():
    calls = []

    def work(key):
        calls.append(key)
        return 12 // key

    memo = Memo(work, 3)
    for _ in range(2):
        with pytest.raises(ZeroDivisionError):
            memo(0)
    for key in (1, 2, 3, 4, 4, 1):
        assert memo(key) == 12 // key
    assert calls == [0, 0, 1, 2, 3, 4, 1]
    assert len(memo) == 3
