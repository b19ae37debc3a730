"""Folders: locked, written atomically, or built in steps that survive an interruption."""

import itertools
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from matchkernel.errors import FileError, WriteError
from matchkernel.storage.files import (
    KEY_LETTERS,
    PART,
    check_new_folder,
    is_running,
    leftovers,
    parents_made,
    part_of,
    remove_leftovers_of,
    resolved,
    write_errors,
    write_json,
)

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

LOCK = "lock"
JOURNAL = "journal"
MARK = ".matchkernel-build"  # a file in folders of ours that will be renamed or removed, or that a build is moved into
MOVES = ".matchkernel-moves"  # in a build that is done: what will be moved into the target, and what was there before
OLD = ".matchkernel-old"  # in such a build: what was there before
SHARD = re.compile(rf"[0-9a-f]{{{KEY_LETTERS}}}\.npz")  # see key_of: nobody else gives files such names


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
        remove_leftovers_of(target)
        try:
            part.mkdir()
            yield part
            part.replace(target)
        finally:
            shutil.rmtree(part, ignore_errors=True)


@contextmanager
def exclusive(
    folder: Path, refusal: str, *, is_shared: bool = False, is_ours: bool = False
) -> Iterator[tuple[int, ...]]:
    """Create a folder if missing, and keep other processes out of it.

    Unfinished files of killed processes are removed; so is, at the end, a folder that is empty and was created here, or
    by such a process if nobody else makes folders of this name (`is_ours`).
    In a folder of the user (`is_shared`), live processes may be writing other files: theirs stay.
    The value is the file descriptors that a program started in the block may inherit, so that it keeps the lock if this
    process is killed; none on Windows.
    If another process is using the folder, the FileError has the message `refusal`.
    """
    is_new, locked = is_ours or not folder.exists(), _locked_by_flock if fcntl else _locked_by_filelock
    with parents_made(folder), ExitStack() as stack:
        try:
            folder.mkdir(exist_ok=True)
            lock = stack.enter_context(locked(folder, is_new))
        except OSError as error:
            raise WriteError(f"{folder}: cannot be created or written ({error.strerror or error})") from None
        if lock is None:
            raise FileError(refusal)
        for path, process in leftovers(folder):
            if not (is_shared and is_running(process)):
                path.unlink(missing_ok=True)
        yield lock


@contextmanager
def shards_of(outputs: Sequence[Path], refusal: str) -> Iterator[Path]:
    """Keep other processes from writing any of these files; `{}` in the refusal is replaced by the one that is taken.

    The value is a folder for results that are collected until all are done, `<first output>.parts`; it is removed when
    the block succeeds. All processes lock their outputs in one order, so that of several one begins.
    """
    with ExitStack() as stack:
        for output in sorted(outputs, key=resolved):
            parts = parts_of(output)
            if parts.exists() and not _is_ours(parts):
                raise FileError(f"{parts}: is in the way; {output} needs this folder, but it contains other files")
            stack.enter_context(exclusive(parts, refusal.format(output)))
        yield parts_of(outputs[0])
        shutil.rmtree(parts_of(outputs[0]), ignore_errors=True)


@contextmanager
def work_folder_of(output: Path) -> Iterator[Path]:
    """A folder for the work on an output, `<output>.work`: removed after success, else kept for the next run."""
    folder = output.with_name(f"{output.name}.work")
    is_new = not folder.exists()
    if not is_new and not _is_ours(folder, {MARK}):
        raise FileError(f"{folder}: is in the way; {output} needs this folder, but it contains other files")
    with parents_made(folder):
        with write_errors(folder):
            folder.mkdir(exist_ok=True)
            (folder / MARK).touch()
        try:
            yield folder
        except BaseException:
            if is_new and _names(folder) <= {MARK}:
                shutil.rmtree(folder)
            raise
    shutil.rmtree(folder, ignore_errors=True)


def parts_of(output: Path) -> Path:
    """The folder for what will be written to a file; the same for all links to it."""
    place = resolved(output)
    return place.with_name(place.name + ".parts")


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
def resumable_build(
    target: str | Path, settings: Mapping[str, Any], *, replaces: Collection[str] = ()
) -> Iterator[Build]:
    """Work in `<target>.part` and rename it to `target` at the end.

    An interrupted build with the same settings resumes; with other settings it starts again. A second build of the same
    target at the same time is refused, and so is a target that exists, unless something in it is to be replaced.

    Args:
        target: folder to create; a link to a folder stays one.
        settings: everything that determines the result, JSON values.
        replaces: names of what an earlier build wrote into the target; the new build takes its place at the end, and
            whatever else is there stays; call `recover` first.
    """
    target = Path(target)
    recover(target) if replaces else check_new_build(target)
    place, part = resolved(target), _part(target)
    if part.exists() and not _is_ours(part, {JOURNAL, MARK, MOVES}):
        raise FileError(f"{part}: is in the way; a build needs this folder, but it contains other files")
    with write_errors(target, "; what is done is kept"), locked_for_building(target) as lock:
        done = _resume(part, json.dumps(settings, sort_keys=True))
        try:
            with (part / JOURNAL).open("r+", encoding="utf-8", newline="\n") as journal:
                journal.seek(0, os.SEEK_END)
                build = Build(part, done, lock, journal)
                yield build
        except BaseException:
            if _names(part) <= {LOCK, JOURNAL}:  # there is nothing to resume from
                shutil.rmtree(part)
            raise
        if build.is_discarded:
            shutil.rmtree(part)
            return
        if replaces and place.exists():
            made = _names(part) - {LOCK, JOURNAL, MOVES}
            write_json(part / MOVES, {"made": sorted(made), "gone": sorted(set(replaces) - made)})
            (place / MARK).touch()
            _move_into(place, part)
        else:
            (part / JOURNAL).replace(part / MARK)
            (part / LOCK).unlink(missing_ok=True)
            part.replace(place)
        (place / MARK).unlink(missing_ok=True)


