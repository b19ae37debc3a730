"""HPatches: strips of 65 px patches, one folder per sequence, and the benchmark's splits and task lists."""

import csv
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from matchkernel.data.patch_files import read_patches
from matchkernel.errors import ArgumentError, FileError
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing

SIDE = 65
NOISES = ("e", "h", "t")  # easy, hard, tough
IMAGES = ("ref", *(f"{noise}{k}" for noise in NOISES for k in range(1, 6)))
SEED = 42  # of the official generators
DRAWN = f"drawn, seed {SEED}"
VERIFICATION_COLUMNS = ("s1", "t1", "idx1", "s2", "t2", "idx2")
RETRIEVAL_COLUMNS = ("s", "idx")
LISTS = {"positives": "verif_pos", "intra": "verif_neg_intra", "inter": "verif_neg_inter"}  # list -> its file
LONGEST_NAME = 200  # NumPy stores every name at the width of the longest
LEAST_DEVIATION = 10.0  # standard deviation of the gray values of a patch used in retrieval


@dataclass(frozen=True)
class HPatchesSet:
    """The sequences of a set in alphabetical order, with their numbers of patches."""

    root: Path
    counts: dict[str, int]

    def read(self, sequence: str, image: str = "ref") -> np.ndarray:
        """(N, 65, 65) uint8 patches of one strip; patch j is the same physical patch in every strip of a sequence."""
        if sequence not in self.counts:
            raise ArgumentError(f"{self.root}: contains no sequence {sequence!r}")
        if image not in IMAGES:
            raise ArgumentError(f"the strips of a sequence are {', '.join(IMAGES)}; got {image!r}")
        patches = _read_strip(self.root / sequence / f"{image}.png")
        if len(patches) != self.counts[sequence]:
            raise FileError(
                f"{self.root / sequence / image}.png: {len(patches)} patches, ref.png {self.counts[sequence]}"
            )
        return patches


@dataclass(frozen=True)
class PatchList:
    """A list of patches, each given by sequence, image number and index."""

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


@dataclass(frozen=True)
class HPatchesTasks:
    """A split and its lists."""

    split: str
    test: list[str]
    train: list[str]
    verification: VerificationLists
    queries: PatchList
    distractors: PatchList
    lists: dict[str, str] = field(default_factory=dict)  # task -> "read" or how its lists were drawn

    @cached_property
    def digest(self) -> str:
        """sha256 of all lists."""
        digest = hashlib.sha256()
        for name, part in _lists_of(self):
            digest.update(f"{name} {len(part)} ".encode())
            digest.update("\n".join(part.sequences.tolist()).encode())
            digest.update(part.images.astype("<i1").tobytes() + part.indices.astype("<i4").tobytes())
        return digest.hexdigest()


def open_hpatches(root: str | Path) -> HPatchesSet:
    """Find the sequences of a set: the folders that contain ref.png. Every sequence must have all 16 strips.

    Args:
        root: a folder in the HPatches layout, such as `hpatches-release`.

    Example:
        >>> import numpy as np
        >>> from matchkernel.data.hpatches import IMAGES, open_hpatches
        >>> from matchkernel.storage.images import write_png
        >>> for image in IMAGES:
        ...     write_png(f"v_wall/{image}.png", np.zeros((3 * 65, 65), np.uint8))
        >>> patches = open_hpatches(".")
        >>> patches.counts, patches.read("v_wall", "e1").shape
        ({'v_wall': 3}, (3, 65, 65))
    """
    root = Path(root)
    if not root.is_dir():
        raise FileError(f"{root}: no such folder")
    counts = {}
    for folder in sorted(path.parent for path in root.glob("*/ref.png")):
        missing = [image for image in IMAGES if not (folder / f"{image}.png").is_file()]
        if missing:
            raise FileError(f"{folder}: {missing[0]}.png is missing")
        counts[folder.name] = len(_read_strip(folder / "ref.png"))
    if not counts:
        is_sequence = (root / "ref.png").is_file()
        why = "is one sequence; give its parent" if is_sequence else "has no sequences (folders with ref.png)"
        raise FileError(f"{root}: {why}")
    return HPatchesSet(root, counts)


def read_split(folder: str | Path, split: str) -> tuple[list[str], list[str]]:
    """The test and the training sequences (some splits have none) of a split, by the `splits.json` of a folder.

    The official splits are a, b, c, full, illum and view.
    """
    path = _splits_file(folder)
    try:
        splits = dict(json.loads(read_small_text(path, what="a splits file")).items())
        test, train = (splits[split].get(part, []) if split in splits else [] for part in ("test", "train"))
        if not all(isinstance(names, list) and all(isinstance(name, str) for name in names) for names in (test, train)):
            raise TypeError
    except (ValueError, RecursionError, AttributeError, TypeError):
        raise FileError(f"{path}: not a splits file (JSON of splits, each with a list of names, `test`)") from None
    if split not in splits:
        raise ArgumentError(f"{path}: has no split {split!r}, only {', '.join(splits)}")
    if not test:
        raise FileError(f"{path}: split {split} has no test sequences")
    return test, train


