"""Matches of pairs of images in an .h5 of hloc's layout."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.hdf5 import (
    check_h5_name,
    item_at,
    need_h5py,
    open_h5,
    read_array,
    text_of,
    update_h5,
    write_array,
    write_text,
)
from matchkernel.photos.pair_lists import Pair


@dataclass(frozen=True)
class PairMatches:
    """Matches of two images in a matches.h5.

    Attributes:
        names: names of image A and image B.
        indices: (M, 2) row in A and row in B; a row of A at most once.
        scores: (M,) from 0 to 1, higher is better.
        key: digest of everything the matches were computed from, by which a later run recognises finished pairs; stored
            as an attribute if it is not empty.
    """

    names: Pair
    indices: np.ndarray
    scores: np.ndarray
    key: str = ""


def write_matches(
    path: str | Path,
    pairs: Iterable[tuple[PairMatches, int]],
    facts: str | None = None,
    *,
    removed: Iterable[Pair] = (),
) -> None:
    """Add or replace matches in a matches.h5, all of them or none.

    `matches0` is int16 as in hloc; if an index exceeds 32,767 it is int32, which hloc can read as well (its own writer
    would overflow to a negative index).

    Args:
        path: the file; created if it does not exist.
        pairs: matches, and the number of keypoints of image A.
        facts: how all matches of the file were computed, stored as an attribute if it is given.
        removed: pairs whose matches are deleted; the names in the order of the file.

    Example:
        >>> import numpy as np
        >>> from matchkernel.photos.match_files import PairMatches, read_matches, write_matches
        >>> path = "matches.h5"
        >>> indices = np.array([[0, 2], [3, 1]])  # rows of a.jpg and of b.jpg
        >>> write_matches(path, [(PairMatches(("a.jpg", "b.jpg"), indices, np.array([0.9, 0.8])), 4)])
        >>> read_matches(path, "b.jpg", "a.jpg").indices.tolist()
        [[1, 3], [2, 0]]
    """
    with update_h5(path) as file:
        if facts is not None:
            write_text(file, facts)
        for pair in removed:
            del file[pair_key(*pair)]
        for matches, count in pairs:
            matches0, scores0 = _one_row_per_keypoint(matches, count)
            for names in (matches.names, matches.names[::-1]):
                if pair_key(*names) in file:
                    del file[pair_key(*names)]
            group = file.create_group(pair_key(*matches.names))
            write_array(group, "matches0", matches0)
            write_array(group, "matching_scores0", scores0)
            if matches.key:
                write_text(group, matches.key)


def _one_row_per_keypoint(matches: PairMatches, count: int) -> tuple[np.ndarray, np.ndarray]:
    """(K,) index of the match or -1, and (K,) float16 scores."""
    rows, partners = np.asarray(matches.indices).reshape(-1, 2).T
    is_known = rows.min(initial=0) >= 0 and partners.min(initial=0) >= 0 and rows.max(initial=-1) < count
    if not is_known or len(np.unique(rows)) != len(rows) or np.shape(matches.scores) != rows.shape:
        raise ArgumentError(
            f"matches of {matches.names[0]} and {matches.names[1]}: each of the {count} keypoints of image A may have "
            "one match, with one score"
        )
    matches0 = np.full(count, -1, np.int16 if partners.max(initial=-1) <= np.iinfo(np.int16).max else np.int32)
    scores0 = np.zeros(count, np.float16)
    matches0[rows] = partners
    scores0[rows] = matches.scores
    return matches0, scores0


def recorded_matches(path: str | Path, pairs: Iterable[Pair]) -> tuple[str | None, dict[Pair, tuple[str, int]]]:
    """The facts of a matches.h5 and, for each listed pair with a digest, the digest and the number of matches."""
    found = {}
    with open_h5(path) as file:
        for pair in pairs:
            group = item_at(file, pair_key(*pair))
            if isinstance(group, need_h5py().Group) and (key := text_of(group)) is not None:
                matches0 = read_array(group, "matches0", None, kinds="iu")
                found[pair] = key, int((matches0 >= 0).sum())
        return text_of(file), found


def read_matches(path: str | Path, name0: str, name1: str) -> PairMatches:
    """Read the matches of two images in the order of their rows in A, whichever way round the file stores them.

    If the file stores them the other way round and they were not mutual, a row of A keeps its best match, or the first
    of equally good ones.

    Example: see write_matches.
    """
    (found,) = read_matches_of(path, [(name0, name1)])
    return found


def read_matches_of(path: str | Path, pairs: Iterable[Pair]) -> Iterator[PairMatches]:
    """Yield the matches of many pairs as read_matches returns them; the file is opened once."""
    with open_h5(path) as file:
        for pair in pairs:
            is_swapped = pair_key(*pair) not in file
            group = item_at(file, pair_key(*(pair[::-1] if is_swapped else pair)))
            if group is None:
                raise FileError(f"{path}: contains no matches of {pair[0]} and {pair[1]}")
            matches0 = read_array(group, "matches0", None, kinds="iu").astype(np.int64)
            scores0 = read_array(group, "matching_scores0", len(matches0)).astype(np.float32)
            if (matches0 < -1).any():
                raise FileError(f"{path}: matches of {pair[0]} and {pair[1]} contain an index below -1")
            rows = np.flatnonzero(matches0 >= 0)
            indices, scores = np.column_stack([rows, matches0[rows]]), scores0[rows]
            if is_swapped:
                best_first = np.lexsort((rows, -scores, indices[:, 1]))
                _, first = np.unique(indices[best_first, 1], return_index=True)
                indices, scores = indices[best_first[first], ::-1], scores[best_first[first]]
            yield PairMatches(pair, indices, scores)


def check_matches(path: str | Path) -> None:
    """Refuse a matches.h5 of which any pair cannot be read."""
    with open_h5(path) as file:
        pairs = [(a, b) for a in file for b in file[a]]
    for _ in read_matches_of(path, pairs):
        pass


def check_pair_names(names: Iterable[str]) -> None:
    """Refuse image names that have the same key in a matches.h5, such as `a/b.jpg` and `a-b.jpg`."""
    written: dict[str, str] = {}
    for name in names:
        same = written.setdefault(name.replace("/", "-"), name)
        if same != name:
            raise ArgumentError(f"{same} and {name} get the same key in hloc's matches file; rename one of them")


def pair_key(name0: str, name1: str) -> str:
    """The group of a pair in a matches.h5."""
    return "/".join(check_h5_name(name).replace("/", "-") for name in (name0, name1))
