"""The work of a worker that extracts features: photos in, one file of features for each of them out."""

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar

import numpy as np

from matchkernel.collection.feature_files import IMAGE_HASH
from matchkernel.collection.shards import check_visible, key_of
from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.geometry.detect import NETWORKS, SIFT_PIXELS, Detection, Detector
from matchkernel.photos.describers import Describer, Recipe
from matchkernel.photos.extract import describe_found, detect_in, for_each_image, recorded_settings
from matchkernel.photos.features import STORE, Features, Store, load_features, save_features
from matchkernel.photos.files import SUFFIX, check_h5_name
from matchkernel.photos.filters import RATIO, THRESHOLD
from matchkernel.runtime.engine import AUTO, CUDA_HALF, ENGINE, FILE, TORCH
from matchkernel.storage.files import NAME_BYTES, file_hash
from matchkernel.storage.images import read_gray, read_mask
from matchkernel.storage.pool import Run, one_line
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.stages import stage
from matchkernel.storage.threads import one_thread_each, use_threads

LIBRARIES = 600_000_000  # bytes: Python, torch, OpenCV and a model
# OpenCV's SIFT takes 180 bytes per pixel of the largest image that it is given; with the decoded photo and the pyramid
# that patches are cut from, 220 were measured (benchmarks/collection.py).
MEMORY = 240 * SIFT_PIXELS + LIBRARIES
Result = TypeVar("Result")


@dataclass(frozen=True)
class Photo:
    """A photo to extract features of.

    Attributes:
        name: of the image.
        path: its file.
        known: sha256 of the file whose features the .h5 holds already.
        keypoints: how many of them the .h5 holds.
    """

    name: str
    path: Path
    known: str | None = None
    keypoints: int = 0


@dataclass(frozen=True)
class Extracted:
    """Features that are there now: in this file, or in the .h5; and whether they were made in this run."""

    name: str
    keypoints: int
    is_new: bool
    file: str | None = None


@dataclass(frozen=True)
class Skipped:
    """A photo that cannot be used, and why; the reason begins with the file."""

    name: str
    reason: str


@dataclass(frozen=True)
class ExtractWork:
    """Extract features, in as many processes as there are; see pool.Work.

    Attributes:
        describer: an opened one, for this process; or how to open it.
        detector: how keypoints are found.
        folder: where the files are written.
        out: what the user asked for: the same folder, or an .h5, whose features are collected in the folder first.
        is_h5: whether it is an .h5; then a file is named by its key, otherwise by its image.
        mark: file that a worker must see, see shards.visible_mark.
        store: how descriptors are stored.
        masks: folder of `<name>.png`, in COLMAP's way: no keypoints where it is 0; an image may have none.
    """

    describer: Describer | Recipe
    detector: Detector
    folder: Path
    out: Path
    is_h5: bool
    mark: Path | None = None
    store: Store = "float32"
    masks: Path | None = None

    @property
    def memory(self) -> int:
        """Bytes that a worker takes at most."""
        return MEMORY

    @property
    def uses_gpu(self) -> bool:
        """Whether its network may run on a GPU."""
        recipe = self._recipe
        on_gpu = recipe.device is not None and (recipe.device == "auto" or recipe.device.startswith("cuda"))
        return on_gpu and not isinstance(recipe.model, str) and recipe.engine in (AUTO, TORCH, CUDA_HALF)

    def sent(self, mark: Path) -> "ExtractWork":
        """The same for workers that may be in another directory; all of them must see the mark."""
        recipe = self._recipe
        if recipe.engine.lower().endswith(FILE):
            recipe = replace(recipe, engine=str(Path(recipe.engine).absolute()))
        files = {name: path for name in NETWORKS if (path := getattr(self.detector, name)) is not None}
        absolute: dict[str, Any] = {name: str(Path(path).absolute()) for name, path in files.items()}
        return replace(
            self,
            describer=recipe,
            detector=replace(self.detector, **absolute),
            folder=self.folder.absolute(),
            masks=None if self.masks is None else self.masks.absolute(),
            mark=mark.absolute(),
        )

    def open(self, threads: int, gpu: bool) -> tuple[dict[str, Any], Run]:
        """Open the model in a worker."""
        if self.mark is not None:
            check_visible(self.mark)
        use_threads(threads)
        recipe = self._recipe
        if recipe.device == "auto":
            recipe = replace(recipe, device="cuda" if gpu else "cpu")
        extractor = Extractor(self, recipe.open())
        return extractor.facts, extractor.do

    def here(self) -> "Extractor":
        """Open the model in this process."""
        return Extractor(self, self.describer if isinstance(self.describer, Describer) else self.describer.open())

    @property
    def _recipe(self) -> Recipe:
        recipe = self.describer if isinstance(self.describer, Recipe) else self.describer.recipe
        if recipe is None:
            raise ArgumentError("a describer that was made by hand cannot be sent to other processes")
        return recipe


