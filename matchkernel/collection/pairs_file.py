"""Lists of image pairs in hloc's text format: two names per line, separated by a space.

hloc cannot read names that contain spaces. A line with such a name has a tab between the names instead, so that files
without such names are exactly hloc's, and no line has two readings: a line with a tab is split at the tab, any other at
its only space. The order of the pairs is kept. A pair is written and read once: later repeats, either way round, are
left out.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import check_regular, replacing

Pair = tuple[str, str]
LONGEST_LINE = 2**14  # bytes; a path has at most 4,096
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def read_pairs(path: str | Path) -> list[Pair]:
    """The pairs of a file, in its order, each once."""
    return list(unique_pairs(pair for _, pair in _read_lines(Path(path))))


def read_pairs_of(path: str | Path, names: Iterable[str]) -> list[Pair]:
    """As read_pairs, refusing a pair whose images are not all among `names`; the message gives the line."""
    known = set(names)

    def checked() -> Iterator[Pair]:
        for line, pair in _read_lines(Path(path)):
            for name in pair:
                if name not in known:
                    raise FileError(f"{path}, line {line}: there is no image {name!r} among the {len(known)} given")
            yield pair

    return list(unique_pairs(checked()))


def write_pairs(path: str | Path, pairs: Iterable[Pair]) -> int:
    """Write pairs, atomically, in the order given, each once; returns their number."""
    count = 0
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for pair in unique_pairs(pairs):
            file.write(_line(pair))
            count += 1
    return count


def unique_pairs(*lists: Iterable[Pair]) -> Iterator[Pair]:
    """The union of lists: every pair once, as it comes first, in the order of the lists."""
    seen: set[Pair] = set()
    for pairs in lists:
        for first, second in pairs:
            key = (first, second) if first <= second else (second, first)
            if key not in seen:
                seen.add(key)
                yield first, second


def check_pair_name(name: str) -> str:
    """Refuse an image name that no line of a pairs file can hold."""
    if any("\ud800" <= letter <= "\udfff" for letter in name):  # bytes of a file name that are not UTF-8
        raise ArgumentError(f"a list of pairs is written in UTF-8: rename the image {name!a}")
    if not name.strip() or any(letter in name for letter in "\t\n\r\0\ufeff"):
        raise ArgumentError(f"a list of pairs cannot hold an image called {name!a}: rename it")
    return name


def _line(pair: Pair) -> str:
    first, second = map(check_pair_name, pair)
    if first == second:
        raise ArgumentError(f"a pair must be two images, got {first!r} twice")
    separator = " " if all(name.split() == [name] for name in pair) else "\t"
    line = f"{first}{separator}{second}\n"
    if len(line.encode()) > LONGEST_LINE:
        raise ArgumentError(f"the names of a pair are too long for a list of pairs: {first[:50]!r} ...")
    return line


def _read_lines(path: Path) -> Iterator[tuple[int, Pair]]:
    """The number and the pair of every line that is not blank."""
    check_regular(path)
    try:
        with path.open("rb") as file:
            number = 0
            while content := file.readline(LONGEST_LINE + 1):
                number += 1
                content = content.removeprefix(BYTE_ORDER_MARK) if number == 1 else content
                if len(content) > LONGEST_LINE:
                    raise FileError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes; not a list of pairs")
                pair = _parsed(content, f"{path}, line {number}")
                if pair is not None:
                    yield number, pair
    except OSError as error:
        if isinstance(error, FileError):
            raise
        raise FileError(f"{path}: cannot be read ({error.strerror or error})") from None
    except ValueError as error:  # a NUL in the name of the file
        raise FileError(f"{str(path)!r}: cannot be read ({error})") from None


def _parsed(content: bytes, where: str) -> Pair | None:
    try:
        text = content.decode("utf-8").removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        raise FileError(f"{where}: its bytes are not UTF-8; not a list of pairs") from None
    if not text.strip():
        return None
    names = text.split("\t") if "\t" in text else text.split()
    if len(names) != 2:
        spaces = "; names with spaces need a tab between them" if len(names) > 2 and "\t" not in text else ""
        raise FileError(f"{where}: expected two image names, found {len(names)}{spaces}")
    for name in names:
        if not name.strip() or "\r" in name or "\0" in name:
            raise FileError(f"{where}: {name!a} is not the name of an image")
    if names[0] == names[1]:
        raise FileError(f"{where}: names the image {names[0]!r} twice")
    return names[0], names[1]
