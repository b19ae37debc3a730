"""HPatches: the three tasks on one split, with every convention named in the result."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from matchkernel.data.hpatches import read_splits
from matchkernel.data.hpatches_tasks import PatchList, VerificationLists, read_retrieval, verification_lists
from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.distances import Distance, check_distance
from matchkernel.evaluation.hpatches_descriptors import HPatchesDescriptors
from matchkernel.evaluation.hpatches_matching import matching
from matchkernel.evaluation.hpatches_retrieval import retrieval
from matchkernel.evaluation.hpatches_verification import verification
from matchkernel.evaluation.results import FORMAT
from matchkernel.evaluation.whitening import pcapl

Whitening = Literal["none", "pcapl"]
TASKS = ("verification", "matching", "retrieval")
NOTICEABLE = 5e-5  # what a tie-safe value may differ by without a word: not seen in percent with two decimals


@dataclass(frozen=True)
class HPatchesTasks:
    """A split and its lists."""

    split: str
    test: list[str]
    train: list[str]
    verification: VerificationLists
    queries: PatchList
    distractors: PatchList


def read_tasks(folder: str | Path, split: str, counts: Mapping[str, int]) -> HPatchesTasks:
    """Read a split and its lists from an official tasks folder.

    Args:
        folder: holds `splits/splits.json` (or `splits.json`) and the lists of the split.
        split: a, b, c, full, illum, view, or one of your own.
        counts: patches of each sequence; the verification lists are drawn anew where the folder lacks them.
    """
    folder = Path(folder)
    nested = folder / "splits" / "splits.json"
    path = nested if nested.is_file() else folder / "splits.json"
    splits = read_splits(path)
    if split not in splits:
        raise ArgumentError(f"{path}: has no split {split!r}, only {', '.join(splits)}")
    test = splits[split]["test"]
    missing = [name for name in test if name not in counts]
    if missing:
        raise FileError(f"{path}: split {split} names the sequence {missing[0]!r}, which the descriptors lack")
    queries, distractors = read_retrieval(folder, split)
    lists = verification_lists(folder, split, counts, test)
    return HPatchesTasks(split, test, splits[split].get("train", []), lists, queries, distractors)


def evaluate_hpatches(
    descriptors: HPatchesDescriptors,
    tasks: HPatchesTasks,
    *,
    distance: Distance = "l2",
    whitening: Whitening = "none",
    only: Sequence[str] = TASKS,
    progress: Callable[[str], object] | None = None,
) -> dict[str, Any]:
    """Score descriptors on a split.

    Args:
        descriptors: of all its test sequences (and training sequences, for whitening).
        tasks: the split.
        distance: "l2", "l1", or "hamming" for bits.
        whitening: "pcapl" for the official whitening and power law.
        only: some of the three tasks.
        progress: called with the name of each task before it starts.

    Returns:
        A result to be written as JSON: the settings, each task's scores (see the tasks' own functions), and
        `warnings`, a sentence where ties make an official value higher than its tie-safe one.
    """
    check_distance(distance, descriptors.rows.dtype)
    unknown = [task for task in only if task not in TASKS]
    if unknown or not only:
        raise ArgumentError(f"tasks are {', '.join(TASKS)}, got {unknown[0] if unknown else 'none'!r}")
    if whitening not in ("none", "pcapl"):
        raise ArgumentError(f"whitening must be none or pcapl, got {whitening!r}")
    if whitening == "pcapl":
        descriptors = pcapl(descriptors, tasks.train, tasks.test)
    jobs: dict[str, Callable[[], dict[str, Any]]] = {
        "verification": lambda: verification(descriptors, tasks.verification, distance),
        "matching": lambda: matching(descriptors, tasks.test, distance),
        "retrieval": lambda: retrieval(descriptors, tasks.queries, tasks.distractors, distance),
    }
    result: dict[str, Any] = {
        "format": FORMAT,
        "kind": "hpatches",
        "descriptor": descriptors.name,
        "dimension": descriptors.dimension,
        "split": tasks.split,
        "sequences": list(tasks.test),
        "distance": distance,
        "whitening": whitening,
    }
    for task in TASKS:
        if task in only:
            if progress is not None:
                progress(task)
            result[task] = jobs[task]()
    result["warnings"] = [warning for task in TASKS if task in result for warning in _warnings(task, result[task])]
    return result


def _warnings(task: str, result: Mapping[str, Any]) -> list[str]:
    """One sentence a task, about the value that gains most from ties."""
    kept = {key: part for key, part in result.items() if key not in ("per_sequence", "per_pair", "groups")}
    gains = [(official - safe, where, official, safe) for where, official, safe in _pairs(kept, "")]
    gain, where, official, safe = max(gains)
    if gain <= NOTICEABLE:
        return []
    return [
        f"{task}: tied distances raise {where} from {100 * safe:.2f} to {100 * official:.2f} by their order alone; "
        "the tie-safe values are the ones to trust"
    ]


def _pairs(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, float, float]]:
    """Every official value with its tie-safe one, by its path in the result."""
    for key, value in part.items():
        here = f"{path}/{key}".lstrip("/")
        if isinstance(value, Mapping):
            yield from _pairs(value, here)
        elif f"{key}_tie_safe" in part:
            yield here, value, part[f"{key}_tie_safe"]