def locked_for_building(target: Path) -> AbstractContextManager[tuple[int, ...]]:
    """Keep other processes from building this folder, or changing a finished one; the value is that of `exclusive`."""
    return exclusive(_part(target), f"{target}: is being built by another process", is_ours=True)


def check_new_build(target: str | Path, *inputs: str | Path) -> None:
    """Refuse, before any work, a target that exists, could not be created, or lies inside an input."""
    recover(Path(target))
    check_new_folder(target, *inputs)


def recover(target: Path) -> None:
    """Finish what a process that was killed at its last steps has left."""
    place = resolved(target)
    old = None if place.exists() else place.with_name(f".{place.name}.old")  # of version 0.2, which renamed it
    if not (old or place).joinpath(MARK).is_file():
        return
    with write_errors(target), locked_for_building(target):
        if old:
            old.replace(place)
        elif (_part(target) / MOVES).is_file():
            _move_into(place, _part(target))
        (place / MARK).unlink(missing_ok=True)


def _move_into(target: Path, part: Path) -> None:
    """Move what was built into its target, in place of what builds before have made there; nothing else is touched.

    It goes on where a process that was killed here has stopped: what is no longer in `part` has been moved.
    """
    try:
        moves = json.loads((part / MOVES).read_text(encoding="utf-8"))
        made, gone = set(moves["made"]), set(moves["gone"])
    except (ValueError, TypeError, KeyError, RecursionError):
        advice = f"move what {part} holds into {target}, or remove it and build again"
        raise FileError(f"{part / MOVES}: damaged; {advice}") from None
    (part / JOURNAL).unlink(missing_ok=True)  # from now on, no build can resume
    waiting = _names(part) & made
    (part / OLD).mkdir(exist_ok=True)
    for names, source, to in (
        ((waiting | gone) & _names(target), target, part / OLD),
        (waiting, part, target),
    ):
        for name in sorted(names):
            with write_errors(target / name):
                (source / name).replace(to / name)
    with suppress(OSError):  # what cannot be removed stays there, with the list that says whose it is
        shutil.rmtree(part / OLD)
        shutil.rmtree(part)


def set_aside(path: Path) -> Path:
    """Rename a file or folder to the first free `<name>.old1`, `<name>.old2`, ...; returns that."""
    candidates = (path.with_name(f"{path.name}.old{number}") for number in itertools.count(1))
    return path.replace(next(other for other in candidates if not other.exists()))


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _part(target: Path) -> Path:
    place = resolved(target)
    return place.with_name(f"{place.name}.part")


def _is_ours(folder: Path, marks: Collection[str] = ()) -> bool:
    """True if a folder carries one of these marks, or holds no file but those that only we give such names."""
    names = _names(folder) if folder.is_dir() else {"a file"}
    is_marked = not names.isdisjoint(marks)
    return is_marked or all(name == LOCK or PART.fullmatch(name) or SHARD.fullmatch(name) for name in names)


def begun_with(target: Path) -> dict[str, Any]:
    """The settings of an interrupted build of this target; empty if there is none."""
    try:
        with (_part(target) / JOURNAL).open(encoding="utf-8") as journal:
            return dict(json.loads(journal.readline()))
    except (OSError, ValueError, TypeError, RecursionError):
        return {}


def _resume(part: Path, settings: str) -> set[str]:
    """Steps done by an earlier build with the same settings; otherwise the folder is emptied."""
    journal = part / JOURNAL
    lines = journal.read_text(encoding="utf-8", errors="replace").split("\n") if journal.is_file() else []
    if lines and lines[0] == settings:
        done = lines[1:-1]  # the last line is empty or truncated
        journal.write_text("".join(line + "\n" for line in (settings, *done)), encoding="utf-8", newline="\n")
        return set(done)
    journal.write_text("", encoding="utf-8")  # a build that is killed while it clears the folder clears it again
    for path in part.iterdir():
        if path.name not in (LOCK, JOURNAL):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    journal.write_text(settings + "\n", encoding="utf-8", newline="\n")
    return set()
