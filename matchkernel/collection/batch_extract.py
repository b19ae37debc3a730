"""Extract features of many images into a folder of .npz files or one features.h5; an interrupted run resumes."""

import json
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.detect import Detection, Detector
from matchkernel.model.engines.engine import ENGINE, TORCH
from matchkernel.photos.describers import Describer
from matchkernel.photos.extract import describe_found, detect_in, for_each_image, recorded_settings
from matchkernel.photos.features import Features, load_features, save_features
from matchkernel.photos.filters import RATIO, THRESHOLD
from matchkernel.photos.hloc import (
    check_name,
    image_names,
    load_h5py,
    read_features,
    recorded_facts,
    write_features,
)
from matchkernel.storage.files import NAME_BYTES, check_folder, check_output, file_hash, leftovers_of
from matchkernel.storage.folders import exclusive
from matchkernel.storage.images import SUFFIXES, read_gray
from matchkernel.storage.progress import Progress, Say
from matchkernel.storage.stages import stage

H5_SUFFIXES = (".h5", ".hdf5")
SUFFIX = ".npz"
IMAGE_HASH = "image_sha256"  # recorded among the settings of the features


@dataclass(frozen=True)
class Extraction:
    """Names of the images extracted now, of those that already had features, and why others were skipped."""

    done: list[str]
    kept: list[str]
    skipped: dict[str, str]
    keypoints: int


def find_images(places: Sequence[str | Path]) -> dict[str, Path]:
    """Images by name, sorted: a file is named by its file name, an image in a folder by its path relative to it."""
    found: dict[str, Path] = {}
    for place in map(Path, places):
        if place.is_dir():
            inside = [path for path in place.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()]
            named = {path.relative_to(place).as_posix(): path for path in sorted(inside)}
            if not named:
                raise FileError(f"{place}: contains no images ({', '.join(SUFFIXES)})")
        else:
            named = {place.name: place}  # opened later: one missing file must not stop the others
        twice = named.keys() & found.keys()
        if twice:
            raise ArgumentError(f"two images are called {min(twice)}: {found[min(twice)]} and {named[min(twice)]}")
        found |= named
    return dict(sorted(found.items()))