def read_tasks(
    folder: str | Path, split: str, counts: Mapping[str, int], patches: HPatchesSet | None = None
) -> HPatchesTasks:
    """Read a split and its lists from an official tasks folder; a list that names a missing patch is refused.

    Lists that the folder lacks are drawn: those of verification from the numbers of patches of each sequence, those of
    retrieval from the patches of the set, if they are given.
    """
    folder = Path(folder)
    test, train = read_split(folder, split)
    if missing := [name for name in test if name not in counts]:
        raise FileError(f"{folder}: split {split} names the sequence {missing[0]!r}, which is not in the set")
    lists = {"verification": "read", "retrieval": "read"}
    if _list_file(folder, "verif_pos", split).is_file():
        verification = read_verification(folder, split)
    else:
        verification, lists["verification"] = draw_verification(counts, test), DRAWN
    if patches is not None and not _list_file(folder, "retr_queries", split).is_file():
        queries, distractors = draw_retrieval(patches, test)
        lists["retrieval"] = DRAWN
    else:
        queries, distractors = read_retrieval(folder, split)
    tasks = HPatchesTasks(split, test, train, verification, queries, distractors, lists)
    for name, part in _lists_of(tasks):
        sequence_numbers(part, counts, str(_list_file(folder, name, split)))
    return tasks


def needed_sequences(folder: str | Path, splits: Sequence[str], whitening: str = "none") -> list[str]:
    """The sequences whose descriptors the splits need, each once: those to test on, and to learn a whitening on."""
    names: dict[str, None] = {}
    for split in splits:
        test, train = read_split(folder, split)
        if whitening != "none" and not train:
            raise ArgumentError(f"whitening is learned on a split's training sequences, and split {split!r} has none")
        names |= dict.fromkeys([*test, *(train if whitening != "none" else [])])
    return list(names)


