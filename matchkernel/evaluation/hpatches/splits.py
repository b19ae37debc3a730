"""A split of HPatches and its task lists: read from an official tasks folder, or drawn where it lacks them."""

import dataclasses
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from matchkernel.data.hpatches import IMAGES, HPatchesSet, read_splits
from matchkernel.data.hpatches_tasks import (
    SEED,
    PatchList,
    VerificationLists,
    draw_retrieval,
    draw_verification,
    read_retrieval,
    read_verification,
)
from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.hpatches.descriptors import sequence_numbers
from matchkernel.storage.folders import file_hash

DRAWN = f"drawn, seed {SEED}"
FILES = {"positives": "pos", "intra": "neg_intra", "inter": "neg_inter"}


@dataclass(frozen=True)
class HPatchesTasks:
    """A split and its lists."""

    split: str
    test: list[str]
    train: list[str]
    verification: VerificationLists
    queries: PatchList
    distractors: PatchList
    lists: dict[str, str] = field(default_factory=dict)  # where those of a task come from, for the result

    @cached_property
    def digest(self) -> str:
        """sha256 of all lists."""
        digest = hashlib.sha256()
        for name, part in _lists_of(self):
            digest.update(f"{name} {len(part)} ".encode())
            digest.update("\n".join(part.sequences.tolist()).encode())
            digest.update(part.images.astype("<i1").tobytes() + part.indices.astype("<i4").tobytes())
        return digest.hexdigest()


def read_split(folder: str | Path, split: str) -> tuple[list[str], list[str]]:
    """The test and the training sequences of a split.

    Args:
        folder: holds `splits/splits.json` (or `splits.json`).
        split: a, b, c, full, illum, view, or one of your own.
    """
    path = _splits_file(folder)
    splits = read_splits(path)
    if split not in splits:
        raise ArgumentError(f"{path}: has no split {split!r}, only {', '.join(splits)}")
    test = splits[split]["test"]
    if not test:
        raise FileError(f"{path}: split {split} has no test sequences")
    return test, splits[split].get("train", [])


def read_tasks(
    folder: str | Path, split: str, counts: Mapping[str, int], patches: HPatchesSet | None = None
) -> HPatchesTasks:
    """Read a split and its lists from an official tasks folder; a list that names what is not there is refused.

    Args:
        folder: holds the splits (see read_split) and the lists.
        split: a, b, c, full, illum, view, or one of your own.
        counts: patches of each sequence; the verification lists are drawn anew where the folder lacks them.
        patches: the set, to draw the retrieval lists from where the folder lacks them.
    """
    folder = Path(folder)
    test, train = read_split(folder, split)
    missing = [name for name in test if name not in counts]
    if missing:
        path = _splits_file(folder)
        raise FileError(f"{path}: split {split} names the sequence {missing[0]!r}, which is not in the set")
    lists = {"verification": "read", "retrieval": "read"}
    if (folder / f"verif_pos_split-{split}.csv").is_file():
        verification = read_verification(folder, split)
    else:
        verification, lists["verification"] = draw_verification(counts, test), DRAWN
    if patches is not None and not (folder / f"retr_queries_split-{split}.csv").is_file():
        queries, distractors = draw_retrieval(patches, test)
        lists["retrieval"] = DRAWN
    else:
        queries, distractors = read_retrieval(folder, split)
    tasks = HPatchesTasks(split, test, train, verification, queries, distractors, lists)
    for name, part in _lists_of(tasks):
        sequence_numbers(part, counts, str(folder / f"{name}_split-{split}.csv"))
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


def digest_of(tasks: HPatchesTasks, counts: Mapping[str, int], patches_sha256: str | None = None) -> str:
    """sha256 of what must be the same for scores to be compared: lists, numbers of patches, patches where known."""
    known = [] if patches_sha256 is None else [patches_sha256]
    return _sha256([tasks.digest, [[name, counts[name]] for name in tasks.test], *known])


def strips_digest(tasks: HPatchesTasks, strips: Mapping[str, Sequence[str]] | None) -> str | None:
    """sha256 of the patches of a split's test sequences, from those of their strips; None where these are not known."""
    return None if strips is None else _sha256([[name, list(strips[name])] for name in tasks.test])


def strip_hashes(patches: HPatchesSet, sequences: Sequence[str]) -> dict[str, list[str]]:
    """sha256 of each strip file of some sequences, in the order of IMAGES; read from the files, not the manifest."""
    return {name: [file_hash(patches.root / name / f"{image}.png") for image in IMAGES] for name in sequences}


def _sha256(content: object) -> str:
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def _lists_of(tasks: HPatchesTasks) -> Iterator[tuple[str, PatchList]]:
    """Every list, by the name of the file it is in."""
    for part in dataclasses.fields(tasks.verification):
        yield f"verif_{FILES.get(part.name, 'pos')}", getattr(tasks.verification, part.name)
    yield "retr_queries", tasks.queries
    yield "retr_distractors", tasks.distractors


def _splits_file(folder: str | Path) -> Path:
    nested = Path(folder) / "splits" / "splits.json"
    return nested if nested.is_file() else Path(folder) / "splits.json"
