"""Results in memory: a bounded number of them, and each computed once however many ask at the same time."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

Value = TypeVar("Value")


class Cache:
    """The results used last.

    Args:
        limit: how many are kept; one that is being computed counts.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Future[Any]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The result kept for a key, or that of `make`. A failure is raised to all who wait for it and is not kept."""
        with self._lock:
            future = self._entries.get(key)
            is_new = future is None
            if future is None:
                future = self._entries[key] = Future()
            self._entries.move_to_end(key)
            while len(self._entries) > self._limit:
                self._entries.popitem(last=False)
        if is_new:
            try:
                future.set_result(make())
            except BaseException as error:
                with self._lock:
                    if self._entries.get(key) is future:
                        del self._entries[key]
                future.set_exception(error)
        value: Value = future.result()
        return value

    def __len__(self) -> int:
        return len(self._entries)
