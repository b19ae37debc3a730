"""HPatches: descriptors to scores of the three tasks, from folders (evaluate_hpatches) or from arrays (score_split)."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matchkernel.data.hpatches import IMAGES, HPatchesSet, HPatchesTasks, needed_sequences, open_hpatches, read_tasks
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import check_distance
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors, describe_hpatches
from matchkernel.evaluation.hpatches.files import read_descriptors, write_descriptors
from matchkernel.evaluation.hpatches.matching import matching
from matchkernel.evaluation.hpatches.retrieval import distractor_warnings, retrieval
from matchkernel.evaluation.hpatches.verification import verification
from matchkernel.evaluation.hpatches.whitening import pcapl
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.results import FORMAT, NOTICEABLE, CheckPlans, blank_warning
from matchkernel.photos.nearest import Distance
from matchkernel.storage.files import check_new_folder, file_hash, json_digest
from matchkernel.storage.folders import new_folder
from matchkernel.storage.work import Progress, Say

Whitening = Literal["none", "pcapl"]
TASKS = ("verification", "matching", "retrieval")


def evaluate_hpatches(
    method: Method,
    folder: str | Path | HPatchesSet | None = None,
    *,
    tasks: str | Path | None = None,
    splits: Sequence[str] = ("full",),
    distance: Distance | None = None,
    whitening: Whitening = "none",
    only: Sequence[str] = TASKS,
    write_csv: str | Path | None = None,
    check_plans: CheckPlans = lambda plans: None,
    say: Say = lambda what: None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Score a method, or descriptors from files, on splits of a set in the HPatches layout.

    Args:
        method: what to score, see choose_methods and descriptor_files.
        folder: the set, as a folder or opened. Optional for descriptor files; with it their numbers of rows are
            checked, and its patches are assumed to be the ones described.
        tasks: folder of splits and lists (default: `tasks` in the set's folder).
        distance: "l1" or "l2" (default: the method's own; Hamming for bits).
        write_csv: a new folder for the descriptors of the splits' sequences, before any whitening.

    Returns:
        A result of score_split for each split, with what is known about the method and the set added.
    """
    distance = method.chosen_distance(distance)
    _check_choices(only, whitening)
    if write_csv is not None:
        check_new_folder(write_csv)
    if not splits or len(set(splits)) < len(splits):
        raise ArgumentError(f"each split must be given once, got {', '.join(splits) or 'none'}")
    patches = folder if folder is None or isinstance(folder, HPatchesSet) else open_hpatches(folder)
    if patches is None and (tasks is None or method.files is None):
        raise ArgumentError(f"{method.name}: give the folder of a set (descriptor files need at least --tasks)")
    place = patches.root / "tasks" if patches is not None and tasks is None else Path(tasks or "")
    needed = needed_sequences(place, splits, whitening)

    # Everything that can be refused is checked first, before describing, which takes long.
    descriptors, counts = None, {} if patches is None else patches.counts
    if method.files is not None:
        bits = method.distance == "hamming"
        descriptors = read_descriptors(method.files, needed, bits=bits, counts=counts, name=method.name)
        counts = descriptors.counts
    lists = [read_tasks(place, split, counts, patches) for split in splits]
    strips = None if patches is None else _strip_hashes(patches, lists)
    facts = method.facts if patches is None else {"set": patches.root.resolve().name, **method.facts}
    check_plans([_settings(method.name, part, counts, distance, whitening, only, strips) | facts for part in lists])

    if descriptors is None:
        assert patches is not None  # refused above
        say(f"describing with {method.name}")
        descriptors = describe_hpatches(method.name, patches, method.describe, needed, progress)
    options: dict[str, Any] = {"distance": distance, "whitening": whitening, "only": only, "strips": strips}
    results = [score_split(descriptors, part, **options, say=say, progress=progress) | facts for part in lists]
    for result in results:
        result["warnings"] += method.warnings
    if write_csv is not None:
        with new_folder(write_csv) as part:
            write_descriptors(part, descriptors)
    return results