def extract_images(
    images: dict[str, Path],
    out: str | Path,
    describer: Describer,
    detector: Detector | None = None,
    *,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> Extraction:
    """Extract features of images, each file written atomically; an image that cannot be read is skipped and reported.

    Several images are worked on at the same time (see extract.for_each_image).

    When run again, images that have features with the same settings are kept, and images that have changed are
    extracted again. Features with other settings are refused. Features for an .h5 are collected in `<out>.parts` and
    written to the file at the end, all of them or none.

    Args:
        images: files by name (see find_images).
        out: a folder for `<name>.npz`, made if needed; or an hloc file, .h5, which may hold other images.
        describer: from open_describer.
        detector: how keypoints are found.
        say: called with a line for each skipped image.
        progress: called with the number of images done and their total.
    """
    out, detector = Path(out), detector or Detector()
    is_h5 = _check_target(out, images)
    folder = out.with_name(out.name + ".parts") if is_h5 else out
    job = _Job(out, folder, is_h5, describer, detector)
    job.settings()  # refuses weight files of the detector that cannot be used
    with exclusive(folder, f"{out}: another process is writing features to it"):
        for path in leftovers_of(out):
            path.unlink(missing_ok=True)
        if is_h5:
            _check_others(job, images)
        if is_h5 and out.exists():
            job.there.update({name: partial(read_features, out, name) for name in image_names(out)})
        report = Extraction([], [], {}, 0)
        progress(0, len(images))
        each = for_each_image(partial(_begin, job), partial(_end, job), list(images.items()), describer, detector)
        for number, (name, outcome) in enumerate(zip(images, each, strict=True), 1):
            if isinstance(outcome, FileError):
                report.skipped[name] = str(outcome)
                say(f"skipped {outcome}")
            else:
                (report.done if outcome.is_new else report.kept).append(name)
                report = replace(report, keypoints=report.keypoints + outcome.keypoints)
            progress(number, len(images))
        if is_h5:
            with stage("write"):
                _gather(folder, out)
    return report


@dataclass(frozen=True)
class _Job:
    out: Path
    folder: Path  # of the .npz files
    is_h5: bool
    describer: Describer
    detector: Detector
    there: dict[str, Callable[[], Features]] = field(default_factory=dict)  # features in the .h5 already

    def settings(self) -> dict[str, Any]:
        return dict(json.loads(json.dumps(recorded_settings(self.describer, self.detector))))


@dataclass(frozen=True)
class _Begun:
    """An image whose keypoints are detected, to be described and written."""

    target: Path
    settings: dict[str, Any]
    gray: np.ndarray
    found: Detection


@dataclass(frozen=True)
class _Extracted:
    """Features that are there now, and whether they were made in this run."""

    keypoints: int
    is_new: bool


def _check_target(out: Path, images: dict[str, Path]) -> bool:
    """Whether features go into an .h5; refuses a place that cannot be written before any work is done."""
    is_h5 = out.suffix.lower() in H5_SUFFIXES
    if not is_h5 and (out.is_file() or out.suffix.lower() == ".npz"):
        raise FileError(f"{out}: is a file, not a folder; features go into a folder or an .h5")
    if is_h5:
        check_output(out, *images.values())
        load_h5py()
        for name in images:
            inside = next((str(parent) for parent in PurePosixPath(name).parents if str(parent) in images), "")
            if inside:
                raise ArgumentError(
                    f"{out} cannot hold both {inside} and {name}: an image cannot be inside another image"
                )
    else:
        check_folder(out)
    return is_h5


def _check_name(name: str, is_h5: bool) -> None:
    """Refuse an image whose features cannot be written under its name; the caller skips it."""
    if len(os.fsencode(PurePosixPath(name).name)) + len(SUFFIX) > NAME_BYTES:
        raise FileError(f"{name}: the name is too long for a {SUFFIX} file; rename the image")
    if is_h5:
        try:
            check_name(name)
        except ArgumentError as error:
            raise FileError(f"{name!a}: {error}") from None


def _begin(job: _Job, image: tuple[str, Path]) -> _Begun | _Extracted | FileError:
    """Detect keypoints unless the features are there; an image that cannot be used is returned as its error."""
    name, path = image
    try:
        _check_name(name, job.is_h5)
        target = job.folder / f"{name}.npz"
        with stage("read"):
            settings = {**job.settings(), IMAGE_HASH: _hash(path)}
            known = _known(job, target) if target.is_file() else job.there[name]() if name in job.there else None
            if known is not None and _is_current(known, settings, job.describer.name, name, job.out):
                return _Extracted(len(known), is_new=False)
            gray = read_gray(path)
        return _Begun(target, settings, gray, detect_in(gray, job.describer, job.detector))
    except FileError as error:
        return error


def _end(job: _Job, begun: _Begun | _Extracted | FileError) -> _Extracted | FileError:
    """Describe the keypoints and write the features."""
    if not isinstance(begun, _Begun):
        return begun
    features = replace(describe_found(begun.gray, begun.found, job.describer, job.detector), settings=begun.settings)
    try:
        with stage("write"):
            save_features(features, begun.target)
    except FileError as error:
        return error
    return _Extracted(len(features), is_new=True)


def _known(job: _Job, target: Path) -> Features | None:
    try:
        return load_features(target)
    except FileError as error:
        if job.is_h5:
            return None  # a damaged part is extracted again
        raise FileError(f"{error}; remove it to extract it again") from None


def _hash(path: Path) -> str:
    if not path.is_file():  # reading a pipe might never end
        raise FileError(f"{path}: no such file")
    try:
        return file_hash(path)
    except OSError as error:
        raise FileError(f"{path}: {error.strerror}") from None


def _is_current(known: Features, wanted: dict[str, Any], model: str, name: str, out: Path) -> bool:
    """Whether features are up to date; refuses those made with other settings."""
    before = {"model": known.model, **known.settings}
    _check_same(before, {"model": model, **wanted}, name, out)
    return bool(before.get(IMAGE_HASH) == wanted[IMAGE_HASH])


def _check_same(before: dict[str, Any], now: dict[str, Any], name: str, out: Path) -> None:
    before, now = ({ENGINE: TORCH, **settings} for settings in (before, now))  # the only one there was
    for key in ["model", *sorted((before.keys() | now.keys()) - {IMAGE_HASH, THRESHOLD, RATIO, "model"})]:
        if before.get(key) != now.get(key):
            other = f"use --engine {before[ENGINE]}, " if key == ENGINE else ""
            raise ArgumentError(
                f"{out}: features of {name} were made with {key} {before.get(key)!r}, now {now.get(key)!r}; "
                f"{other}remove them or choose another place"
            )


def _check_others(job: _Job, images: dict[str, Path]) -> None:
    """Refuse an .h5 that holds features of another kind, in the file or left by an interrupted run."""
    found = recorded_facts(job.out) if job.out.exists() else {}
    for name, path in _parts(job.folder).items():
        if name not in images:
            left = _known(job, path)
            if left is None:
                path.unlink()
            else:
                found[name] = {"model": left.model, "settings": left.settings, "D": left.descriptors.shape[1]}
    for name, facts in found.items():
        if name not in images and "model" in facts:
            now = {"model": job.describer.name, **job.settings()}
            _check_same({"model": facts["model"], **facts["settings"]}, now, name, job.out)
        if facts["D"] != job.describer.D:  # all that is known about features of another program
            raise ArgumentError(
                f"{job.out}: features of {name} have {facts['D']} dimensions, those of {job.describer.name} "
                f"{job.describer.D}; choose another place"
            )


def _parts(folder: Path) -> dict[str, Path]:
    return {path.relative_to(folder).as_posix().removesuffix(".npz"): path for path in sorted(folder.rglob("*.npz"))}


def _gather(folder: Path, out: Path) -> None:
    """Write the parts into the .h5 and remove them."""
    parts = _parts(folder)
    if parts:
        write_features(out, ((name, load_features(path)) for name, path in sorted(parts.items())))
    shutil.rmtree(folder, ignore_errors=True)
