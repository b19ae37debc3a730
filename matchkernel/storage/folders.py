"""Build a folder whole or not at all; a build that was stopped goes on where it was."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from matchkernel.errors import FileError, MatchKernelError, WriteError
from matchkernel.storage.files import check_new_folder
from matchkernel.storage.locks import has_lock, is_alone_in

JOURNAL, LOCK = "journal", "lock"
WRITTEN_LAST = ("manifest.json", "photos.json")


@dataclass
class Build:
    """A folder being built, beside its target. Work is done in steps; a step marked done is not done again."""

    folder: Path
    done: set[str]
    lock: int  # file descriptor; a program started for the build may hold it too
    _journal: IO[str] = field(repr=False)

    def mark(self, step: str) -> None:
        """Remember that a step's files are written."""
        self._journal.write(step + "\n")
        self._journal.flush()
        self.done.add(step)

    def forget(self) -> None:
        """Do every step again."""
        first = (self.folder / JOURNAL).read_text(encoding="utf-8").split("\n", 1)[0]
        self._journal.seek(0)
        self._journal.truncate()
        self._journal.write(first + "\n")
        self._journal.flush()
        self.done.clear()


@contextmanager
def building(target: str | Path, settings: Mapping[str, Any]) -> Iterator[Build]:
    """Work in `<target>.part` and rename it to `target` at the end.

    A stopped build with the same settings goes on; with others it starts anew. A second build of the same target at the
    same time is refused, and so is a target that exists.

    Args:
        target: folder to make.
        settings: everything that determines the result, JSON values.
    """
    target = Path(target)
    check_new_folder(target)
    part = target.with_name(target.name + ".part")
    if part.exists() and not _is_ours(part):
        raise FileError(f"{part}: is in the way; a build works in it, but it holds other things")
    try:
        part.mkdir(parents=True, exist_ok=True)
        with _alone_in(part, target), (part / LOCK).open("w") as lock:
            if not has_lock(lock.fileno(), part / LOCK):
                raise FileError(_in_use(target))
            done = _resume(part, json.dumps(settings, sort_keys=True))
            with _removed_if_empty(part), (part / JOURNAL).open("r+", encoding="utf-8") as journal:
                journal.seek(0, os.SEEK_END)
                yield Build(part, done, lock.fileno(), journal)
            (part / JOURNAL).unlink()
            (part / LOCK).unlink()
            part.replace(target)
    except OSError as error:
        if isinstance(error, MatchKernelError):
            raise
        raise WriteError(f"{target}: could not be written ({error.strerror or error}); what is done is kept") from error


@contextmanager
def _alone_in(part: Path, target: Path) -> Iterator[None]:
    """Lock the folder as well, where that can be done: at the end the lock file goes before the folder is renamed."""
    folder = os.open(part, os.O_RDONLY)
    try:
        if is_alone_in(folder, part) is False:
            raise FileError(_in_use(target))
        yield
    finally:
        os.close(folder)


@contextmanager
def _removed_if_empty(part: Path) -> Iterator[None]:
    """Remove the folder of a build that failed before it had made anything to go on from."""
    try:
        yield
    except BaseException:
        if {path.name for path in part.iterdir()} <= {LOCK, JOURNAL}:
            shutil.rmtree(part)
        raise


def _in_use(target: Path) -> str:
    return f"{target}: is being built by another process right now"


def _is_ours(part: Path) -> bool:
    """Whether a folder is empty or holds a build: with its lock, or with what is written last and not yet renamed."""
    names = {path.name for path in part.iterdir()} if part.is_dir() else {"a file"}
    return not names or bool(names & {LOCK, *WRITTEN_LAST})


def _resume(part: Path, settings: str) -> set[str]:
    """Steps done by an earlier build with the same settings; else an empty folder."""
    journal = part / JOURNAL
    lines = journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else []
    if lines and lines[0] == settings:
        for path in part.rglob(".*.part*"):  # what a killed writer left, see matchkernel.storage.files
            path.unlink()
        done = lines[1:-1]  # the last line is empty, or was cut in writing
        journal.write_text("".join(line + "\n" for line in (settings, *done)), encoding="utf-8")
        return set(done)
    journal.write_text(settings + "\n", encoding="utf-8")
    for path in part.iterdir():
        if path.name not in (LOCK, JOURNAL):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return set()
