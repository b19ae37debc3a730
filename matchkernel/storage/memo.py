"""Functions whose last results are kept, for several threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, Generic, TypeVar

Value = TypeVar("Value")


class Memo(Generic[Value]):
    """A function that keeps the results of the last `limit` calls, by its arguments, `key_of` them or a key given.

    Threads that call it with the same arguments share one computation, as long as its entry is not evicted before it
    ends. A failure is not kept.
    """

    def __init__(
        self, function: Callable[..., Value], limit: int, key_of: Callable[..., Hashable] = lambda *arguments: arguments
    ) -> None:
        self._function, self._limit, self._key_of = function, limit, key_of
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, Future[Value]] = OrderedDict()

    def __call__(self, *arguments: Any, key: Hashable = None) -> Value:
        """The result that is kept for these arguments, or under this key, or a new one."""
        key = self._key_of(*arguments) if key is None else key
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
                future.set_result(self._function(*arguments))
            except BaseException as error:
                with self._lock:
                    if self._entries.get(key) is future:
                        del self._entries[key]
                future.set_exception(error)
        return future.result()

    def __len__(self) -> int:
        return len(self._entries)
