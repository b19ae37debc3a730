"""Write a file whole or not at all, and never over what is being read."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError


def check_output(target: Path, *inputs: Path) -> None:
    """Refuse, before any work, a file that could not be written or that is one of the inputs."""
    if target.is_dir() or not target.parent.is_dir():
        raise FileError(f"{target}: " + ("is a folder" if target.is_dir() else "its folder does not exist"))
    if any(source.exists() and target.exists() and target.samefile(source) for source in inputs):
        raise ArgumentError(f"{target}: is one of the inputs; choose another place")


def check_picture(target: Path, *inputs: Path) -> None:
    """check_output for a picture, which is a PNG."""
    if target.suffix.lower() != ".png":
        raise ArgumentError(f"{target}: the picture is a PNG, so its name must end in .png")
    check_output(target, *inputs)


@contextmanager
def replacing(target: str | Path) -> Iterator[Path]:
    """A path beside `target` to write to; renamed to `target` at the end, removed if anything fails.

    A kill at any moment leaves the old file or the new one. The path keeps the target's suffix.
    """
    target = Path(target)
    check_output(target)
    writer = f"{threading.get_native_id()}.{os.getpid()}"
    part = target.with_name(f".{target.stem}.{writer}.part{target.suffix}")
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
