"""Folders: written whole or not at all, used by one process at a time, or built in steps that survive a stop."""

import fcntl
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.files import check_new_folder, leftovers, parents_made, part_of, write_errors

JOURNAL, LOCK = "journal", "lock"
WRITTEN_LAST = ("manifest.json", "photos.json")


@contextmanager
def new_folder(target: str | Path) -> Iterator[Path]:
    """A folder beside `target` to fill; renamed to `target` at the end, removed if anything fails."""
    target = Path(target)
    check_new_folder(target)
    part = part_of(target)
    with write_errors(target), parents_made(target):
        try:
            part.mkdir()
            yield part
            part.replace(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def exclusive(folder: Path, refusal: str) -> Iterator[int]:
    """Make a folder where it is missing, and keep other processes out of it; yields the file descriptor of the lock.

    What killed processes were writing there is removed; so is, at the end, a folder that was made here and is empty.

    Args:
        folder: the folder.
        refusal: message of the FileError if another process has it.
    """
    is_new = not folder.exists()
    with parents_made(folder):
        try:
            folder.mkdir(exist_ok=True)
            lock, place = _locked(folder)
        except OSError as error:
            raise WriteError(f"{folder}: cannot be made or written ({error.strerror})") from None
        try:
            if not place:
                raise FileError(refusal)
            for path in leftovers(folder):
                path.unlink(missing_ok=True)
            yield lock
        finally:
            if place and _is_at(lock, place) and place != folder:
                place.unlink()
            if is_new and place and (place != folder or _is_at(lock, folder)):
                with suppress(OSError):  # it is not empty, or is gone
                    folder.rmdir()
            os.close(lock)


def _locked(folder: Path) -> tuple[int, Path | None]:
    """A file descriptor and the place that it locks; None where another process has the lock.

    The lock is on the folder itself, so that none is left behind; some file systems, such as those over a network,
    lock files only. Who had the lock may have removed its place after we opened it: then we lock what is gone, while
    another locks what is there.
    """
    lock, place = os.open(folder, os.O_RDONLY), folder
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return lock, None
    except OSError:
        os.close(lock)
        lock, place = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666), folder / LOCK
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return lock, None
        except OSError:
            os.close(lock)
            raise
    return lock, place if _is_at(lock, place) else None


def _is_at(lock: int, place: Path) -> bool:
    """Whether an open file or folder is the one at a place."""
    try:
        return os.path.samestat(os.fstat(lock), place.stat())
    except OSError:
        return False


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
def resumable_build(target: str | Path, settings: Mapping[str, Any]) -> Iterator[Build]:
    """Work in `<target>.part` and rename it to `target` at the end.

    A stopped build with the same settings goes on where it was; with others it starts anew. A second build of the same
    target at the same time is refused, and so is a target that exists.

    Args:
        target: folder to make.
        settings: everything that determines the result, JSON values.
    """
    target = Path(target)
    check_new_folder(target)
    part = target.with_name(target.name + ".part")
    if part.exists() and not _is_ours(part):
        raise FileError(f"{part}: is in the way; a build works in it, but it holds other things")
    with (
        write_errors(target, "; what is done is kept"),
        exclusive(part, f"{target}: is being built by another process right now") as lock,
    ):
        done = _resume(part, json.dumps(settings, sort_keys=True))
        with _removed_if_empty(part), (part / JOURNAL).open("r+", encoding="utf-8") as journal:
            journal.seek(0, os.SEEK_END)
            yield Build(part, done, lock, journal)
        for name in (JOURNAL, LOCK):
            (part / name).unlink(missing_ok=True)
        part.replace(target)


@contextmanager
def _removed_if_empty(part: Path) -> Iterator[None]:
    """Remove the folder of a build that failed before it had made anything to go on from."""
    try:
        yield
    except BaseException:
        if {path.name for path in part.iterdir()} <= {LOCK, JOURNAL}:
            shutil.rmtree(part)
        raise


def _is_ours(part: Path) -> bool:
    """Whether a folder is empty or holds a build: its journal, or what is written last if it was not yet renamed."""
    names = {path.name for path in part.iterdir()} if part.is_dir() else {"a file"}
    return not names or bool(names & {JOURNAL, LOCK, *WRITTEN_LAST})


def _resume(part: Path, settings: str) -> set[str]:
    """Steps done by an earlier build with the same settings; else an empty folder."""
    journal = part / JOURNAL
    lines = journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else []
    if lines and lines[0] == settings:
        done = lines[1:-1]  # the last line is empty, or was cut in writing
        journal.write_text("".join(line + "\n" for line in (settings, *done)), encoding="utf-8")
        return set(done)
    journal.write_text(settings + "\n", encoding="utf-8")
    for path in part.iterdir():
        if path.name not in (LOCK, JOURNAL):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return set()
