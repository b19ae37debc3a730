"""Write a file whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from matchkernel.errors import FileError, MatchKernelError, WriteError


@contextmanager
def replacing(target: str | Path) -> Iterator[Path]:
    """A path beside `target` to write to; renamed to `target` at the end, removed if anything fails.

    A kill at any moment leaves the old file or the new one. The path keeps the target's suffix.
    """
    target = Path(target)
    if target.is_dir() or not target.parent.is_dir():
        raise FileError(f"{target}: " + ("is a folder" if target.is_dir() else "its folder does not exist"))
    part = target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")
    try:
        yield part
        with part.open("rb+") as written:
            os.fsync(written.fileno())
        part.replace(target)
    except OSError as error:
        if isinstance(error, MatchKernelError):
            raise
        raise WriteError(f"{target}: could not be written ({error.strerror or error})") from error
    finally:
        with suppress(OSError):
            part.unlink()