@dataclass(frozen=True)
class _Begun:
    """An image whose keypoints are detected, to be described and written."""

    photo: Photo
    target: Path
    settings: dict[str, Any]
    gray: np.ndarray
    found: Detection


class Extractor:
    """Extracts features with a model that is open."""

    def __init__(self, work: ExtractWork, describer: Describer) -> None:
        self.work = work
        # One thread of torch per image: with more, sums would have another order and descriptors other last digits.
        self._describer = replace(describer, takes_one_core=True) if describer.device == "cpu" else describer

    @cached_property
    def facts(self) -> dict[str, Any]:
        """The descriptor's name, its dimension and all settings of the features; bad weights are refused here."""
        made = self._describer
        settings = recorded_settings(made, self.work.detector)
        if self.work.store != "float32":
            settings[STORE] = self.work.store
        return {"name": made.name, "D": made.D, "settings": settings}

    def do(self, task: Sequence[Photo]) -> list[Extracted | Skipped]:
        """What became of each photo of a task."""
        return list(self.each(task))

    def each(self, photos: Sequence[Photo]) -> Iterator[Extracted | Skipped]:
        """What became of each photo, in their order; several are worked on at the same time."""
        if self._describer.device == "cpu":
            with one_thread_each():
                yield from self._each(photos)
        else:
            yield from self._each(photos)

    def _each(self, photos: Sequence[Photo]) -> Iterable[Extracted | Skipped]:
        def begin(photo: Photo) -> _Begun | Extracted | Skipped:
            return _or_skipped(photo, lambda: self._begin(photo))

        def end(begun: _Begun | Extracted | Skipped) -> Extracted | Skipped:
            return _or_skipped(begun.photo, lambda: self._end(begun)) if isinstance(begun, _Begun) else begun

        return for_each_image(begin, end, photos, self._describer, self.work.detector)

    def _begin(self, photo: Photo) -> _Begun | Extracted:
        """Detect keypoints unless the features are there."""
        _check_name(photo.name, self.work.is_h5)
        with stage("read"):
            mask = mask_of(photo.name, self.work.masks)
            digest = photo_digest(photo.path, mask)
            if digest == photo.known:
                return Extracted(photo.name, photo.keypoints, is_new=False)
            settings = {**self.facts["settings"], IMAGE_HASH: digest}
            target = self._target(photo.name, settings)
            known = self._known(target, settings, photo.name) if target.is_file() else None
            if known is not None:
                return Extracted(photo.name, len(known), is_new=False, file=target.name)
            target.unlink(missing_ok=True)  # of an earlier photo: not to be matched if this one cannot be read
            gray = read_gray(photo.path)
            masked = None if mask is None else _read_mask(mask, gray)
        found = detect_in(gray, self._describer, self.work.detector, masked)
        return _Begun(photo, target, settings, gray, found)

    def _end(self, begun: _Begun) -> Extracted:
        """Describe the keypoints and write the features."""
        features = describe_found(begun.gray, begun.found, self._describer, self.work.detector)
        with stage("write"):
            save_features(replace(features, settings=begun.settings), begun.target)
        return Extracted(begun.photo.name, len(features), is_new=True, file=begun.target.name)

    def _target(self, name: str, settings: dict[str, Any]) -> Path:
        key = key_of(self.facts["name"], settings) if self.work.is_h5 else name
        return self.work.folder / f"{key}{SUFFIX}"

    def _known(self, target: Path, settings: dict[str, Any], name: str) -> Features | None:
        """Features that are there and up to date; those made with other settings are refused."""
        try:
            known = load_features(target)
        except FileError as error:
            if self.work.is_h5:
                return None  # damaged: made again
            raise FileError(f"{error}; remove it to extract it again") from None
        check_same_settings(known.model, known.settings, self.facts, name, self.work.out)
        return known if known.settings.get(IMAGE_HASH) == settings[IMAGE_HASH] else None


