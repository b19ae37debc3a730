"""Folders: locked, written atomically, or built in steps that survive an interruption."""

import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.files import check_new_folder, leftovers, parents_made, part_of, write_errors

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
JOURNAL = "journal"
WRITTEN_LAST = ("manifest.json", "photos.json")  # their presence marks a build as complete


@contextmanager
def _locked_by_filelock(folder: Path, is_new: bool) -> Iterator[tuple[int, ...] | None]:
    """As _locked_by_flock, with a file beside the folder: Windows cannot rename a folder that contains an open file."""
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
    """Lock a folder; None if another process has locked it. One that is new and empty is removed at the end."""
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
def exclusive(folder: Path, refusal: str) -> Iterator[tuple[int, ...]]:
    """Create a folder if missing, and keep other processes out of it.

    Unfinished files of killed processes are removed; so is, at the end, a folder that was created here and is empty.
    The value is the file descriptors that a program started in the block may inherit, so that it keeps the lock if this
    process is killed; none on Windows.
    If another process is using the folder, the FileError has the message `refusal`.
    """
    is_new, locked = not folder.exists(), _locked_by_flock if fcntl else _locked_by_filelock
    with parents_made(folder), ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            lock = stack.enter_context(locked(folder, is_new))
        except OSError as error:
            raise WriteError(f"{folder}: cannot be created or written ({error.strerror or error})") from None
        if lock is None:
            raise FileError(refusal)
        for path in leftovers(folder):
            path.unlink(missing_ok=True)
        yield lock


@dataclass
class Build:
    """A folder being built next to its target. Work is done in steps; a step marked as done is not repeated."""

    folder: Path
    done: set[str]
    lock: tuple[int, ...]  # file descriptors that a program started for the build may inherit
    _journal: IO[str] = field(repr=False)
    is_discarded: bool = False  # at the end, what was built is removed and the target stays as it is

    def mark(self, step: str) -> None:
        """Record that the files of a step have been written."""
        self._journal.write(step + "\n")
        self._journal.flush()
        self.done.add(step)


@contextmanager
def resumable_build(target: str | Path, settings: Mapping[str, Any], *, replaces: bool = False) -> Iterator[Build]:
    """Work in `<target>.part` and rename it to `target` at the end.

    An interrupted build with the same settings resumes; with other settings it starts again. A second build of the same
    target at the same time is refused, and so is a target that exists, unless it is to be replaced.

    Args:
        target: folder to create.
        settings: everything that determines the result, JSON values.
        replaces: the new folder takes the place of an old one, which stays until then; call `recover` first.
    """
    target = Path(target)
    if not replaces:
        check_new_folder(target)
    part = target.with_name(target.name + ".part")
    if part.exists() and not _is_ours(part):
        raise FileError(f"{part}: is in the way; a build needs this folder, but it contains other files")
    with (
        write_errors(target, "; what is done is kept"),
        exclusive(part, f"{target}: is being built by another process") as lock,
    ):
        done = _resume(part, json.dumps(settings, sort_keys=True))
        try:
            with (part / JOURNAL).open("r+", encoding="utf-8", newline="\n") as journal:
                journal.seek(0, os.SEEK_END)
                build = Build(part, done, lock, journal)
                yield build
        except BaseException:
            if {path.name for path in part.iterdir()} <= {LOCK, JOURNAL}:  # there is nothing to resume from
                shutil.rmtree(part)
            raise
        if build.is_discarded:
            shutil.rmtree(part)
            return
        for name in (JOURNAL, LOCK):
            (part / name).unlink(missing_ok=True)
        if target.exists():
            shutil.rmtree(_old(target), ignore_errors=True)
            target.replace(_old(target))
        part.replace(target)
        shutil.rmtree(_old(target), ignore_errors=True)


def recover(target: Path) -> None:
    """Restore the old folder if a process was killed between the two renames that replace it."""
    if not target.exists() and _old(target).is_dir():
        _old(target).replace(target)


def _old(target: Path) -> Path:
    return target.with_name(f".{target.name}.old")


def _is_ours(part: Path) -> bool:
    """True if a folder is empty or contains a build: its journal, or the file written last, before the rename."""
    names = {path.name for path in part.iterdir()} if part.is_dir() else {"a file"}
    return not names or bool(names & {JOURNAL, LOCK, *WRITTEN_LAST})


def _resume(part: Path, settings: str) -> set[str]:
    """Steps done by an earlier build with the same settings; otherwise the folder is emptied."""
    journal = part / JOURNAL
    lines = journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else []
    if lines and lines[0] == settings:
        done = lines[1:-1]  # the last line is empty or truncated
        journal.write_text("".join(line + "\n" for line in (settings, *done)), encoding="utf-8", newline="\n")
        return set(done)
    journal.write_text(settings + "\n", encoding="utf-8", newline="\n")
    for path in part.iterdir():
        if path.name not in (LOCK, JOURNAL):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    return set()
