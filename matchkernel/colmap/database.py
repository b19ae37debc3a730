"""A COLMAP database: its keypoints, match counts, names (SQLite; what is used here is the same in all versions)."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import FileError, short_message

KEYPOINTS = (
    "SELECT images.name, keypoints.rows, keypoints.cols, keypoints.data"
    " FROM keypoints JOIN images ON images.image_id = keypoints.image_id ORDER BY images.name"
)
# COLMAP writes a row without inliers for a pair it could not verify.
COUNTS = "SELECT COUNT(*), COALESCE(SUM(rows), 0) FROM {table} WHERE rows > 0"


@dataclass(frozen=True)
class MatchCounts:
    """The number of matches in a database.

    Attributes:
        pairs: number of image pairs with matches.
        matches: number of matches of all pairs.
        verified: number of pairs for which COLMAP found a geometry.
        inliers: number of matches that agree with that geometry.
    """

    pairs: int
    matches: int
    verified: int
    inliers: int


def read_image_names(database: str | Path) -> set[str]:
    """Names of the images of a COLMAP database."""
    return {str(name) for (name,) in _select(Path(database), "SELECT name FROM images")}


def read_database_keypoints(database: str | Path) -> dict[str, np.ndarray]:
    """Keypoints of every image of a COLMAP database: name -> (K, 2), (K, 4) or (K, 6) float32."""
    rows = _select(Path(database), KEYPOINTS)
    return {str(name): _keypoints(Path(database), name, *stored) for name, *stored in rows}


def count_matches(database: str | Path) -> MatchCounts:
    """Pairs and matches of a COLMAP database, before and after verification."""
    tables = ("matches", "two_view_geometries")
    (before,), (after,) = (_select(Path(database), COUNTS.format(table=table)) for table in tables)
    return MatchCounts(*before, *after)


def rename_images(database: str | Path, names: Mapping[str, str]) -> None:
    """Rename images of a COLMAP database, all of them or none."""
    if not names:
        return
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.executemany("UPDATE images SET name = ? WHERE name = ?", [(new, old) for old, new in names.items()])


def _select(database: Path, query: str) -> list[tuple[Any, ...]]:
    if not database.is_file():
        raise FileError(f"{database}: no such file")
    try:
        try:
            return _rows(database, "mode=ro", query)
        except sqlite3.OperationalError:  # on a read-only file system SQLite cannot look for the log of another writer
            return _rows(database, "mode=ro&immutable=1", query)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise FileError(f"{database}: not a COLMAP database ({short_message(error)})") from None


def _rows(database: Path, mode: str, query: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(f"{database.resolve().as_uri()}?{mode}", uri=True)) as connection:
        return connection.execute(query).fetchall()


def _keypoints(database: Path, name: object, count: object, columns: object, data: object) -> np.ndarray:
    if columns not in (2, 4, 6) or not isinstance(count, int) or count < 0:
        raise FileError(f"{database}: keypoints of {name} have {columns} columns, expected 2, 4 or 6")
    content = data if isinstance(data, bytes) else b""
    if len(content) != 4 * count * int(columns):
        raise FileError(f"{database}: keypoints of {name} have {len(content)} bytes for {count} rows of {columns}")
    return np.frombuffer(content, "<f4").reshape(count, int(columns))
