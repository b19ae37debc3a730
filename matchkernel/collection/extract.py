"""Extract features of many images into a folder of .npz files or one features.h5; an interrupted run resumes.

The features of each photo are written as one file. In a folder it has the name of the photo; for an .h5 it is a shard,
named by the key of its contents, in `<out>.parts` until all photos are done.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np

from matchkernel import __version__
from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.geometry.detect import Detection, Detector
from matchkernel.geometry.dog import SIFT_PIXELS
from matchkernel.photos.extract import Describer, describe_detection, feature_facts
from matchkernel.photos.feature_files import (
    NPZ_SUFFIX,
    first_facts,
    image_names,
    npz_names,
    recorded_facts,
    write_features,
)
from matchkernel.photos.features import (
    IMAGE_HASH,
    Features,
    Store,
    check_same_settings,
    label_of,
    load_features,
    read_facts,
    save_features,
)
from matchkernel.photos.hdf5 import check_h5_name, is_h5, need_h5py
from matchkernel.runtime.config import AUTO, CUDA_HALF, TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.files import NAME_BYTES, check_case, check_folder, check_output, key_of, remove_leftovers_of
from matchkernel.storage.folders import exclusive, parts_of, shards_of
from matchkernel.storage.images import read_gray, read_mask
from matchkernel.storage.photo_folders import check_masks, first_names, mask_of, photo_digest
from matchkernel.storage.pool import Failure, Run, Work, Workers, one_line
from matchkernel.storage.work import Progress, Say, in_threads, one_thread_each, spare_threads, stage

FILE_SUFFIXES = (NPZ_SUFFIX, ".npy", ".txt", ".csv", ".json", ".db")  # an output with one of these must be a file
TASKS_PER_WORKER, IMAGES_PER_TASK = 8, 16  # wanted, if there are enough images; maximum
LOOKED_AT = 100  # images of an .h5, for one whose features are ours
LIBRARIES = 600_000_000  # bytes: Python, torch, OpenCV and a model
# OpenCV's SIFT takes 180 bytes per pixel of the largest image that it is given; with the decoded photo and the pyramid
# that patches are cut from, 220 were measured (benchmarks/collection.py).
MEMORY = 240 * SIFT_PIXELS + LIBRARIES
Result = TypeVar("Result")


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


@dataclass(frozen=True)
class Photo:
    """A photo to extract features of."""

    name: str
    path: Path
    known: str | None = None  # sha256 of the file whose features the .h5 holds already
    keypoints: int = 0  # that the .h5 holds


@dataclass(frozen=True)
class Outcome:
    """What became of a photo."""

    name: str
    keypoints: int = 0
    is_new: bool = False  # extracted in this run
    file: str | None = None  # name of the file with its features; None if they are in the .h5 already
    skipped: str | None = None  # why it cannot be used, beginning with its file; None if it has features
    note: str = ""  # what was done to its mask


@dataclass(frozen=True)
class ExtractJob:
    """How features are extracted and where they are written: see extract_images."""

    detector: Detector
    out: Path
    store: Store = "float32"
    masks: Path | None = None

    @property
    def folder(self) -> Path:
        """Where the features of single photos are written."""
        return parts_of(self.out) if is_h5(self.out) else self.out


def extract_images(
    images: dict[str, Path],
    out: str | Path,
    describer: Describer,
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
    none. The files are the same, byte for byte, whichever workers made them.

    Args:
        images: files by name (see photo_folders.photos_at).
        out: a folder for `<name>.npz`, made if needed; or an hloc file, .h5, which may hold other images.
        describer: from open_describer; with `later`, only workers open its engine.
        detector: how keypoints are found.
        store: how descriptors are stored; in an .h5, "bytes" become float16, as hloc could not read bytes.
        masks: folder of `<name>.png`, named as for COLMAP: no keypoints where it is 0; an image may have none.
        workers: processes that extract (default: this process, with its threads).
        say: called with a line for each skipped image, and about further images that have features there.
    """
    job = ExtractJob(detector or Detector(), Path(out), store, None if masks is None else Path(masks))
    _check_target(job.out, images)
    masked = check_masks(job.masks, images)
    if 0 < masked < len(images):
        say(f"{masked} of {len(images)} photos have a mask")
    refusal = f"{out}: another process is writing features to it"
    with shards_of([job.out], refusal) if is_h5(job.out) else exclusive(job.out, refusal, is_shared=True):
        remove_leftovers_of(job.out)
        job = replace(job, detector=job.detector.continuing(_facts_there(job.out)[1]))
        with _opened(job, describer, workers, len(images)) as (facts, run):
            photos = _photos(job.out, images, facts, say)
            progress(0, left := len(photos))
            found: dict[str, Outcome] = {}
            for outcome in run(photos):
                found[outcome.name] = outcome
                if outcome.skipped is None or len(photos) > 1:  # the reason of a single photo is the whole result
                    _report(outcome, job, say)
                if outcome.skipped is not None:
                    left -= 1  # else many unreadable files would be a high speed
                progress(len(found) - len(photos) + left, left)
        outcomes = [found[name] for name in images]
        if is_h5(job.out):
            with stage("write"):
                _gather(job, photos, found)
    return _summary(outcomes, facts, are_shards=is_h5(job.out))


