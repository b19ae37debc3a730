"""Files that are written atomically and never over an input, and small text files that are read with a limit."""

import glob
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WriteError

# To open a file for reading: its bytes, and without waiting for somebody to write to a pipe.
READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
SMALL_TEXT, LONG_TEXT = 2**24, 2**28  # maximum bytes of a text file that is read at once: settings; tables and lists
PART = re.compile(r"\..+\.\d+\.(\d+)\.part(?:\.[^.]+)?", re.DOTALL)  # see part_of; the group is the process id
KEY_LETTERS = 40  # of sha256 in hexadecimal: 160 bits
NAME_BYTES = 255  # maximum bytes of a file name on most file systems


def check_output(target: str | Path, *inputs: str | Path, suffixes: tuple[str, ...] = ()) -> None:
    """Refuse, before any work, a file that could not be written or would damage an input.

    Missing folders will be created. Nothing inside an input folder may be written. The name must have one of the
    suffixes, such as (".png",), if any are given.
    """
    target = Path(target)
    name, mode = target.name.lower(), _mode(target)
    if suffixes and (not name.endswith(suffixes) or name in suffixes):
        raise ArgumentError(f"{target}: the name must end in {' or '.join(suffixes)}")
    if stat.S_ISDIR(mode):
        raise FileError(f"{target}: is a folder")
    if mode and not stat.S_ISREG(mode):
        raise FileError(f"{target}: is not a regular file, and would be replaced")
    _check_place(target, target.parent, *inputs)


def check_new_folder(target: str | Path, *inputs: str | Path) -> None:
    """Refuse, before any work, a folder that exists, could not be created, or lies inside an input."""
    target = Path(target)
    if _mode(target, follow_symlinks=False) or not target.name:
        raise FileError(f"{target}: already exists; remove it or choose another place")
    _check_place(target, target.parent, *inputs)


def check_folder(target: str | Path, *inputs: str | Path) -> None:
    """Refuse, before any work, an output folder that cannot be created or written, or is (in) an input."""
    _check_place(Path(target), Path(target), *inputs)


def _check_place(target: Path, folder: Path, *inputs: str | Path) -> None:
    """Refuse a target that is (in) an input, or needs a folder that cannot be written or created."""
    place = resolved(target)
    for source in map(Path, inputs):
        if not _mode(source):
            continue
        if place == resolved(source) or (_mode(target) and target.samefile(source)):
            raise ArgumentError(f"{target}: is one of the inputs; choose another place")
        if stat.S_ISDIR(_mode(source)) and place.is_relative_to(resolved(source)):
            raise ArgumentError(f"{target}: is inside the input {source}; choose another place")
    nearest = _nearest_existing(folder)
    if not stat.S_ISDIR(_mode(nearest)):
        raise FileError(f"{target}: cannot be written ({nearest} is not a folder)")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise FileError(f"{target}: cannot be written (no permission to write in {nearest})")


def check_regular(path: str | Path) -> None:
    """Refuse to read a device or a pipe, which may never end."""
    mode = _mode(Path(path))
    if mode and not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
        raise FileError(f"{path}: cannot be read (not a regular file)")


def check_case(folder: Path, names: Iterable[str]) -> None:
    """Refuse names that would be one file in this folder, because its disk takes capital letters for small ones."""
    written: dict[str, str] = {}
    for name in names:
        same = written.setdefault(name.casefold(), name)
        if same != name and not tells_case_apart(folder):
            raise ArgumentError(f"{folder} cannot hold both {same} and {name}: here they are one file; rename one")


def tells_case_apart(folder: Path) -> bool:
    """True if the disk of a folder, which need not exist yet, can hold two names that differ by case only."""
    with tempfile.NamedTemporaryFile(prefix=".case", suffix=".part", dir=_nearest_existing(folder)) as file:
        return not Path(file.name).with_name(Path(file.name).name.swapcase()).exists()


def check_free_space(target: str | Path, needed: int) -> None:
    """Refuse to write `needed` bytes if the disk has no room for them."""
    free = shutil.disk_usage(_nearest_existing(Path(target))).free
    if needed > free:
        raise WriteError(f"{target}: needs {needed / 1e9:,.3f} GB of disk, but only {free / 1e9:,.3f} GB are free")


def _mode(path: Path, *, follow_symlinks: bool = True) -> int:
    """The file mode of a path, as in `stat`; 0 if there is none or it is not accessible."""
    try:
        return path.stat(follow_symlinks=follow_symlinks).st_mode
    except (OSError, ValueError):
        return 0


def _nearest_existing(path: Path) -> Path:
    return next((place for place in [path, *path.parents] if _mode(place)), Path())


def resolved(path: str | Path) -> Path:
    """The absolute path without symbolic links; a FileError if the working directory was deleted."""
    try:
        return Path(path).resolve()
    except (OSError, RuntimeError, ValueError) as error:  # links in a circle; characters that no file name can have
        reason = "the working directory was deleted" if isinstance(error, FileNotFoundError) else error
        raise FileError(f"{path}: cannot be found ({reason})") from None


