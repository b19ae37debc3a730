"""Extract features of many images into a folder of .npz files or one features.h5; an interrupted run resumes."""

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any

from matchkernel.collection.extract_shards import (
    Extracted,
    ExtractWork,
    Photo,
    Skipped,
    check_masks,
    check_same_settings,
    mask_of,
    photo_digest,
)
from matchkernel.collection.feature_files import IMAGE_HASH
from matchkernel.collection.shards import visible_mark
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import Describer, Recipe
from matchkernel.photos.features import Store, label_of, load_features
from matchkernel.photos.files import SUFFIX, is_h5, need_h5py, npz_names, recorded_facts, write_features
from matchkernel.runtime.engine import ENGINE
from matchkernel.storage.files import check_folder, check_output, leftovers_of
from matchkernel.storage.folders import exclusive
from matchkernel.storage.photo_folders import first_names, photos_at
from matchkernel.storage.pool import Failure, Work, Workers
from matchkernel.storage.progress import Progress, Say, stage

NO_FOLDER = (SUFFIX, ".npy", ".txt", ".csv", ".json", ".db")  # a name with one of these is meant to be a file
TASKS_EACH, MOST_AT_ONCE = 8, 16  # tasks per worker, if there are enough images; images per task


@dataclass(frozen=True)
class Extraction:
    """Names of the images extracted now, of those that already had features, and why others were skipped."""

    done: list[str]
    kept: list[str]
    skipped: dict[str, str]
    keypoints: int
    descriptor: str = ""  # its name
    engine: str | None = None  # what computed it; None for SIFT

    @property
    def label(self) -> str:
        """The descriptor and the engine, for messages."""
        return label_of(self.descriptor, {} if self.engine is None else {ENGINE: self.engine})


def find_images(places: Sequence[str | Path]) -> dict[str, Path]:
    """Images of folders, files and patterns by name, sorted (see photo_folders.photos_at)."""
    return photos_at(places).paths


