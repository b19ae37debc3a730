"""Read and write a COLMAP database (SQLite): names, keypoints, matches; these tables are the same in all versions."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import FileError, WriteError, short_message

KEYPOINTS = (
    "SELECT images.name, keypoints.rows, keypoints.cols, keypoints.data"
    " FROM keypoints JOIN images ON images.image_id = keypoints.image_id ORDER BY images.name"
)
GUESSED = "SELECT width || ' x ' || height, COUNT(*) FROM cameras WHERE prior_focal_length = 0 GROUP BY width, height"
GUESSED_CAMERAS = (
    "SELECT camera_id, MAX(width, height), params, MIN(name) FROM cameras JOIN images USING (camera_id)"
    " WHERE prior_focal_length = 0 GROUP BY camera_id"
)
GUESS = 1.2  # of the longer side of a photo: the focal length that COLMAP begins with if it knows none
KEYPOINT_COUNTS = "SELECT name, rows FROM keypoints JOIN images USING (image_id)"
MAXIMUM_IMAGES = 2**31 - 1  # COLMAP numbers the pair of images i < j as i * MAXIMUM_IMAGES + j
KEY_TABLE = "matchkernel"  # a table that COLMAP does not look at
# COLMAP writes a row without inliers for a pair it could not verify.
COUNTS = "SELECT COUNT(*), COALESCE(SUM(rows), 0) FROM {table} WHERE rows > 0"


MATCHED_PAIRS = (
    "SELECT pair_id, matches.rows, COALESCE(geometry.rows, 0)"
    " FROM matches LEFT JOIN two_view_geometries AS geometry USING (pair_id) WHERE matches.rows > 0 ORDER BY pair_id"
)
INLIERS = "SELECT pair_id, rows, data FROM two_view_geometries WHERE rows > 0 AND pair_id IN ({pairs})"


@dataclass(frozen=True)
class MatchedPair:
    """Two images of a database that have matches."""

    images: tuple[str, str]
    matches: int
    inliers: int  # that agree with the geometry which COLMAP found; 0 without one


@dataclass(frozen=True)
class MatchCounts:
    """The number of matches in a database."""

    pairs: int  # of images with matches
    matches: int  # of all pairs
    verified: int  # pairs for which COLMAP found a geometry
    inliers: int  # matches that agree with that geometry


def read_image_names(database: str | Path) -> set[str]:
    """Names of the images of a COLMAP database."""
    return set(_image_ids(database))


def read_database_keypoints(database: str | Path) -> dict[str, np.ndarray]:
    """Keypoints of every image of a COLMAP database: name -> (K, 2), (K, 4) or (K, 6) float32."""
    rows = _select(Path(database), KEYPOINTS)
    return {str(name): _keypoints(Path(database), name, *stored) for name, *stored in rows}


def count_matches(database: str | Path) -> MatchCounts:
    """Pairs and matches of a COLMAP database, before and after verification."""
    tables = ("matches", "two_view_geometries")
    (before,), (after,) = (_select(Path(database), COUNTS.format(table=table)) for table in tables)
    return MatchCounts(*before, *after)


def count_keypoints(database: str | Path) -> dict[str, int]:
    """The number of keypoints of every image that has any."""
    return dict(_select(Path(database), KEYPOINT_COUNTS))


def sizes_without_focal_length(database: str | Path) -> dict[str, int]:
    """The sizes of the cameras whose focal length is only guessed, and the number of cameras of each."""
    return dict(_select(Path(database), GUESSED))


def fill_in_focal_lengths(database: str | Path, read: Callable[[str], float | None]) -> None:
    """Give cameras whose focal length is only guessed that of their first photo, in pixels, if `read` knows it."""
    changed = []
    for camera, side, data, name in _select(Path(database), GUESSED_CAMERAS):
        parameters = np.frombuffer(data, "<f8").copy()
        is_guess = np.isclose(parameters, GUESS * side)
        if is_guess.any() and (focal_length := read(name)) is not None:
            parameters[is_guess] = focal_length
            changed.append((parameters.tobytes(), camera))
    with _writing(database) as connection:
        connection.executemany("UPDATE cameras SET params = ?, prior_focal_length = 1 WHERE camera_id = ?", changed)


def read_matched_pairs(database: str | Path) -> list[MatchedPair]:
    """The pairs of a database that have matches, and what COLMAP made of them."""
    names = {number: name for name, number in _image_ids(database).items()}
    found = []
    for pair, *numbers in _select(Path(database), MATCHED_PAIRS):
        a, b = divmod(pair, MAXIMUM_IMAGES)
        if a in names and b in names:
            found.append(MatchedPair((names[a], names[b]), *numbers))
    return found


def read_inliers(database: str | Path, image: str, others: Iterable[str]) -> dict[str, np.ndarray]:
    """Verified matches of an image: other image -> (M, 2) row in the image and row in the other."""
    ids = _image_ids(database)
    own, found = ids[image], {}
    pairs = {MAXIMUM_IMAGES * min(own, ids[name]) + max(own, ids[name]): name for name in others}
    for pair, count, data in _select(Path(database), INLIERS.format(pairs=",".join(map(str, pairs)))):
        rows = np.frombuffer(data, "<u4").reshape(count, 2)
        found[pairs[pair]] = rows[:, :: 1 if own < ids[pairs[pair]] else -1]
    return found


def write_keypoints(database: str | Path, keypoints: Iterable[tuple[str, np.ndarray]]) -> None:
    """Replace the keypoints of images of a COLMAP database: name and (K, 6) float32, as frames_to_colmap gives them."""
    ids = _image_ids(database)
    with _writing(database) as connection:
        for name, values in keypoints:
            rows = np.round(values.astype(np.float64), 6).astype("<f4")  # as from text files, which have six decimals
            connection.execute(
                "INSERT OR REPLACE INTO keypoints (image_id, rows, cols, data) VALUES (?, ?, ?, ?)",
                (ids[name], *rows.shape, rows.tobytes()),
            )


def write_matches(database: str | Path, matches: Iterable[tuple[str, str, np.ndarray]]) -> list[tuple[int, int]]:
    """Add matches to a COLMAP database that has none: names of two images and (M, 2) row in A and row in B.

    Returns the ids of the images of every pair that has a match.
    """
    ids = _image_ids(database)
    written = []
    with _writing(database) as connection:
        for a, b, indices in matches:
            if len(indices):
                first, second = sorted((ids[a], ids[b]))
                rows = np.asarray(indices)[:, :: 1 if ids[a] == first else -1]
                connection.execute(
                    "INSERT INTO matches (pair_id, rows, cols, data) VALUES (?, ?, ?, ?)",
                    (first * MAXIMUM_IMAGES + second, *rows.shape, np.ascontiguousarray(rows, "<u4").tobytes()),
                )
                written.append((ids[a], ids[b]))
    return written


@contextmanager
def numbered_images(database: str | Path) -> Iterator[None]:
    """Inside the block every image is called `image<id>`: COLMAP's lists of pairs cannot hold names with spaces."""
    ids = _image_ids(database)
    with _writing(database) as connection:
        connection.execute("UPDATE images SET name = 'image' || image_id")
    try:
        yield
    finally:
        with _writing(database) as connection:
            connection.executemany("UPDATE images SET name = ? WHERE image_id = ?", list(ids.items()))


