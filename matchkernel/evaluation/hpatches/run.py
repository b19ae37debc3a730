"""HPatches: the three tasks on one split, with every convention named in the result."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from matchkernel.data.hpatches import HPatchesTasks
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import Distance, check_distance
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.hpatches.matching import matching
from matchkernel.evaluation.hpatches.retrieval import retrieval
from matchkernel.evaluation.hpatches.splits import digest_of, strips_digest
from matchkernel.evaluation.hpatches.verification import verification
from matchkernel.evaluation.hpatches.whitening import pcapl
from matchkernel.evaluation.results import FORMAT, blank_words
from matchkernel.storage.progress import Progress, Say

Whitening = Literal["none", "pcapl"]
TASKS = ("verification", "matching", "retrieval")
NOTICEABLE = 5e-5  # what a tie-safe value may differ by without a word: not seen in percent with two decimals


def evaluate_hpatches(
    descriptors: HPatchesDescriptors,
    tasks: HPatchesTasks,
    *,
    distance: Distance = "l2",
    whitening: Whitening = "none",
    only: Sequence[str] = TASKS,
    strips: Mapping[str, Sequence[str]] | None = None,
    say: Say = lambda what: None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Score descriptors on a split.

    Args:
        descriptors: of all its test sequences (and training sequences, for whitening).
        tasks: the split.
        distance: "l2", "l1", or "hamming" for bits.
        whitening: "pcapl" for the official whitening and power law.
        only: some of the three tasks.
        strips: sequence -> sha256 of its strips (see strip_hashes), where the patches are known.
        say: called with the name of each task.
        progress: called with how much of it is done, and of how much.

    Returns:
        A result to be written as JSON: the settings, each task's scores (see the tasks' own functions), `blank`, the
        number of rows of zeros among those scored, `data_sha256`, which tells splits of one name apart,
        `patches_sha256` (None where the patches are not known, and `data_sha256` is that of the lists alone), and
        `warnings`, a sentence where ties make an official value higher than its tie-safe one or patches are blank.
    """
    check_distance(distance, descriptors.rows.dtype)
    if descriptors.rows.dtype == np.uint8 and distance != "hamming":
        raise ArgumentError(f"{descriptors.name}: bits have Hamming distance, asked for {distance}")
    check_choices(only, whitening)
    blank, rows = _count_blank(descriptors, tasks.test)
    if whitening == "pcapl":
        descriptors = pcapl(descriptors, tasks.train, tasks.test)
    result = {
        **planned(descriptors.name, tasks, descriptors.counts, distance, whitening, only, strips),
        "format": FORMAT,
        "dimension": descriptors.dimension,
        "sequences": list(tasks.test),
        "lists": dict(tasks.lists),
        "blank": blank,
    }
    for task in TASKS:
        if task in only:
            say(task)
            result[task] = _score(task, descriptors, tasks, distance, progress)
    warnings = [warning for task in TASKS if task in result for warning in _warnings(task, result[task])]
    result["warnings"] = [*warnings, *([blank_words(blank, rows)] if blank else [])]
    return result


def planned(
    name: str,
    tasks: HPatchesTasks,
    counts: Mapping[str, int],
    distance: Distance,
    whitening: Whitening,
    only: Sequence[str],
    strips: Mapping[str, Sequence[str]] | None,
) -> dict[str, Any]:
    """What a result says of itself, known before the work; for the arguments see evaluate_hpatches."""
    patches_sha256 = strips_digest(tasks, strips)
    return {
        "kind": "hpatches",
        "descriptor": name,
        "split": tasks.split,
        "tasks": [task for task in TASKS if task in only],
        "data_sha256": digest_of(tasks, counts, patches_sha256),
        "patches_sha256": patches_sha256,
        "distance": distance,
        "whitening": whitening,
    }


def check_choices(only: Sequence[str], whitening: str) -> None:
    """Refuse unknown tasks and whitenings."""
    unknown = [task for task in only if task not in TASKS]
    if unknown or not only:
        raise ArgumentError(f"tasks are {', '.join(TASKS)}, got {unknown[0] if unknown else 'none'!r}")
    if whitening not in ("none", "pcapl"):
        raise ArgumentError(f"whitening must be none or pcapl, got {whitening!r}")


def _score(
    task: str,
    descriptors: HPatchesDescriptors,
    tasks: HPatchesTasks,
    distance: Distance,
    progress: Progress | None,
) -> dict[str, Any]:
    if task == "verification":
        return verification(descriptors, tasks.verification, distance)
    if task == "matching":
        return matching(descriptors, tasks.test, distance, progress)
    return retrieval(descriptors, tasks.queries, tasks.distractors, distance, progress)


def _count_blank(descriptors: HPatchesDescriptors, sequences: Sequence[str]) -> tuple[int, int]:
    """How many rows of these sequences are zeros, and how many there are."""
    blank = rows = 0
    for name in sequences:
        part = descriptors.sequence(name).reshape(-1, descriptors.rows.shape[1])
        starts_with_zero = part[:, 0] == 0  # few do: the rest need not be looked at
        blank += int((~part[starts_with_zero].any(1)).sum())
        rows += len(part)
    return blank, rows


def _warnings(task: str, result: Mapping[str, Any]) -> list[str]:
    """One sentence a task, about the value that gains most from ties."""
    kept = {key: part for key, part in result.items() if key not in ("per_sequence", "per_pair", "groups")}
    gains = [(official - safe, where, official, safe) for where, official, safe in _pairs(kept, "")]
    gain, where, official, safe = max(gains)
    if gain <= NOTICEABLE:
        return []
    return [
        f"{task}: tied distances raise {where} from {100 * safe:.3f} to {100 * official:.3f} by their order alone; "
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
