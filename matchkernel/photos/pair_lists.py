"""Lists of pairs of images.

hloc's text format has two names per line, separated by a space, and cannot hold names that contain spaces. We write
a tab between such names, so that files without them are exactly hloc's.
"""

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import is_utf8, read_small_text, replacing

MAX_LIST_BYTES = 2**31  # maximum size of a list of pairs

Pair = tuple[str, str]


def read_pairs(path: str | Path, names: Collection[str] | None = None) -> list[Pair]:
    """Read a list of pairs in its order; a pair that is listed again, either way round, is left out.

    A line is split at its tab or, if that does not give two names, at white space. Blank lines are skipped. So are
    lines that begin with # and are not a pair. With `names`, a pair with any other image is refused.
    """
    known = None if names is None else set(names)
    lines = read_small_text(path, MAX_LIST_BYTES, what="a list of pairs").split("\n")
    found = (_parse_pair(line, known, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip())
    return list(unique_pairs(filter(None, found)))


def _parse_pair(line: str, known: set[str] | None, where: str) -> Pair | None:
    """The two names of a line, or None for a comment."""
    readings = [
        (names[0], names[1])
        for names in (line.split("\t"), line.split())
        if len(names) == 2 and names[0] != names[1] and all(name.strip() and "\0" not in name for name in names)
    ]
    for pair in readings:
        if known is None or known.issuperset(pair):
            return pair
    if line.lstrip().startswith("#"):
        return None
    if readings and known is not None:
        unknown = next(name for name in readings[0] if name not in known)
        raise FileError(f"{where}: there is no image {unknown[:80]!r} among the {len(known)} given")
    tab = "; names with spaces need a tab between them" if len(line.split()) > 2 else ""
    raise FileError(f"{where}: expected the names of two different images, got {line[:80]!r}{tab}")


def write_pairs(path: str | Path, pairs: Iterable[Pair]) -> int:
    r"""Write a list of pairs, atomically, in the order given, each pair once; returns their number.

    Example:
        >>> from pathlib import Path
        >>> from matchkernel.photos.pair_lists import read_pairs, write_pairs
        >>> path = Path("pairs.txt")
        >>> write_pairs(path, [("a.jpg", "b.jpg"), ("b.jpg", "c 2.jpg"), ("b.jpg", "a.jpg")])
        2
        >>> path.read_text()
        'a.jpg b.jpg\nb.jpg\tc 2.jpg\n'
        >>> read_pairs(path)
        [('a.jpg', 'b.jpg'), ('b.jpg', 'c 2.jpg')]
    """
    count = 0
    with replacing(path) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for first, second in unique_pairs(pairs):
            for name in (first, second):
                if not is_utf8(name) or not name.strip() or any(letter in name for letter in "\t\n\r\0\ufeff"):
                    raise ArgumentError(f"a list of pairs cannot hold an image called {name!a}: rename it")
            if first == second:
                raise ArgumentError(f"a pair must be two images, got {first!r} twice")
            separator = " " if all(name.split() == [name] for name in (first, second)) else "\t"
            file.write(f"{first}{separator}{second}\n")
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