def draw_verification(
    counts: Mapping[str, int], test: Sequence[str], pairs: int = 1_000_000, seed: int = SEED
) -> VerificationLists:
    """Draw the verification lists exactly as the official generator: the same rows from the same seed.

    Args:
        counts: number of patches of each sequence.
        test: the split's test sequences, in its order.
        pairs: rows of each list.
        seed: of NumPy's legacy generator.

    Example:
        >>> from matchkernel.data.hpatches import draw_verification
        >>> lists = draw_verification({"v_wall": 100}, ["v_wall"], pairs=3)
        >>> lists.first.indices.tolist() == lists.positives.indices.tolist(), len(lists.inter)
        (True, 3)
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

    A set with fewer patches gives shorter lists. The order of the draws is our own: it is not documented how the
    official query lists were drawn, so those can only be read from files.
    """
    _check_sequences(patches.counts, test)
    random = np.random.default_rng(seed)
    usable = {name: patches.read(name).std((1, 2)) > LEAST_DEVIATION for name in test}
    indices = [np.flatnonzero(usable[name]) for name in test]
    names, index = np.repeat(np.array(test), [len(part) for part in indices]), np.concatenate(indices)
    order = random.permutation(len(index))
    # At most a quarter of a small set are queries, so that distractors remain.
    taken = min(queries, len(index) // 4)
    chosen = order[:taken], order[taken : taken + distractors]
    drawn_queries, others = (PatchList(names[part], np.zeros(len(part), np.int64), index[part]) for part in chosen)
    return drawn_queries, others


def read_verification(tasks: str | Path, split: str) -> VerificationLists:
    """Read verif_pos, verif_neg_intra and verif_neg_inter of a split from an official tasks folder."""
    lists = [_read_lists(_list_file(tasks, name, split), VERIFICATION_COLUMNS) for name in LISTS.values()]
    first = lists[0][0]
    for name, (other, _) in zip(LISTS.values(), lists, strict=True):
        if not all(np.array_equal(getattr(other, part), getattr(first, part)) for part in vars(first)):
            raise FileError(f"{_list_file(tasks, name, split)}: its first patches differ from verif_pos")
    return VerificationLists(first, *(second for _, second in lists))


def read_retrieval(tasks: str | Path, split: str) -> tuple[PatchList, PatchList]:
    """Read queries and distractors of a split from an official tasks folder."""
    files = (_list_file(tasks, name, split) for name in ("retr_queries", "retr_distractors"))
    queries, distractors = (_read_lists(file, RETRIEVAL_COLUMNS)[0] for file in files)
    return queries, distractors


def write_tasks(
    tasks: str | Path, split: str, verification: VerificationLists, queries: PatchList, distractors: PatchList
) -> None:
    """Write the five lists of a split in the official layout."""
    first = verification.first
    for part, name in LISTS.items():
        columns = [*vars(first).values(), *vars(getattr(verification, part)).values()]
        _write_rows(_list_file(tasks, name, split), VERIFICATION_COLUMNS, columns)
    for name, patches in (("retr_queries", queries), ("retr_distractors", distractors)):
        _write_rows(_list_file(tasks, name, split), RETRIEVAL_COLUMNS, [patches.sequences, patches.indices])


def sequence_numbers(patches: PatchList, counts: Mapping[str, int], what: str) -> np.ndarray:
    """(M,) the number of each listed patch's sequence; refuses a patch that does not exist, naming list and row."""
    known = {name: number for number, name in enumerate(counts)}
    sizes = np.array([*counts.values(), 0])  # the last for a sequence that is not in the set
    found = np.fromiter((known.get(name, -1) for name in patches.sequences.tolist()), np.int64, len(patches))
    is_there = (patches.indices >= 0) & (patches.indices < sizes[found])
    is_there &= (patches.images >= 0) & (patches.images <= 5)
    if not is_there.all():
        row = int(is_there.argmin())
        name, index, image = str(patches.sequences[row]), patches.indices[row], patches.images[row]
        has = f"{name} has {counts[name]} patches" if name in counts else f"sequence {name!r} is not in the set"
        raise FileError(f"{what}, row {row + 1}: {has}, the list refers to patch {index} in image {image} of 0 .. 5")
    return found


def _read_strip(path: Path) -> np.ndarray:
    patches = read_patches(path)
    if patches.shape[-1] != SIDE or patches.dtype != np.uint8:
        raise FileError(
            f"{path}: a strip must have 8-bit patches of {SIDE} px, got {patches.dtype} of {patches.shape[-1]} px"
        )
    return patches


def _lists_of(tasks: HPatchesTasks) -> Iterator[tuple[str, PatchList]]:
    """Every list, by the name of the file it is in."""
    for part in dataclasses.fields(tasks.verification):
        yield LISTS.get(part.name, "verif_pos"), getattr(tasks.verification, part.name)
    yield "retr_queries", tasks.queries
    yield "retr_distractors", tasks.distractors


def _list_file(tasks: str | Path, name: str, split: str) -> Path:
    return Path(tasks) / f"{name}_split-{split}.csv"


def _splits_file(folder: str | Path) -> Path:
    if not Path(folder).exists():
        raise FileError(f"{folder}: no such folder; --tasks gives that of the splits, `tasks` of hpatches-benchmark")
    nested = Path(folder) / "splits" / "splits.json"
    return nested if nested.is_file() else Path(folder) / "splits.json"


def _check_sequences(counts: Mapping[str, int], test: Sequence[str]) -> None:
    if not test:
        raise ArgumentError("the split is empty")
    if small := [name for name in test if counts.get(name, 0) < 2]:
        count = counts.get(small[0], 0)
        raise ArgumentError(f"the set has {count} patches of the split's sequence {small[0]!r}, a negative needs two")


def _read_lists(path: Path, header: tuple[str, ...]) -> list[PatchList]:
    """The patches of each row: two of a verification list, one of a retrieval list, which has no image column."""
    rows = csv.reader(read_small_text(path, LONG_TEXT, what="a list").splitlines())
    width = 3 if "t1" in header else 2  # columns of a patch
    lists: list[list[tuple[str, int, int]]] = [[] for _ in range(0, len(header), width)]
    number = 1
    try:
        if tuple(next(rows, ())) != header:
            raise ValueError
        for number, row in enumerate(rows, 2):  # noqa: B007, named in the error
            if len(row) != len(header):
                raise ValueError
            for k, patches in enumerate(lists):
                patches.append(_patch(*row[k * width : (k + 1) * width]))
    except (csv.Error, ValueError):
        raise FileError(f"{path}, line {number}: not a row of a list with the columns {','.join(header)}") from None
    return [
        PatchList(
            np.array([name for name, *_ in part], str), *np.array([n for _, *n in part], np.int64).reshape(-1, 2).T
        )
        for part in lists
    ]


def _patch(sequence: str, *numbers: str) -> tuple[str, int, int]:
    """Sequence, image (0 where a list has none) and index of a patch; ValueError if it cannot exist."""
    *image, index = map(int, numbers)
    if len(sequence) > LONGEST_NAME or not 0 <= sum(image) < 6 or not 0 <= index < 2**31:
        raise ValueError
    return sequence, sum(image), index


def _write_rows(path: Path, header: tuple[str, ...], columns: list[np.ndarray]) -> None:
    with replacing(path) as part, part.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(zip(*(column.tolist() for column in columns), strict=True))
