"""A thread-safe LRU cache."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, TypeVar

Value = TypeVar("Value")


class Cache:
    """The results used last.

    Threads that ask for the same key share one computation, as long as its entry is not evicted before it ends.

    Args:
        limit: maximum number of entries, including pending ones.
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
