"""A lock on a folder that ends with its process, however that ends."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"


@contextmanager
def locked(folder: Path, *, is_new: bool) -> Iterator[tuple[int, ...] | None]:
    """Lock a folder that exists. The value is None if another process has locked it.

    Otherwise it is the file descriptors that a program started in the block may inherit, so that it keeps the lock if
    this process is killed; none on Windows.

    Args:
        folder: the folder.
        is_new: remove it at the end, before others can lock it, if it is empty.
    """
    with _locked_by_flock(folder, is_new) if fcntl else _locked_by_filelock(folder, is_new) as lock:
        yield lock


@contextmanager
def _locked_by_filelock(folder: Path, is_new: bool) -> Iterator[tuple[int, ...] | None]:
    """With a file beside the folder, as Windows cannot rename a folder that contains an open file."""
    from filelock import FileLock, Timeout

    place = folder.resolve()
    lock = FileLock(place.with_name(f".{place.name}.{LOCK}"), timeout=0)
    try:
        lock.acquire()
    except Timeout:
        yield None
        return
    try:
        yield ()
    finally:
        if is_new:
            _remove_if_empty(folder)
        lock.release()


@contextmanager
def _locked_by_flock(folder: Path, is_new: bool) -> Iterator[tuple[int, ...] | None]:
    lock, place = _try_lock(folder)
    try:
        yield (lock,) if place else None
    finally:
        if place and _is_at(lock, place) and place != folder:
            place.unlink()
        if is_new and place and (place != folder or _is_at(lock, folder)):
            _remove_if_empty(folder)
        os.close(lock)


def _try_lock(folder: Path) -> tuple[int, Path | None]:
    """A file descriptor and the path that it locks; None if another process has the lock.

    The lock is on the folder itself, so that no lock file is left behind; some file systems, such as network file
    systems, can only lock files. The previous owner may have removed the path after we opened it: then we would lock a
    deleted folder while another process locks the new one.
    """
    problem: OSError | None = None
    for place, flags in ((folder, os.O_RDONLY), (folder / LOCK, os.O_RDWR | os.O_CREAT)):
        lock = os.open(place, flags, 0o666)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock, None
        except OSError as error:
            os.close(lock)
            problem = error
        else:
            return lock, place if _is_at(lock, place) else None
    assert problem is not None
    raise problem


def _is_at(lock: int, place: Path) -> bool:
    """True if an open file or folder is the one at this path."""
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except OSError:
        return False


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # it is not empty, or is gone
        folder.rmdir()
