"""Reconstruct scenes from our features and matches with COLMAP, in three phases: features, matches, model."""

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel import __version__
from matchkernel.collection.choice import PairChoice, parse_choice
from matchkernel.collection.extract import extract_images
from matchkernel.collection.match import match_pairs
from matchkernel.collection.pairs import make_pairs
from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.colmap.installed import find_colmap
from matchkernel.colmap.program import Colmap, MatchedPhotos, Models, model_folders, names_in
from matchkernel.colmap.text_files import check_image_name
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.conventions import frames_to_colmap
from matchkernel.photos.extract import Describer, Model, feature_facts, open_describer
from matchkernel.photos.features import IMAGE_HASH, check_same_settings, load_features, read_facts
from matchkernel.photos.files import (
    NPZ_SUFFIX,
    FeatureFiles,
    Pair,
    check_pair_names,
    read_matches_of,
    read_pairs,
    write_pairs,
)
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.storage.files import LONG_TEXT, file_hash, key_of, link_or_copy, read_small_text, resolved, write_json
from matchkernel.storage.folders import Build, recover, resumable_build
from matchkernel.storage.images import open_image
from matchkernel.storage.photo_folders import Photos, check_masks, first_names, mask_of, photo_digest, photos_in
from matchkernel.storage.pool import Workers
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.work import Progress, Say

SUMMARY, PHOTOS, MATCHES = "summary.json", "photos.json", "matches.h5"


