"""Shards: pieces of a large work whose results are files, so that nothing is done twice and nothing is lost.

The name of a shard's file is its key, the digest of all that determines its contents: the inputs, the settings, the
model, the version of this package. A file of that name is therefore either the result or damaged; the second shows
when it is read, and it is made again. Files are written atomically, so it does not matter who writes them how often.
"""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from matchkernel import __version__
from matchkernel.errors import FileError
from matchkernel.storage.files import json_digest, write_errors

KEY_LETTERS = 40  # of sha256 in hexadecimal: 160 bits


def key_of(*parts: Any) -> str:
    """The digest of JSON values and of the version of this package."""
    return json_digest([__version__, *parts])[:KEY_LETTERS]


@contextmanager
def visible_mark(folder: Path) -> Iterator[Path]:
    """A file in a folder by which workers on other machines can tell that they see the same folder."""
    mark = folder / f".shared.{os.getpid()}.{os.getpid()}.part"  # removed as a leftover if this process is killed
    with write_errors(mark):
        mark.touch()
    try:
        yield mark
    finally:
        with suppress(OSError):
            mark.unlink()


def check_visible(mark: Path) -> None:
    """Refuse, in a worker, to work where the files of the run cannot be seen."""
    if not mark.exists():
        raise FileError(
            f"{mark.parent}: the machine {platform.node()} does not see this folder of the run; inputs and outputs "
            "must be on a file system that all machines share, under the same path"
        )
