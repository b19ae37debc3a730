"""One process at a time in a folder, without a lock file to leave behind."""

import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.locks import is_alone_in, is_at


@contextmanager
def alone_in(folder: Path, out: Path) -> Iterator[None]:
    """Make a folder and keep other processes out of it; what a killed one was writing is removed."""
    is_new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise WriteError(f"{folder}: cannot be made ({error.strerror})") from None
    is_alone = None
    try:
        is_alone = is_alone_in(lock, folder)
        if is_alone is False:
            raise FileError(f"{out}: another process is extracting into it right now")
        parts = folder.rglob(".*.part.npz") if is_alone else []  # without a lock another may be writing them
        for path in [*parts, *_left_beside(out)]:
            path.unlink(missing_ok=True)
        yield
    finally:
        if is_new and is_alone and is_at(lock, folder):
            with suppress(OSError):  # it is not empty
                folder.rmdir()
        os.close(lock)


def _left_beside(out: Path) -> Iterator[Path]:
    """What a process that runs no more was writing beside `out` (see matchkernel.storage.files)."""
    for path in out.parent.glob(f".{glob.escape(out.stem)}.*.part{glob.escape(out.suffix)}"):
        process = path.name.removesuffix(f".part{out.suffix}").rpartition(".")[2]
        if out.suffix and process.isdecimal() and not _is_running(int(process)):
            yield path


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        return True
    return True