@dataclass(frozen=True)
class Summary:
    """The result of a reconstruction.

    Attributes:
        images: number of images given.
        registered: number of images with a pose in the largest model.
        points: number of points in that model.
        observations: number of observations of these points in images.
        track_length: mean number of images in which a point is seen.
        error: mean reprojection error in pixels.
        skipped: images that could not be used, and pairs ("a b") that could not be matched, each with the reason.
        pairs: number of pairs of images that were matched.
        models: number of images of every model, the largest (in `sparse`) first, then those in `models`.
        ignored: number of files that are no photos, by kind.
        unregistered: images that were used and are in no model.
        refused: images that COLMAP did not take in.
    """

    images: int
    registered: int
    points: int
    observations: int
    track_length: float
    error: float
    skipped: dict[str, str] = field(default_factory=dict)
    pairs: int = 0
    models: list[int] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    unregistered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def reconstruct(
    images: str | Path,
    workspace: str | Path,
    model: Model = "light-wide",
    settings: ReconstructSettings | None = None,
    *,
    only: Sequence[str] = (),
    listed: str | Path | None = None,
    features: str | Path | None = None,
    masks: str | Path | None = None,
    engine: str = "auto",
    workers: Workers | None = None,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> Summary:
    """Extract and match features, write them into COLMAP's database, where COLMAP verifies them, and run its mapper.

    The workspace holds `database.db`, `sparse/` (the model with the most images), `models/` (further ones), the
    features, `pairs.txt`, `matches.h5` (hloc's layout), COLMAP's logs and `summary.json`. It appears when everything is
    done; until then the work is in `<workspace>.part`, where an interrupted run resumes. An image that cannot be read
    is skipped and reported.

    A finished workspace takes in photos that were added, changed or removed since, and other pairs: features and
    matches that are there are not computed again, COLMAP's stages are. What was skipped is tried again; if that is all
    and fails again, the workspace stays as it was. Other settings are refused. An interrupted run resumes with other
    photos and pairs in the same way; with other settings it begins again.

    Args:
        images: folder of images, of one scene or of several.
        workspace: folder to create.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        settings: how to reconstruct (default: ReconstructSettings()).
        only: patterns, of which a name must match one (see photo_folders.photos_in).
        listed: file of the names to take.
        features: folder of features that were extracted before, with the same settings.
        masks: folder of `<name>.png`, in COLMAP's way: no keypoints where it is 0; an image may have none.
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        workers: who extracts and matches (default: this process).
        say: called with a line for each stage.
        progress: called with the number done and the total.

    Example (needs COLMAP):
        >>> from matchkernel.collection.reconstruct import reconstruct
        >>> reconstruct("photos", "workspace", "tiny").registered  # doctest: +SKIP
        24
    """
    job = _Job(
        Path(images),
        Path(workspace),
        open_describer(model, engine=engine),
        settings or ReconstructSettings(),
        None if masks is None else Path(masks),
        workers,
        say,
        progress or (lambda done, total: None),
    )
    photos, choice = _checked(job, only, listed, features)
    program = find_colmap(job.settings.mapper, job.settings.camera_model)  # after all mistakes in the arguments
    if photos.ignored:
        say(photos.what_was_ignored())
    digests, skipped = _digests(photos.paths, job.masks, say)
    inputs = {"photos": digests, "pairs": [choice.text, *(file_hash(path) for path in choice.files)]}
    recover(job.workspace)
    finished = _read_finished(job.workspace, job.recorded)
    if finished is not None and finished.is_made_from(inputs, skipped):
        return finished.unchanged(say)
    given = _given_features(job, features, digests)
    with resumable_build(workspace, job.recorded, replaces=finished is not None) as build:
        _reuse(job, build.folder, digests, finished, given)
        skipped |= _extract(job, build.folder, digests)
        pairs, unmatched = _match(job, build.folder, choice, [name for name in digests if name not in skipped], skipped)
        skipped |= unmatched
        if finished is not None and finished.is_made_from(inputs, skipped):
            build.is_discarded = True  # what was skipped then has failed again
            return finished.unchanged(say)
        used = {name: digest for name, digest in digests.items() if name not in skipped}
        models = _map(job, build, program, used, pairs)
        summary = Summary(
            len(photos.paths),
            skipped=skipped,
            pairs=sum(not set(pair) & set(models.refused) for pair in pairs),
            models=[len(names) for names in models.names],
            ignored=photos.ignored,
            unregistered=sorted(used.keys() - set(models.refused).union(*models.names)),
            refused=models.refused,
            **models.facts,
        )
        record = {**dataclasses.asdict(summary), "inputs": inputs, "settings": job.recorded}
        write_json(build.folder / SUMMARY, record)
        write_json(build.folder / PHOTOS, digests)
    return summary


@dataclass(frozen=True)
class _Job:
    images: Path
    workspace: Path
    describer: Describer
    settings: ReconstructSettings
    masks: Path | None
    workers: Workers | None
    say: Say
    progress: Progress

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """What determines the result, apart from photos and pairs, as JSON values."""
        settings = {name: value for name, value in dataclasses.asdict(self.settings).items() if name != "pairs"}
        settings |= {"detector": self.settings.detector.settings(), "filter": str(self.settings.filter)}
        facts = {"model": self.describer.name, **self.describer.settings, **settings}
        return dict(json.loads(json.dumps(facts)))


def _checked(
    job: _Job, only: Sequence[str], listed: str | Path | None, features: str | Path | None
) -> tuple[Photos, PairChoice]:
    """The photos of the folder and the choice of pairs; arguments and names that cannot work are refused."""
    job.settings.filter.check_recorded(job.describer.settings)
    if features is not None and not Path(features).is_dir():
        reason = "is not a folder" if Path(features).exists() else "no such folder"
        raise FileError(f"{features}: {reason}; features are taken from a folder that `matchkernel extract` wrote")
    if resolved(job.workspace).is_relative_to(resolved(job.images)):
        raise ArgumentError(f"{job.workspace}: is inside the input {job.images}; choose another place")
    photos = photos_in(job.images, only=only, listed=listed, without=job.masks)
    if len(photos.paths) < 2:
        raise FileError(f"{job.images}: contains {len(photos.paths)} images, at least two are needed")
    for name in photos.paths:
        check_image_name(name)
    check_pair_names(photos.paths)
    choice = parse_choice(job.settings.pairs, len(photos.paths))
    for path in choice.files:
        read_pairs(path, photos.paths)
    if job.settings.single_camera:
        _check_one_size(photos.paths)
    check_masks(job.masks, photos.paths)
    return photos, choice


def _check_one_size(photos: dict[str, Path]) -> None:
    """Refuse photos of several sizes for a single camera: COLMAP would leave out all but those like the first."""
    sizes = {}
    for name, path in photos.items():
        with suppress(FileError), open_image(path) as image:  # what cannot be read is skipped later
            sizes[name] = f"{image.width} x {image.height}"
    ((usual, count), *others) = Counter(sizes.values()).most_common() or [("", 0)]
    if others:
        odd = [name for name, size in sizes.items() if size != usual]
        raise ArgumentError(
            f"a single camera has photos of one size: {count} of {len(sizes)} have {usual} pixels, not"
            f" {first_names(odd)} ({sizes[odd[0]]}); leave out --single-camera, or these photos by --list"
        )


def _digests(paths: dict[str, Path], masks: Path | None, say: Say) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the photos by name; and the photos that cannot be read, with the reason."""
    found, unreadable = {}, {}
    for name, path in paths.items():
        try:
            found[name] = photo_digest(path, mask_of(name, masks))
        except FileError as error:
            unreadable[name] = str(error)
            say(f"skipped {error}")
    return found, unreadable


@dataclass(frozen=True)
class _Finished:
    """A finished workspace: what it was made from, and what came out."""

    folder: Path
    inputs: dict[str, Any]
    summary: dict[str, Any]

    @property
    def skipped(self) -> dict[str, str]:
        return dict(self.summary["skipped"])

    def is_made_from(self, inputs: dict[str, Any], skipped: Mapping[str, str]) -> bool:
        return self.inputs == inputs and self.skipped.keys() == skipped.keys()

    def unchanged(self, say: Say) -> Summary:
        """The summary, with a line that says why nothing was done."""
        photos = self.inputs["photos"]
        if self.skipped:
            say(f"{self.folder}: stays as it was; what was skipped then ({len(self.skipped)}) still cannot be used")
        else:
            say(f"{self.folder}: all {len(photos)} photos are in it already")
        used = photos.keys() - self.skipped.keys() - set(self.summary.get("refused", ()))
        registered = (name for model in model_folders(self.folder) for name in names_in(model))
        unregistered = sorted(used.difference(registered))  # a summary of earlier versions lacks it
        return Summary(**{**self.summary, "unregistered": unregistered})


def _read_finished(folder: Path, settings: Mapping[str, Any]) -> _Finished | None:
    """What a workspace records; None if there is none. One made with other settings, or not by us, is refused."""
    if not folder.exists():
        return None
    try:
        facts = dict(json.loads(read_small_text(folder / SUMMARY, LONG_TEXT, what="a summary")))
        before, inputs = dict(facts.pop("settings")), dict(facts.pop("inputs"))
        dict(inputs["photos"]), dict(facts["skipped"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise FileError(f"{folder}: already exists; remove it or choose another place") from None
    if differences := describe_differences(before, settings):
        raise FileError(f"{folder}: already exists, {differences}; remove it or choose another place")
    return _Finished(folder, inputs, facts)


def _given_features(job: _Job, folder: str | Path | None, digests: dict[str, str]) -> dict[str, Path]:
    """The features that the user's folder has of these photos; features made with other settings are refused."""
    if folder is None:
        return {}
    folder, facts = Path(folder), feature_facts(job.describer, job.settings.detector, job.settings.store)
    paths = {name: folder / f"{name}{NPZ_SUFFIX}" for name in digests}
    found = {name: path for name, path in paths.items() if _photo_of(path) == digests[name]}
    for name, path in found.items():
        check_same_settings(*read_facts(path), facts, name, folder, advice="give the same settings here")
    job.say(f"taking features of {len(found)} of {len(digests)} photos from {folder}")
    return found


def _reuse(
    job: _Job, folder: Path, digests: dict[str, str], finished: _Finished | None, given: dict[str, Path]
) -> None:
    """Keep features of unchanged photos: of an interrupted run, of the finished workspace, and of the user's folder."""
    features = folder / "features"
    for path in sorted(features.rglob(f"*{NPZ_SUFFIX}")):
        name = path.relative_to(features).as_posix().removesuffix(NPZ_SUFFIX)
        if name not in digests or _photo_of(path) != digests[name]:
            (folder / "photos" / name).unlink(missing_ok=True)
            path.unlink(missing_ok=True)  # last: its presence shows that something may have to be removed
    if finished is not None:
        before = finished.inputs["photos"]
        same = [name for name in digests if before.get(name) == digests[name]]
        gone = len(before.keys() - digests.keys())
        job.say(f"taking in {len(digests) - len(same)} new or changed photos, {len(same)} are known, {gone} are gone")
        if again := [what for what in finished.skipped if what in digests or _is_pair(what, digests)]:
            job.say(f"trying again what was skipped ({len(again)})")
        for name in same:
            link_or_copy(finished.folder / "features" / f"{name}{NPZ_SUFFIX}", features / f"{name}{NPZ_SUFFIX}")
        link_or_copy(finished.folder / MATCHES, folder / MATCHES)
    for name, path in given.items():
        link_or_copy(path, features / f"{name}{NPZ_SUFFIX}")


def _photo_of(features: Path) -> str | None:
    """The digest of the photo that features were made from; None if they cannot be read or do not record it."""
    try:
        return read_facts(features)[1].get(IMAGE_HASH)
    except FileError:
        return None


def _is_pair(text: str, names: Collection[str]) -> bool:
    """True if a text is two of these names with a space between them; each may have spaces itself."""
    parts = text.split(" ")
    return any(" ".join(parts[:k]) in names and " ".join(parts[k:]) in names for k in range(1, len(parts)))


def _extract(job: _Job, folder: Path, digests: dict[str, str]) -> dict[str, str]:
    """First phase: features of the photos that have none yet; returns the photos that cannot be used, and why."""
    features = folder / "features"
    known = sum((features / f"{name}{NPZ_SUFFIX}").exists() for name in digests)
    count = f"{len(digests) - known} of {len(digests)} images" if known else f"{len(digests)} images"
    job.say(f"extracting {job.describer.label} features ({count})")
    report = extract_images(
        {name: job.images / name for name in digests},
        features,
        job.describer,
        job.settings.detector,
        store=job.settings.store,
        masks=job.masks,
        workers=job.workers,
        say=job.say,
        progress=job.progress,
    )
    if len(digests) - len(report.skipped) < 2:
        reason = next(iter(report.skipped.values()), "")
        raise FileError(f"{job.images}: only {len(digests) - len(report.skipped)} images can be read: {reason}")
    return report.skipped


def _match(
    job: _Job, folder: Path, choice: PairChoice, names: list[str], skipped: dict[str, str]
) -> tuple[list[Pair], dict[str, str]]:
    """Second phase: choose the pairs and match those that are not in matches.h5 yet.

    Returns:
        The pairs that were matched; and what was skipped, see MatchedPairs.
    """
    files = FeatureFiles(folder / "features", names)
    pairs = make_pairs(names, choice, files, unusable=skipped, say=job.say, progress=job.progress)
    if not pairs:
        raise FileError(f"{choice.text}: leaves no pair of photos that can be read")
    write_pairs(folder / "pairs.txt", pairs)
    job.say(f"matching {len(pairs)} pairs")
    report = match_pairs(
        folder / "features",
        pairs,
        [folder / MATCHES],
        MatchSettings(filter=job.settings.filter, geometry="none"),
        device=str(job.describer.device),
        workers=job.workers,
        say=job.say,
        progress=job.progress,
    )
    return [pair for pair in pairs if not report.skipped.keys() & {*pair, " ".join(pair)}], report.skipped


def _map(job: _Job, build: Build, program: str, photos: dict[str, str], pairs: list[Pair]) -> Models:
    """Third phase: COLMAP verifies the matches, unless an interrupted run has done that, and makes models."""
    settings, magnification = job.settings, job.settings.detector.magnification
    cameras: dict[str, object] = {"single_camera": int(settings.single_camera), "camera_model": settings.camera_model}
    cameras |= {} if settings.camera_params is None else {"camera_params": settings.camera_params}

    def keypoints(name: str) -> np.ndarray:
        return frames_to_colmap(load_features(build.folder / "features" / f"{name}{NPZ_SUFFIX}").frames, magnification)

    def matches(of: Sequence[Pair]) -> Iterator[tuple[str, str, np.ndarray]]:
        return ((*found.names, found.indices) for found in read_matches_of(build.folder / MATCHES, of))

    key = key_of(__version__, photos, pairs)
    matched = MatchedPhotos(job.images, list(photos), pairs, keypoints, matches, cameras, key)
    return Colmap(build, job.progress, program).reconstruct(matched, settings.mapper, job.say)