def write_key(database: str | Path, key: str) -> None:
    """Record in a COLMAP database what it was made from, in a table of our own."""
    with _writing(database) as connection:
        connection.execute(f"CREATE TABLE {KEY_TABLE} (key TEXT)")
        connection.execute(f"INSERT INTO {KEY_TABLE} VALUES (?)", (key,))


def has_key(database: str | Path, key: str) -> bool:
    """True if a COLMAP database exists and this key was recorded in it."""
    try:
        return _select(Path(database), f"SELECT key FROM {KEY_TABLE}") == [(key,)]
    except FileError:  # not there, unfinished, or of another program
        return False


def _image_ids(database: str | Path) -> dict[str, int]:
    return dict(_select(Path(database), "SELECT name, image_id FROM images"))


@contextmanager
def _writing(database: str | Path) -> Iterator[sqlite3.Connection]:
    """A connection to write all or nothing; a failure, such as a full disk, becomes a one-line WriteError."""
    try:
        with closing(sqlite3.connect(database)) as connection, connection:
            yield connection
    except sqlite3.Error as error:
        raise WriteError(f"{database}: could not be written ({short_message(error)})") from None


def _select(database: Path, query: str) -> list[tuple[Any, ...]]:
    if not database.is_file():
        raise FileError(f"{database}: no such file")
    try:
        try:
            return _rows(database, "mode=ro", query)
        except sqlite3.OperationalError:  # on a read-only file system SQLite cannot look for the log of another writer
            if not _is_at_rest(database):
                raise
            return _rows(database, "mode=ro&immutable=1", query)
    except (sqlite3.Error, UnicodeDecodeError, OverflowError, MemoryError) as error:
        raise FileError(f"{database}: cannot be read as a COLMAP database ({short_message(error)})") from None


def _is_at_rest(database: Path) -> bool:
    """True if nobody can write here, and no log beside the database holds what it lacks, or takes back what it has."""
    logs = [database.with_name(database.name + ending) for ending in ("-wal", "-journal")]
    return not os.access(database.parent, os.W_OK) and not any(log.exists() and log.stat().st_size for log in logs)


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
