"""Tables of whole numbers in text files, with the line named where one is wrong."""

from pathlib import Path

import numpy as np

from matchkernel.errors import FileError


def read_table(path: str | Path, columns: int) -> np.ndarray:
    """Read the first `columns` whole numbers of every line; further ones are ignored, as are blank lines at the end.

    Returns:
        (rows, columns) int64.
    """
    path = Path(path)
    try:
        text = path.read_text(encoding="ascii")
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise FileError(f"{path}: not a text file") from None
    lines = text.rstrip().splitlines()
    rows = np.empty((len(lines), columns), np.int64)
    for number, line in enumerate(lines, 1):
        words = line.split()[:columns]
        try:
            if len(words) < columns or "_" in line:  # int() would read 1_0 as 10
                raise ValueError
            rows[number - 1] = [int(word) for word in words]
        except (ValueError, OverflowError):
            raise FileError(
                f"{path}, line {number}: wanted {columns} whole numbers, got {line.strip()[:60]!r}"
            ) from None
    return rows


def check_range(path: str | Path, values: np.ndarray, limit: int, what: str) -> None:
    """Refuse a table with a value outside 0 .. limit - 1, naming its line."""
    wrong = np.flatnonzero((values < 0) | (values >= limit))
    if len(wrong):
        raise FileError(f"{path}, line {wrong[0] + 1}: {what} {values[wrong[0]]} is outside 0 .. {limit - 1}")