def _or_skipped(photo: Photo, step: Callable[[], Result]) -> Result | Skipped:
    """What a step gives; a photo that it cannot take must not stop the others, whatever a library says about it."""
    try:
        return step()
    except FileError as error:
        return Skipped(photo.name, str(error))
    except (MatchKernelError, MemoryError):
        raise
    except Exception as error:
        return Skipped(photo.name, f"{photo.path}: not extracted: {one_line(error)}")


def check_same_settings(
    model: str, settings: Any, facts: dict[str, Any], name: str, out: Path, advice: str = "remove them"
) -> None:
    """Refuse features made in another way than those that facts (of an Extractor) describe."""
    first = {ENGINE: TORCH, STORE: "float32"}  # the only ones there were
    before = {**first, "model": model, **settings}
    now = {**first, "model": facts["name"], **facts["settings"]}
    keys = ["model", *sorted((before.keys() | now.keys()) - {IMAGE_HASH, THRESHOLD, RATIO, "model"})]
    readable = [key for key in keys if not key.endswith("sha256")]
    for some in (readable, keys):  # digests are told only if all else is the same
        told = describe_differences({key: before.get(key) for key in some}, {key: now.get(key) for key in some})
        if not told:
            continue
        only_engine = [key for key in readable if before.get(key) != now.get(key)] == [ENGINE]
        other = f"use --engine {before[ENGINE]}, " if only_engine else ""
        raise ArgumentError(f"{out}: features of {name} were {told}; {other}{advice} or choose another place")


def _check_name(name: str, is_h5: bool) -> None:
    """Refuse an image whose features cannot be written under its name."""
    if is_h5:
        try:
            check_h5_name(name)
        except ArgumentError as error:
            raise FileError(f"{name!a}: {error}") from None
    elif len(os.fsencode(PurePosixPath(name).name)) + len(SUFFIX) > NAME_BYTES:
        raise FileError(f"{name}: the name is too long for a {SUFFIX} file; rename the image")


def mask_of(name: str, masks: Path | None) -> Path | None:
    """The mask of an image, if it has one."""
    mask = None if masks is None else masks / f"{name}.png"
    return mask if mask is not None and os.path.isfile(mask) else None  # noqa: PTH113 - False for a name too long


def check_masks(masks: Path | None, names: Collection[str]) -> int:
    """The number of images that have a mask; a folder without any is refused, as masks with other names would be."""
    if masks is None:
        return 0
    if not masks.is_dir():
        raise FileError(f"{masks}: no such folder of masks")
    count = sum(mask_of(name, masks) is not None for name in names)
    if names and not count:
        first = next(iter(names))
        raise FileError(f"{masks}: has no mask of these photos; that of {first} would be {first}.png")
    return count


def photo_digest(path: Path, mask: Path | None = None) -> str:
    """sha256 of a photo, and of its mask if it has one."""
    return _hash(path) if mask is None else f"{_hash(path)} with mask {_hash(mask)}"


def _read_mask(path: Path, gray: np.ndarray) -> np.ndarray:
    mask = read_mask(path)
    if mask.shape != gray.shape:
        sizes = [f"{pixels.shape[1]} x {pixels.shape[0]}" for pixels in (mask, gray)]
        raise FileError(f"{path}: a mask of {sizes[0]} pixels, its photo has {sizes[1]}")
    return mask


def _hash(path: Path) -> str:
    if not path.is_file():  # reading a pipe might never end
        raise FileError(f"{path}: no such file")
    try:
        return file_hash(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None
