"""The task lists of the HPatches benchmark: read from the official files, or drawn by the official rules."""

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.data.hpatches import HPatchesSet
from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import replacing

SEED = 42  # the official generators'
VERIFICATION_COLUMNS = ("s1", "t1", "idx1", "s2", "t2", "idx2")
RETRIEVAL_COLUMNS = ("s", "idx")
LONGEST_NAME = 200  # NumPy keeps names at the width of the longest
LEAST_DEVIATION = 10.0  # of the gray values of a patch used in retrieval


@dataclass(frozen=True)
class PatchList:
    """Patches named by sequence, image number and index; row by row."""

    sequences: np.ndarray  # (M,) names
    images: np.ndarray  # (M,) 0 for ref, k for image k of the noise level scored
    indices: np.ndarray  # (M,) patch, from 0

    def __len__(self) -> int:
        return len(self.indices)


@dataclass(frozen=True)
class VerificationLists:
    """Three lists of pairs that share their first patches: row i of `first` goes with row i of each other list."""

    first: PatchList
    positives: PatchList
    intra: PatchList  # negatives of the same sequence
    inter: PatchList  # negatives of any sequence

    def __len__(self) -> int:
        return len(self.first)


def draw_verification(
    counts: Mapping[str, int], test: Sequence[str], pairs: int = 1_000_000, seed: int = SEED
) -> VerificationLists:
    """Draw the verification lists exactly as the official generator: the same rows from the same seed.

    Args:
        counts: number of patches of each sequence.
        test: the split's test sequences, in its order.
        pairs: rows of each list.
        seed: of NumPy's legacy generator.
    """
    _check_sequences(counts, test)
    random = np.random.RandomState(seed)
    names = random.choice(np.array(test), pairs)
    indices = np.array([random.permutation(counts[name])[:2] for name in names]).reshape(-1, 2)
    images = np.array([random.permutation(5)[:2] for _ in range(pairs)]).reshape(-1, 2)  # 0..4: image 5 never occurs
    others = random.choice(np.array(test), pairs)
    other_indices = np.array([random.randint(0, counts[name]) for name in others], np.int64)
    return VerificationLists(
        first=PatchList(names, images[:, 0], indices[:, 0]),
        positives=PatchList(names, images[:, 1], indices[:, 0]),
        intra=PatchList(names, images[:, 1], indices[:, 1]),
        inter=PatchList(others, images[:, 1], other_indices),
    )