def _check_target(out: Path, images: dict[str, Path]) -> None:
    """Refuse a place that cannot be written before any work is done."""
    if is_h5(out):
        check_output(out, *images.values())
        need_h5py()
        for name in images:
            inside = next((str(parent) for parent in PurePosixPath(name).parents if str(parent) in images), "")
            if inside:
                raise ArgumentError(f"{out} cannot hold both {inside} and {name}: no image can be inside another one")
    elif out.is_file() or (out.suffix.lower() in FILE_SUFFIXES and not out.is_dir()):
        kind = "a file" if out.is_file() else "the name of a file"
        raise FileError(f"{out}: is {kind}, not a folder; features go into a folder or an .h5")
    else:
        check_folder(out)
        check_case(out, images)


@contextmanager
def _opened(
    job: ExtractJob, describer: Describer, workers: Workers | None, images: int
) -> Iterator[tuple[dict[str, Any], Callable[[list[Photo]], Iterator[Outcome]]]]:
    """The facts of the features, and a function that extracts them: in this process, or by workers."""
    if workers is None:
        extractor = Extractor(describer, job)
        yield extractor.facts, extractor.each
        return
    device, engine = describer.wanted_device, describer.wanted_engine
    on_gpu = device is not None and (device == "auto" or device.startswith("cuda"))
    uses_gpu = on_gpu and not isinstance(describer.model, str) and engine in (AUTO, TORCH, CUDA_HALF)
    work = Work(partial(_open_in_worker, job, describer), MEMORY, uses_gpu, job.folder)
    with workers.pool(work, images) as pool:

        def run(photos: list[Photo]) -> Iterator[Outcome]:
            size = min(IMAGES_PER_TASK, max(1, len(photos) // (TASKS_PER_WORKER * pool.size)))
            for task, result in pool.run([photos[i : i + size] for i in range(0, len(photos), size)]):
                if isinstance(result, Failure):
                    yield from (Outcome(one.name, skipped=_not_extracted(one, result.reason)) for one in task)
                else:
                    yield from result

        yield pool.facts, run


def _open_in_worker(job: ExtractJob, describer: Describer, gpu: bool) -> tuple[dict[str, Any], Run]:
    if describer.wanted_device == "auto":
        describer = replace(describer, wanted_device="cuda" if gpu else "cpu")
    extractor = Extractor(describer, job)
    return extractor.facts, lambda photos: list(extractor.each(photos))


def model_there(out: Path) -> str:
    """Name of the model of some features that are there already; empty if there are none."""
    return _facts_there(out)[0]


def _facts_there(out: Path) -> tuple[str, dict[str, Any]]:
    """Model and settings of some features that are there, or that an interrupted run has left for an .h5."""
    with suppress(FileError):  # damaged: reported later
        known = recorded_facts(out, image_names(out)[:LOOKED_AT]) if is_h5(out) and out.exists() else {}
        for found in (found for found in known.values() if "model" in found):  # ours
            return found["model"], found["settings"]
    return first_facts(parts_of(out) if is_h5(out) else out)


def _photos(out: Path, images: dict[str, Path], facts: dict[str, Any], say: Say) -> list[Photo]:
    """The photos, with what the .h5 knows of them; a place that holds features of another kind is refused."""
    known = recorded_facts(out) if is_h5(out) and out.exists() else {}
    if not is_h5(out):  # the extractor reads every file; one is enough to refuse the folder before anything is written
        first = next((name for name in images if os.path.isfile(out / f"{name}{NPZ_SUFFIX}")), None)  # noqa: PTH113 - long names
        with suppress(FileError):  # damaged: reported by the extractor
            if first is not None:
                check_same_settings(*read_facts(out / f"{first}{NPZ_SUFFIX}"), facts, first, out)
    for name, found in known.items():
        if "model" in found:
            check_same_settings(found["model"], found["settings"], facts, name, out)
        if found["D"] != facts["D"]:  # all that is known about features of another program
            raise ArgumentError(
                f"{out}: features of {name} have {found['D']} dimensions, those of {facts['name']} {facts['D']}; "
                "choose another place"
            )
    others = (known.keys() if is_h5(out) else set(npz_names(out))) - images.keys()
    if others:
        say(f"{out}: also holds features of photos that are not among these: {first_names(sorted(others))}")
    nothing: dict[str, Any] = {"settings": {}, "K": 0}
    facts_of = [(name, path, nothing | known.get(name, {})) for name, path in images.items()]
    return [Photo(name, path, found["settings"].get(IMAGE_HASH), found["K"]) for name, path, found in facts_of]


def _report(outcome: Outcome, job: ExtractJob, say: Say) -> None:
    """Say why a photo has no features or no keypoints."""
    if outcome.note:
        say(outcome.note)
    if outcome.skipped is not None:
        say(f"skipped {outcome.skipped}")
    elif not outcome.keypoints:
        is_masked = mask_of(outcome.name, job.masks) is not None
        why = "is all of it masked?" if is_masked else "is it blank, very dark, or 10 or 12 bits in a 16 bit file?"
        say(f"{outcome.name}: no keypoints; {why}")


def _gather(job: ExtractJob, photos: Sequence[Photo], found: dict[str, Outcome]) -> None:
    """Write the shards into the .h5, sorted by name; also remove features of photos that changed."""
    shards = [(name, job.folder / one.file) for name, one in sorted(found.items()) if one.file is not None]
    stale = [one.name for one in photos if found[one.name].skipped is not None and _has_changed(one, job.masks)]
    if shards or stale:
        write_features(job.out, ((name, load_features(path)) for name, path in shards), removed=stale)


def _has_changed(photo: Photo, masks: Path | None) -> bool:
    """True if the .h5 has features of an earlier photo of that name; False for a file that is gone."""
    try:
        return photo.known is not None and photo.known != photo_digest(photo.path, mask_of(photo.name, masks))
    except FileError:
        return False


def _summary(outcomes: Sequence[Outcome], facts: dict[str, Any], *, are_shards: bool) -> Extraction:
    used = [one for one in outcomes if one.skipped is None]
    new_shards = {one.file for one in used if one.is_new and are_shards}  # copies of a photo share a shard
    return Extraction(
        [one.name for one in used if one.is_new or one.file in new_shards],
        [one.name for one in used if not one.is_new and one.file not in new_shards],
        {one.name: one.skipped for one in outcomes if one.skipped is not None},
        sum(one.keypoints for one in used),
        facts["name"],
        facts["settings"].get(ENGINE),
    )


@dataclass(frozen=True)
class _Detected:
    """An image whose keypoints are detected, to be described and written."""

    photo: Photo
    target: Path
    settings: dict[str, Any]
    gray: np.ndarray
    keypoints: Detection
    note: str


@dataclass(frozen=True)
class _Described:
    """Features of an image, to be written."""

    detected: _Detected
    features: Features


class Extractor:
    """Extracts features of photos with an opened model, in one process."""

    def __init__(self, describer: Describer, job: ExtractJob) -> None:
        self.job, self._describer = job, describer
        self.facts = feature_facts(describer, job.detector, job.store)  # JSON values: name, dimension, all settings

    def each(self, photos: Sequence[Photo]) -> Iterator[Outcome]:
        """What became of each photo, in their order; several are worked on at the same time."""
        is_on_cpu = self._describer.device == "cpu"
        # One thread of torch per image: with more, sums would have another order and descriptors other last digits.
        with one_thread_each() if is_on_cpu else nullcontext():
            threads = 1 if self.job.detector.has_networks else min(spare_threads(), len(photos))
            if is_on_cpu or self._describer.takes_one_core:
                yield from in_threads(lambda one: self._write(self._describe(self._detect(one))), photos, threads)
            else:  # threads read and detect the next images, on a GPU one at a time; this one describes; threads write
                described = map(self._describe, in_threads(self._detect, photos, threads))
                yield from in_threads(self._write, described, threads)

    def _detect(self, photo: Photo) -> _Detected | Outcome:
        return _or_skip(photo, self._read_and_detect, photo)

    def _describe(self, found: _Detected | Outcome) -> _Described | Outcome:
        return found if isinstance(found, Outcome) else _or_skip(found.photo, self._described, found)

    def _write(self, found: _Described | Outcome) -> Outcome:
        return found if isinstance(found, Outcome) else _or_skip(found.detected.photo, self._written, found)

    def _read_and_detect(self, photo: Photo) -> _Detected | Outcome:
        """Detect keypoints, unless the photo has features already."""
        _check_name(photo.name, is_h5(self.job.out))
        with stage("read"):
            mask_path = mask_of(photo.name, self.job.masks)
            digest = photo_digest(photo.path, mask_path)
            if digest == photo.known:
                return Outcome(photo.name, photo.keypoints)
            settings = {**self.facts["settings"], IMAGE_HASH: digest}
            key = key_of(__version__, self.facts["name"], settings) if is_h5(self.job.out) else photo.name
            target = self.job.folder / f"{key}{NPZ_SUFFIX}"
            known = self._load_known(target, digest, photo.name) if target.is_file() else None
            if known is not None:
                return Outcome(photo.name, len(known), file=target.name)
            target.unlink(missing_ok=True)  # of an earlier photo: not to be matched if this one cannot be read
            gray = read_gray(photo.path)
            mask, note = (None, "") if mask_path is None else _read_mask(mask_path, gray)
        keypoints = detect_in(gray, self._describer, self.job.detector, mask)
        return _Detected(photo, target, settings, gray, keypoints, note)

    def _described(self, found: _Detected) -> _Described:
        features = describe_detection(found.gray, found.keypoints, self._describer, self.job.detector)
        return _Described(found, replace(features, settings=found.settings))

    def _written(self, found: _Described) -> Outcome:
        detected, count = found.detected, len(found.features)
        with stage("write"):
            save_features(found.features, detected.target)
        return Outcome(detected.photo.name, count, is_new=True, file=detected.target.name, note=detected.note)

    def _load_known(self, target: Path, digest: str, name: str) -> Features | None:
        """Features that exist and are up to date; features made with other settings are refused."""
        try:
            known = load_features(target)
        except FileError as error:
            if is_h5(self.job.out):
                return None  # a damaged shard is made again
            raise FileError(f"{error}; remove it to extract it again") from None
        check_same_settings(known.model, known.settings, self.facts, name, self.job.out)
        return known if known.settings.get(IMAGE_HASH) == digest else None


def detect_in(gray: np.ndarray, describer: Describer, detector: Detector, mask: np.ndarray | None = None) -> Detection:
    """Keypoints of (H, W) uint8 gray, only where the (H, W) mask, if there is one, is not 0."""
    with stage("detect"):
        return detector.detect(gray, mask, device=describer.device)


def _or_skip(photo: Photo, step: Callable[..., Result], *arguments: Any) -> Result | Outcome:
    """The result of a step. A photo that cannot be used does not stop the others, whatever error a library raises."""
    try:
        return step(*arguments)
    except FileError as error:
        return Outcome(photo.name, skipped=str(error))
    except (MatchKernelError, MemoryError):
        raise
    except Exception as error:
        return Outcome(photo.name, skipped=_not_extracted(photo, one_line(error)))


def _not_extracted(photo: Photo, reason: str) -> str:
    return f"{photo.path}: not extracted: {reason}"


def _check_name(name: str, in_h5: bool) -> None:
    """Refuse an image whose features cannot be written under its name."""
    if in_h5:
        try:
            check_h5_name(name)
        except ArgumentError as error:
            raise FileError(f"{name!a}: {error}") from None
    elif len(os.fsencode(PurePosixPath(name).name)) + len(NPZ_SUFFIX) > NAME_BYTES:
        raise FileError(f"{name}: the name is too long for a {NPZ_SUFFIX} file; rename the image")


def _read_mask(path: Path, gray: np.ndarray) -> tuple[np.ndarray, str]:
    """The mask of a photo, stretched to its size if it has its shape, and a line that says so."""
    mask = read_mask(path)
    if mask.shape == gray.shape:
        return mask, ""
    (height, width), (rows, columns) = gray.shape, mask.shape
    sizes = f"{columns} x {rows} pixels, its photo has {width} x {height}"
    if abs(columns / width - rows / height) * max(width, height) > 1 + max(columns / width, rows / height):
        raise FileError(f"{path}: a mask of {sizes}; is it turned, or that of another photo?")
    stretched = need_opencv().resize(mask, (width, height), interpolation=need_opencv().INTER_NEAREST_EXACT)
    return stretched, f"{path}: a mask of {sizes}; it is stretched to it"