@contextmanager
def replacing(target: str | Path) -> Iterator[Path]:
    """A path beside `target` to write to; renamed to `target` at the end, removed if anything fails.

    If the process is killed, either the old file or the new one remains. The path has the target's suffix. Missing
    folders are created. A link stays one: the file that it leads to is replaced.
    """
    target = Path(target)
    check_output(target)
    if stat.S_ISLNK(_mode(target, follow_symlinks=False)):
        target = resolved(target)
    part = part_of(target)
    with write_errors(target), parents_made(target):
        try:
            yield part
            with part.open("rb+") as written:
                os.fsync(written.fileno())
            part.replace(target)
        finally:
            with suppress(OSError, UnicodeError):
                part.unlink()


@contextmanager
def write_errors(target: Path, note: str = "") -> Iterator[None]:
    """Turn an OSError into a WriteError that names the file that could not be written, with a note.

    A UnicodeEncodeError, too, of a name that is not one in the encoding of the file system.
    """
    try:
        yield
    except (OSError, UnicodeEncodeError) as error:
        if isinstance(error, MatchKernelError):
            raise
        reason = getattr(error, "strerror", None) or error
        raise WriteError(f"{target}: could not be written ({reason}){note}") from error


@contextmanager
def parents_made(target: Path) -> Iterator[None]:
    """Create the missing parent folders of a path; remove them again if the block fails and they are empty."""
    missing = [parent for parent in target.parents if not _mode(parent)]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        with suppress(OSError):  # one is not empty, or was never made
            for parent in missing:
                parent.rmdir()
        raise


def part_of(target: Path) -> Path:
    """The hidden path at which this thread writes a file before it is renamed; a long name is shortened."""
    ending = f".{threading.get_native_id()}.{os.getpid()}.part{target.suffix}"
    room = NAME_BYTES - 1 - len(os.fsencode(ending))
    return target.with_name(f".{os.fsencode(target.stem)[:room].decode('utf-8', 'ignore')}{ending}")


def leftovers(folder: Path) -> Iterator[tuple[Path, int]]:
    """Unfinished files under a folder, each with the number of the process that wrote it."""
    found = ((path, PART.fullmatch(path.name)) for path in folder.rglob(".*.part*"))
    return ((path, int(part[1])) for path, part in found if part and path.is_file())


def remove_leftovers_of(target: Path) -> None:
    """Remove unfinished replacements of `target`, a file or folder, from processes that have ended."""
    target = resolved(target)
    for path in target.parent.glob(f".{glob.escape(target.stem)}.*.part{glob.escape(target.suffix)}"):
        part = PART.fullmatch(path.name)
        if part and not is_running(int(part[1])):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """True if there is a process with this number; always on Windows, where the question would interrupt it."""
    if os.name == "nt":
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def read_small_text(
    path: str | Path,
    limit: int = SMALL_TEXT,
    *,
    what: str = "a text file",
    encoding: str = "utf-8",
    errors: str = "strict",
) -> str:
    """The text of a regular file of at most `limit` bytes; larger or endless files are refused as not being `what`."""
    try:
        with os.fdopen(os.open(path, READING), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise FileError(f"{path}: cannot be read (not a regular file)")
            content = file.read(limit + 1)
    except MatchKernelError:
        raise
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a NUL in the name
        raise FileError(f"{str(path)!r}: cannot be read ({error})") from None
    if len(content) > limit:
        raise FileError(f"{path}: not {what} (larger than {limit:,} bytes)")
    try:
        text = content.decode(encoding, errors).removeprefix("\ufeff")  # editors on Windows begin a file with it
    except UnicodeDecodeError:
        raise FileError(f"{path}: not {what} (its bytes are not {encoding.upper()})") from None
    return text.replace("\r\n", "\n").replace("\r", "\n")


def json_digest(content: object) -> str:
    """sha256 of JSON values, whatever the order of their keys."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def key_of(version: str, *parts: Any) -> str:
    """The digest of JSON values and of the version of this package.

    It is the name of a file that they determine: such a file is the result, or damaged, which shows when it is read.
    """
    return json_digest([version, *parts])[:KEY_LETTERS]


def write_json(path: str | Path, content: object) -> None:
    """Write JSON values, atomically."""
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def file_hash(path: Path) -> str:
    """sha256 of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file appear at another place too, if it exists and nothing is there; files are replaced, not changed."""
    if os.path.isfile(source) and not target.exists():  # noqa: PTH113 - False for a name too long
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)  # a link that leads nowhere: the file would be written where it leads
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without links
            with replacing(target) as part:
                shutil.copyfile(source, part)


def is_utf8(name: str) -> bool:
    """False for the name of a file whose bytes are not UTF-8."""
    return not any("\ud800" <= letter <= "\udfff" for letter in name)
