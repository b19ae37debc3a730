"""What Pillow warns of, handled as a reader wants it."""

import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

_LOCK = threading.Lock()


@contextmanager
def warnings_as(action: Literal["ignore", "error"], category: type[Warning] = Warning) -> Iterator[None]:
    """Ignore warnings, or raise them, meanwhile. One thread at a time: the filters belong to the whole process."""
    with _LOCK, warnings.catch_warnings():
        warnings.simplefilter(action, category)
        yield
