"""One process at a time: a lock on an open file or folder that may be removed while others wait for it."""

import fcntl
import os
from pathlib import Path


def has_lock(lock: int, place: Path) -> bool:
    """Lock an open file or folder without waiting; whether it is ours now and still the one at `place`.

    Who had it may have ended and removed it after we opened it: then we lock what is gone, while another locks what is
    there. Raises OSError where the file system cannot lock it.
    """
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return is_at(lock, place)


def is_alone_in(lock: int, folder: Path) -> bool | None:
    """has_lock for an open folder; None where the file system locks no folders, such as some over a network."""
    try:
        return has_lock(lock, folder)
    except OSError:
        return None


def is_at(lock: int, place: Path) -> bool:
    """Whether an open file or folder is the one at a place."""
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except OSError:
        return False