def draw_retrieval(
    patches: HPatchesSet, test: Sequence[str], queries: int = 10_000, distractors: int = 20_000, seed: int = SEED
) -> tuple[PatchList, PatchList]:
    """Draw queries and distractors among `ref` patches by the official rules: enough contrast, no duplicates, disjoint.

    A set with fewer patches gives shorter lists. The order of draws is ours: the official query lists were made with
    arguments that are not recorded, so they can only be read, not drawn again.
    """
    _check_sequences(patches.counts, test)
    random = np.random.default_rng(seed)
    usable = {name: patches.read(name).std((1, 2)) > LEAST_DEVIATION for name in test}
    pool = [(name, int(index)) for name in test for index in np.flatnonzero(usable[name])]
    order = random.permutation(len(pool))
    # At most a quarter of a small set are queries, so that something is left to find them among.
    taken = min(queries, len(pool) // 4)
    chosen = [pool[k] for k in order[: taken + distractors]]
    return _listed(chosen[:taken]), _listed(chosen[taken:])


def read_verification(tasks: str | Path, split: str) -> VerificationLists:
    """Read verif_pos, verif_neg_intra and verif_neg_inter of a split from an official tasks folder."""
    lists = {}
    for kind in ("pos", "neg_intra", "neg_inter"):
        path = Path(tasks) / f"verif_{kind}_split-{split}.csv"
        rows = _read_rows(path, VERIFICATION_COLUMNS)
        lists[kind] = _columns(path, rows, 0), _columns(path, rows, 3)
    first = lists["pos"][0]
    for kind, (other, _) in lists.items():
        same = len(other) == len(first) and all(
            np.array_equal(getattr(other, part), getattr(first, part)) for part in ("sequences", "images", "indices")
        )
        if not same:
            raise FileError(
                f"{Path(tasks) / f'verif_{kind}_split-{split}.csv'}: its first patches differ from verif_pos"
            )
    return VerificationLists(first, lists["pos"][1], lists["neg_intra"][1], lists["neg_inter"][1])


def read_retrieval(tasks: str | Path, split: str) -> tuple[PatchList, PatchList]:
    """Read queries and distractors of a split from an official tasks folder."""
    paths = [Path(tasks) / f"retr_{kind}_split-{split}.csv" for kind in ("queries", "distractors")]
    queries, distractors = (_columns(path, _read_rows(path, RETRIEVAL_COLUMNS), None) for path in paths)
    return queries, distractors


def write_tasks(
    tasks: str | Path, split: str, verification: VerificationLists, queries: PatchList, distractors: PatchList
) -> None:
    """Write the five lists of a split in the official layout."""
    first = verification.first
    seconds = {"pos": verification.positives, "neg_intra": verification.intra, "neg_inter": verification.inter}
    for kind, second in seconds.items():
        columns = [first.sequences, first.images, first.indices, second.sequences, second.images, second.indices]
        _write_rows(Path(tasks) / f"verif_{kind}_split-{split}.csv", VERIFICATION_COLUMNS, columns)
    for kind, patches in (("queries", queries), ("distractors", distractors)):
        path = Path(tasks) / f"retr_{kind}_split-{split}.csv"
        _write_rows(path, RETRIEVAL_COLUMNS, [patches.sequences, patches.indices])


def check_list(patches: PatchList, counts: Mapping[str, int], what: str) -> None:
    """Refuse a list that names a sequence or a patch the set does not have, with the row."""
    for row, (name, index) in enumerate(zip(patches.sequences, patches.indices, strict=True), 1):
        if name not in counts:
            raise FileError(f"{what}, row {row}: sequence {str(name)!r} is not in the set")
        if not 0 <= index < counts[name]:
            raise FileError(f"{what}, row {row}: {name} has {counts[name]} patches, the list names patch {index}")


def _check_sequences(counts: Mapping[str, int], test: Sequence[str]) -> None:
    missing = [name for name in test if name not in counts]
    if missing or not test:
        raise ArgumentError(
            f"the split's sequence {missing[0]!r} is not in the set" if missing else "the split is empty"
        )
    small = [name for name in test if counts[name] < 2]
    if small:
        raise ArgumentError(f"sequence {small[0]} has {counts[small[0]]} patches, two are needed for a negative pair")


def _listed(patches: Sequence[tuple[str, int]]) -> PatchList:
    names = np.array([name for name, _ in patches], str)
    return PatchList(names, np.zeros(len(patches), np.int64), np.array([index for _, index in patches], np.int64))


def _read_rows(path: Path, columns: tuple[str, ...]) -> list[list[str]]:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except OSError as error:
        raise FileError(f"{path}: cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise FileError(f"{path}: not a list ({error})") from None
    if not rows or tuple(rows[0]) != columns:
        raise FileError(f"{path}, line 1: wanted the columns {','.join(columns)}")
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(columns):
            raise FileError(f"{path}, line {number}: wanted {len(columns)} values, got {len(row)}")
        if max(map(len, row)) > LONGEST_NAME:
            raise FileError(f"{path}, line {number}: a name of more than {LONGEST_NAME} characters")
    return rows[1:]


def _columns(path: Path, rows: list[list[str]], start: int | None) -> PatchList:
    """Three columns from `start`, or sequence and index of a retrieval list (start None)."""
    name_at, image_at, index_at = (0, None, 1) if start is None else (start, start + 1, start + 2)
    values = []
    for number, row in enumerate(rows, 2):
        try:
            values.append((0 if image_at is None else int(row[image_at]), int(row[index_at])))
        except ValueError:
            raise FileError(f"{path}, line {number}: not a whole number in {','.join(row)[:60]!r}") from None
        if not 0 <= values[-1][0] <= 5 or not 0 <= values[-1][1] < 2**31:
            raise FileError(f"{path}, line {number}: image {values[-1][0]}, patch {values[-1][1]} cannot be")
    numbers = np.array(values, np.int64).reshape(-1, 2)
    return PatchList(np.array([row[name_at] for row in rows], str), numbers[:, 0], numbers[:, 1])


def _write_rows(path: Path, header: tuple[str, ...], columns: list[np.ndarray]) -> None:
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
