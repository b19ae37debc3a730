"""HPatches from folders: a set, its task lists and something to score, to one result a split."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from matchkernel.data.hpatches import HPatchesSet, needed_sequences, open_hpatches, read_tasks
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.distances import Distance
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors, describe_hpatches
from matchkernel.evaluation.hpatches.files import check_new_folder, read_descriptors, write_new_folder
from matchkernel.evaluation.hpatches.run import TASKS, Whitening, check_choices, evaluate_hpatches, planned
from matchkernel.evaluation.hpatches.splits import strip_hashes
from matchkernel.evaluation.methods import Method, Planned, chosen_distance
from matchkernel.storage.progress import Progress, Say


@dataclass(frozen=True)
class DescriptorFiles:
    """Anyone's descriptors to be scored, in files of the official layout."""

    folder: Path
    bits: bool = False  # the numbers are bytes of packed bits, to be compared by Hamming distance
    name: str | None = None  # what tables call the descriptor (default: the folder's name)


def evaluate_hpatches_splits(
    source: Method | DescriptorFiles,
    folder: str | Path | HPatchesSet | None = None,
    *,
    tasks: str | Path | None = None,
    splits: Sequence[str] = ("full",),
    distance: Distance | None = None,
    whitening: Whitening = "none",
    only: Sequence[str] = TASKS,
    write_csv: str | Path | None = None,
    before: Planned | None = None,
    say: Say = lambda what: None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Score a method, or descriptors from files, on splits of a set in the HPatches layout.

    Args:
        source: what to score, see choose_methods.
        folder: of the set, or the set, opened. Descriptor files can do without; with it their numbers of rows are
            checked, and its patches are taken for those described.
        tasks: folder of splits and lists (default: `tasks` in the set's).
        splits: a, b, c, full, illum, view, or your own.
        distance: "l1" or "l2" (default: the method's own; Hamming for bits).
        whitening: "none" or "pcapl".
        only: some of the three tasks.
        write_csv: a new folder for the descriptors of the splits' sequences, before any whitening.
        before: called with what each result will say of itself, before the work; may refuse it by an error.
        say: called with what is being done.
        progress: called with how much of it is done, and of how much.

    Returns:
        A result of evaluate_hpatches for each split, with what is known of the method and the set added.
    """
    chosen = _distance(source, distance)
    check_choices(only, whitening)
    if write_csv is not None:
        check_new_folder(write_csv)
    if not splits or len(set(splits)) < len(splits):
        raise ArgumentError(f"splits must be named once each, got {', '.join(splits) or 'none'}")
    if folder is None and isinstance(source, Method):
        raise ArgumentError(f"give the folder of a set for {source.name} to describe")
    patches = folder if folder is None or isinstance(folder, HPatchesSet) else open_hpatches(folder)
    place = _tasks_folder(tasks, patches)
    coming = _describing(source, patches, needed_sequences(place, splits, whitening), say, progress)
    lists = [read_tasks(place, split, coming.counts, patches) for split in splits]
    tests = dict.fromkeys(name for part in lists for name in part.test)
    strips = None if patches is None else strip_hashes(patches, list(tests))
    facts = source.facts if isinstance(source, Method) else {"settings": {"files": source.folder.resolve().name}}
    facts = facts if patches is None else {"set": patches.root.resolve().name, **facts}
    if before is not None:
        before([planned(coming.name, t, coming.counts, chosen, whitening, only, strips) | facts for t in lists])
    descriptors = coming.work()
    options: dict[str, Any] = {"distance": chosen, "whitening": whitening, "only": only, "strips": strips}
    results = [evaluate_hpatches(descriptors, part, **options, say=say, progress=progress) | facts for part in lists]
    for result in results:
        result["warnings"] += source.warnings if isinstance(source, Method) else ()
    if write_csv is not None:
        write_new_folder(write_csv, descriptors)
    return results


class _Describing(NamedTuple):
    """Descriptors to come: what is known of them, and the work that makes them."""

    name: str
    counts: Mapping[str, int]
    work: Callable[[], HPatchesDescriptors]


def _describing(
    source: Method | DescriptorFiles,
    patches: HPatchesSet | None,
    names: Sequence[str],
    say: Say,
    progress: Progress | None,
) -> _Describing:
    """Files are read at once; describing is long, and waits until the lists are read, which may be faulty."""
    if isinstance(source, DescriptorFiles):
        counts = None if patches is None else patches.counts
        read = read_descriptors(source.folder, names, bits=source.bits, counts=counts, name=source.name)
        return _Describing(read.name, read.counts, lambda: read)
    assert patches is not None  # a method without a set was refused before

    def work() -> HPatchesDescriptors:
        say(f"describing with {source.name}")
        return describe_hpatches(source.name, patches, source.describe, names, progress)

    return _Describing(source.name, patches.counts, work)


def _distance(source: Method | DescriptorFiles, wanted: Distance | None) -> Distance:
    if isinstance(source, Method):
        return chosen_distance(source.name, source.distance, wanted)
    return chosen_distance(str(source.folder), "hamming" if source.bits else "l2", wanted)


def _tasks_folder(tasks: str | Path | None, patches: HPatchesSet | None) -> Path:
    if tasks is not None:
        return Path(tasks)
    if patches is None:
        raise ArgumentError("give the folder of task lists, --tasks, or that of a set which has one")
    return patches.root / "tasks"