def score_split(
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
    """Score descriptors on one split.

    Args:
        descriptors: of all its test sequences (and training sequences, for whitening).
        tasks: the split and its lists.
        distance: "l2", "l1", or "hamming" for bits.
        whitening: "pcapl" for the official whitening and power law.
        only: a selection of the three tasks.
        strips: sequence -> sha256 of its strips in the order of IMAGES, where the patches are known.
        say: called with the name of the next task.
        progress: called with the number of items of this task done and their total.

    Returns:
        A result to be written as JSON: the settings, each task's scores (see the tasks' own functions), `blank`, the
        number of rows of zeros among those scored, `data_sha256`, which distinguishes splits of the same name,
        `patches_sha256` (None where the patches are not known; `data_sha256` then covers the lists alone), and
        `warnings`, a sentence where ties make an official value higher than its tie-safe one, retrieval has nothing to
        tell apart, or patches are blank.

    Example:
        >>> import numpy as np
        >>> from matchkernel.data.hpatches import HPatchesTasks, PatchList, draw_verification
        >>> from matchkernel.evaluation.hpatches.descriptors import stack_descriptors
        >>> from matchkernel.evaluation.hpatches.evaluate import score_split
        >>> counts = {"i_dome": 6, "v_wall": 6}
        >>> rows = {name: np.random.default_rng(k).normal(size=(16, 6, 8)) for k, name in enumerate(counts)}
        >>> names, zeros = np.repeat(list(counts), 6), np.zeros(12, int)
        >>> every = PatchList(names, zeros, np.tile(np.arange(6), 2))
        >>> tasks = HPatchesTasks("mine", list(counts), [], draw_verification(counts, list(counts), 20), every, every)
        >>> result = score_split(stack_descriptors("noise", rows), tasks, only=["matching"])
        >>> 0 <= result["matching"]["mean"]["all"]["ap_trapezoid"] <= 1
        True
    """
    check_distance(distance, descriptors.rows.dtype)
    if descriptors.rows.dtype == np.uint8 and distance != "hamming":
        raise ArgumentError(f"{descriptors.name}: bits are compared by Hamming distance, got {distance}")
    _check_choices(only, whitening)
    parts = [descriptors.sequence(name).reshape(-1, descriptors.rows.shape[1]) for name in tasks.test]
    starts_with_zero = (part[part[:, 0] == 0] for part in parts)  # only a few do, the rest need no check
    blank = sum(int((~some.any(1)).sum()) for some in starts_with_zero)
    if whitening == "pcapl":
        descriptors = pcapl(descriptors, tasks.train, tasks.test)
    result = {
        **_settings(descriptors.name, tasks, descriptors.counts, distance, whitening, only, strips),
        "format": FORMAT,
        "dimension": descriptors.dimension,
        "sequences": list(tasks.test),
        "lists": dict(tasks.lists),
        "blank": blank,
    }
    score = {
        "verification": lambda: verification(descriptors, tasks.verification, distance),
        "matching": lambda: matching(descriptors, tasks.test, distance, progress),
        "retrieval": lambda: retrieval(descriptors, tasks.queries, tasks.distractors, distance, progress),
    }
    for task in (task for task in TASKS if task in only):
        say(task)
        result[task] = score[task]()
    warnings = [warning for task in TASKS if task in result for warning in _tie_warnings(task, result[task])]
    warnings += distractor_warnings(tasks.queries, tasks.distractors) if "retrieval" in result else []
    result["warnings"] = [*warnings, *([blank_warning(blank, sum(map(len, parts)))] if blank else [])]
    return result


def _settings(
    descriptor: str,
    tasks: HPatchesTasks,
    counts: Mapping[str, int],
    distance: Distance,
    whitening: Whitening,
    only: Sequence[str],
    strips: Mapping[str, Sequence[str]] | None,
) -> dict[str, Any]:
    """The part of a result that is known before the work; for the arguments see score_split.

    `data_sha256` covers what must be the same for scores to be compared: the lists, the numbers of patches, and the
    patches where they are known.
    """
    patches_sha256 = (
        None if strips is None else json_digest([[sequence, list(strips[sequence])] for sequence in tasks.test])
    )
    known = [] if patches_sha256 is None else [patches_sha256]
    return {
        "kind": "hpatches",
        "descriptor": descriptor,
        "split": tasks.split,
        "tasks": [task for task in TASKS if task in only],
        "data_sha256": json_digest([tasks.digest, [[name, counts[name]] for name in tasks.test], *known]),
        "patches_sha256": patches_sha256,
        "distance": distance,
        "whitening": whitening,
    }


def _strip_hashes(patches: HPatchesSet, lists: Sequence[HPatchesTasks]) -> dict[str, list[str]]:
    """sha256 of each strip of the test sequences, from the files themselves, not from a manifest."""
    names = dict.fromkeys(name for tasks in lists for name in tasks.test)
    return {name: [file_hash(patches.root / name / f"{image}.png") for image in IMAGES] for name in names}


def _check_choices(only: Sequence[str], whitening: str) -> None:
    unknown = [task for task in only if task not in TASKS]
    if unknown or not only:
        raise ArgumentError(f"tasks are {', '.join(TASKS)}, got {unknown[0] if unknown else 'none'!r}")
    if whitening not in ("none", "pcapl"):
        raise ArgumentError(f"whitening must be none or pcapl, got {whitening!r}")


def _tie_warnings(task: str, result: Mapping[str, Any]) -> list[str]:
    """At most one sentence, about the value that gains most from ties."""
    kept = {key: part for key, part in result.items() if key not in ("per_sequence", "per_pair", "groups")}
    gains = [(official - safe, where, official, safe) for where, official, safe in _with_tie_safe(kept, "")]
    gain, where, official, safe = max(gains)
    if gain <= NOTICEABLE:
        return []
    return [
        f"{task}: tied distances raise {where} from {100 * safe:.3f} to {100 * official:.3f} by their order alone; "
        "the tie-safe values are the ones to trust"
    ]


def _with_tie_safe(part: Mapping[str, Any], path: str) -> Iterator[tuple[str, float, float]]:
    """Every official value with its tie-safe one, by its path in the result."""
    for key, value in part.items():
        here = f"{path}/{key}".lstrip("/")
        if isinstance(value, Mapping):
            yield from _with_tie_safe(value, here)
        elif f"{key}_tie_safe" in part:
            yield here, value, part[f"{key}_tie_safe"]