def extract_images(
    images: dict[str, Path],
    out: str | Path,
    describer: Describer | Recipe,
    detector: Detector | None = None,
    *,
    store: Store = "float32",
    masks: str | Path | None = None,
    workers: Workers | None = None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> Extraction:
    """Extract features of images, each file written atomically; an image that cannot be read is skipped and reported.

    When run again, images that have features with the same settings are kept, and images that have changed are
    extracted again; the features of one that has changed and cannot be read are removed. Features with other settings
    are refused. Features for an .h5 are collected in `<out>.parts` and written to the file at the end, all of them or
    none. The files are the same, byte for byte, whoever made them.

    Args:
        images: files by name (see find_images).
        out: a folder for `<name>.npz`, made if needed; or an hloc file, .h5, which may hold other images.
        describer: from open_describer; for workers also from open_recipe.
        detector: how keypoints are found.
        store: how descriptors are stored; an .h5 has float16 for bytes too, which hloc could not read.
        masks: folder of `<name>.png`, in COLMAP's way: no keypoints where it is 0; an image may have none.
        workers: who does it (default: this process, with its threads).
        say: called with a line for each skipped image, and about further images that have features there.
        progress: called with the number of images done and their total.
    """
    out, detector = Path(out), detector or Detector()
    _check_target(out, images)
    folder = out.with_name(out.name + ".parts") if is_h5(out) else out
    masks = None if masks is None else Path(masks)
    masked = check_masks(masks, images)
    if 0 < masked < len(images):
        say(f"{masked} of {len(images)} photos have a mask")
    work = ExtractWork(describer, detector, folder, out, is_h5(out), store=store, masks=masks)
    if workers is None:
        work = replace(work, describer=describer if isinstance(describer, Describer) else describer.open())
        work.here().facts  # noqa: B018 - refuses weight files of the detector before a folder is made
    with exclusive(folder, f"{out}: another process is writing features to it"):
        for path in leftovers_of(out):
            path.unlink(missing_ok=True)
        with _opened(work, workers, len(images)) as (facts, run):
            photos = _photos(out, images, facts, say)
            progress(0, len(photos))
            found: dict[str, Extracted | Skipped] = {}
            for outcome in run(photos):
                found[outcome.name] = outcome
                if isinstance(outcome, Skipped):
                    say(f"skipped {outcome.reason}")
                elif not outcome.keypoints:
                    why = "is it blank, very dark, or 10 or 12 bits in a 16 bit file?"
                    why = "is all of it masked?" if mask_of(outcome.name, masks) else why
                    say(f"{outcome.name}: no keypoints; {why}")
                progress(len(found), len(photos))
        in_order = [found[name] for name in images]
        if is_h5(out):
            with stage("write"):
                skipped = [photo for photo in photos if isinstance(found[photo.name], Skipped)]
                stale = [photo.name for photo in skipped if _has_changed(photo, masks)]
                _gather(folder, out, [one for one in in_order if isinstance(one, Extracted)], stale)
    return _report(in_order, facts, are_shared=is_h5(out))


Run = Callable[[Sequence[Photo]], Iterator[Extracted | Skipped]]


@contextmanager
def _opened(work: ExtractWork, workers: Workers | None, images: int) -> Iterator[tuple[dict[str, Any], Run]]:
    """What the features will be, and a function that extracts them: here, or by workers."""
    if workers is None:
        extractor = work.here()
        yield _as_json(extractor.facts), extractor.each
        return
    with (
        visible_mark(work.folder) as mark,
        workers.pool(Work(work.sent(mark).open, work.memory, work.uses_gpu), images) as pool,
    ):

        def run(photos: Sequence[Photo]) -> Iterator[Extracted | Skipped]:
            photos = [replace(photo, path=photo.path.absolute()) for photo in photos]
            size = min(MOST_AT_ONCE, max(1, len(photos) // (TASKS_EACH * pool.size)))
            for task, result in pool.run([photos[i : i + size] for i in range(0, len(photos), size)]):
                if isinstance(result, Failure):
                    yield from (Skipped(one.name, f"{one.path}: not extracted: {result.reason}") for one in task)
                else:
                    yield from result

        yield _as_json(pool.facts), run


def _as_json(facts: dict[str, Any]) -> dict[str, Any]:
    """Facts as they come back from a file."""
    return dict(json.loads(json.dumps(facts)))


def _report(outcomes: Sequence[Extracted | Skipped], facts: dict[str, Any], *, are_shared: bool) -> Extraction:
    there = [one for one in outcomes if isinstance(one, Extracted)]
    made = {one.file for one in there if one.is_new and are_shared}  # copies of a photo share a part of an .h5
    return Extraction(
        [one.name for one in there if one.is_new or one.file in made],
        [one.name for one in there if not one.is_new and one.file not in made],
        {one.name: one.reason for one in outcomes if isinstance(one, Skipped)},
        sum(one.keypoints for one in there),
        facts["name"],
        facts["settings"].get(ENGINE),
    )


def _check_target(out: Path, images: dict[str, Path]) -> None:
    """Refuse a place that cannot be written before any work is done."""
    if not is_h5(out) and (out.is_file() or (out.suffix.lower() in NO_FOLDER and not out.is_dir())):
        kind = "a file" if out.is_file() else "the name of a file"
        raise FileError(f"{out}: is {kind}, not a folder; features go into a folder or an .h5")
    if not is_h5(out):
        check_folder(out)
        return
    check_output(out, *images.values())
    need_h5py()
    for name in images:
        inside = next((str(parent) for parent in PurePosixPath(name).parents if str(parent) in images), "")
        if inside:
            raise ArgumentError(f"{out} cannot hold both {inside} and {name}: an image cannot be inside another image")


def _photos(out: Path, images: dict[str, Path], facts: dict[str, Any], say: Say) -> list[Photo]:
    """The photos, with what the .h5 knows of them; a place that holds features of another kind is refused."""
    if not is_h5(out):
        there = next((name for name in images if os.path.isfile(out / f"{name}{SUFFIX}")), None)  # noqa: PTH113 - long names
        if there is not None:
            _check_first(out, there, facts)
        _say_others(out, set(npz_names(out)) - images.keys(), say)
        return [Photo(name, path) for name, path in images.items()]
    known = recorded_facts(out) if out.exists() else {}
    for name, found in known.items():
        if "model" in found:
            check_same_settings(found["model"], found["settings"], facts, name, out)
        if found["D"] != facts["D"]:  # all that is known about features of another program
            raise ArgumentError(
                f"{out}: features of {name} have {found['D']} dimensions, those of {facts['name']} {facts['D']}; "
                "choose another place"
            )
    _say_others(out, known.keys() - images.keys(), say)
    return [
        Photo(name, path, known.get(name, {}).get("settings", {}).get(IMAGE_HASH), known.get(name, {}).get("K", 0))
        for name, path in images.items()
    ]


def _say_others(out: Path, names: Collection[str], say: Say) -> None:
    """Say which further images have features: their photos may be gone, or were given to another run."""
    if names:
        say(f"{out}: also holds features of photos that are not among these: {first_names(sorted(names))}")


def _has_changed(photo: Photo, masks: Path | None) -> bool:
    """Whether the .h5 has features of an earlier photo of that name; False for a file that is gone."""
    try:
        return photo.known is not None and photo.known != photo_digest(photo.path, mask_of(photo.name, masks))
    except FileError:
        return False


def _check_first(out: Path, name: str, facts: dict[str, Any]) -> None:
    """Refuse a folder with features of another kind before workers add to it; they look at all files themselves."""
    try:
        there = load_features(out / f"{name}{SUFFIX}")
    except FileError:
        return  # damaged: a worker says so
    check_same_settings(there.model, there.settings, facts, name, out)


def _gather(folder: Path, out: Path, found: Sequence[Extracted], stale: Sequence[str]) -> None:
    """Write the parts into the .h5, in the order of the images, without the stale ones, and remove them."""
    parts = [(one.name, folder / one.file) for one in sorted(found, key=lambda one: one.name) if one.file]
    if parts or stale:
        write_features(out, ((name, load_features(path)) for name, path in parts), removed=stale)
    shutil.rmtree(folder, ignore_errors=True)
