"""Keypoints from a COLMAP database, an SQLite file whose versions do not differ in what is read here."""

import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np

from matchkernel.errors import FileError


def read_keypoints(database: str | Path) -> dict[str, np.ndarray]:
    """Keypoints of every image of a COLMAP database: name -> (K, 2), (K, 4) or (K, 6) float32."""
    database = Path(database)
    if not database.is_file():
        raise FileError(f"{database}: no such file")
    try:
        try:
            rows = _rows(database, "mode=ro")
        except sqlite3.OperationalError:  # on a read-only medium SQLite cannot look for the log of another writer
            rows = _rows(database, "mode=ro&immutable=1")
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise FileError(f"{database}: not a COLMAP database ({' '.join(str(error).split())[:150]})") from None
    return {str(name): _keypoints(database, name, count, columns, data) for name, count, columns, data in rows}


def _rows(database: Path, mode: str) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?{mode}", uri=True)) as connection:
        return connection.execute(
            "SELECT images.name, keypoints.rows, keypoints.cols, keypoints.data"
            " FROM keypoints JOIN images ON images.image_id = keypoints.image_id ORDER BY images.name"
        ).fetchall()


def _keypoints(database: Path, name: object, count: object, columns: object, data: object) -> np.ndarray:
    if columns not in (2, 4, 6) or not isinstance(count, int) or count < 0:
        raise FileError(f"{database}: keypoints of {name} have {columns} columns, wanted 2, 4 or 6")
    content = data if isinstance(data, bytes) else b""
    if len(content) != 4 * count * int(columns):
        raise FileError(f"{database}: keypoints of {name} have {len(content)} bytes for {count} rows of {columns}")
    return np.frombuffer(content, "<f4").reshape(count, int(columns))
