"""Reconstruct scenes from our features and matches with COLMAP, in three phases: features, matches, model."""

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel import __version__
from matchkernel.collection.choice import PairChoice, parse_choice
from matchkernel.collection.extract import extract_images
from matchkernel.collection.given_features import given_features, model_of_features, photo_of, settings_of_features
from matchkernel.collection.match import match_pairs
from matchkernel.collection.pairs import make_pairs
from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.collection.undistorted import UNDISTORTED, give_way, undistort_workspace
from matchkernel.colmap.converted import jpeg_name, name_in_model, photo_names
from matchkernel.colmap.georeference import write_gps
from matchkernel.colmap.installed import MAPPERS, Command, find_colmap
from matchkernel.colmap.picture import draw_model
from matchkernel.colmap.points import point_cloud, write_ply
from matchkernel.colmap.program import Colmap, MatchedPhotos, Models, model_folders, names_in
from matchkernel.colmap.text_files import check_image_name
from matchkernel.colmap.unregistered import Outcome, why_skipped
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.conventions import frames_to_colmap
from matchkernel.photos.context import matcher_digests
from matchkernel.photos.extract import Describer, Model, open_describer
from matchkernel.photos.features import load_features
from matchkernel.photos.files import (
    NPZ_SUFFIX,
    FeatureFiles,
    Pair,
    check_matches,
    check_pair_names,
    read_matches_of,
    read_pairs,
    write_pairs,
)
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.runtime.config import AUTO, photo_model
from matchkernel.storage.files import LONG_TEXT, file_hash, key_of, link_or_copy, read_small_text, resolved, write_json
from matchkernel.storage.folders import Build, begun_with, recover, resumable_build
from matchkernel.storage.images import open_image, write_png
from matchkernel.storage.photo_folders import MASKED, Photos, check_masks, first_names, mask_of, photo_digest, photos_in
from matchkernel.storage.pool import Workers
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.work import Progress, Say

SUMMARY, PHOTOS, MATCHES, GPS = "summary.json", "photos.json", "matches.h5", "gps.txt"
# What a run writes into a workspace, earlier versions too, and another run replaces; what else is there is the user's.
WRITTEN = (
    *("database.db", "database.db-journal", "database.db-shm", "database.db-wal", "sparse", "models", UNDISTORTED),
    *("features", "pairs.txt", MATCHES, "photos", PHOTOS, SUMMARY, GPS, "points.ply", "model.png", "images.txt"),
    *("feature_importer.log", "matches_importer.log", *(f"{stage}.log" for stage in MAPPERS.values())),
    *("keypoints", "matches.txt", "model_analyzer.log"),  # of version 0.1
)


@dataclass(frozen=True)
class Summary:
    """The result of a reconstruction."""

    images: int  # given
    registered: int  # images with a pose in the largest model
    points: int  # in that model
    observations: int  # of these points in images
    track_length: float  # mean number of images in which a point is seen
    error: float  # mean reprojection error in pixels
    # Images that could not be used, and pairs ("a b") that could not be matched, each with the reason.
    skipped: dict[str, str] = field(default_factory=dict)
    pairs: int = 0  # that were matched
    models: list[int] = field(default_factory=list)  # images of each model, the largest (`sparse`) first, then `models`
    ignored: dict[str, int] = field(default_factory=dict)  # number of files that are no photos, by kind
    unregistered: list[str] = field(default_factory=list)  # images that were used and are in no model
    refused: list[str] = field(default_factory=list)  # images that COLMAP did not take in
    reasons: dict[str, str] = field(default_factory=dict)  # why each image is in no model, and what to try


def reconstruct(
    images: str | Path,
    workspace: str | Path,
    model: Model | None = None,
    settings: ReconstructSettings | None = None,
    *,
    only: Sequence[str] = (),
    listed: str | Path | None = None,
    features: str | Path | None = None,
    given: Collection[str] = (),
    masks: str | Path | None = None,
    engine: str = "auto",
    undistort: bool = False,
    workers: Workers | None = None,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> Summary:
    """Extract and match features, write them into COLMAP's database, where COLMAP verifies them, and run its mapper.

    The workspace holds `database.db`, `sparse/` (the model with the most images), `models/` (further ones), the
    features, `pairs.txt`, `matches.h5` (hloc's layout), COLMAP's logs, `points.ply` and `model.png` to look at, and
    `summary.json`. It appears when everything is
    done; until then the work is in `<workspace>.part`, where an interrupted run resumes. An image that cannot be read
    is skipped and reported.

    A finished workspace takes in photos that were added, changed or removed since, and other pairs: features and
    matches that are there are not computed again, COLMAP's stages are. What was skipped is tried again; if that is all
    and fails again, the workspace stays as it was. Other settings are refused. An interrupted run resumes with other
    photos and pairs in the same way; with other settings it begins again. Files and folders that the user has put into
    the workspace stay; what was written of the old model does not.

    Args:
        images: folder of images, of one scene or of several.
        workspace: folder to create.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift" (default: that of
            `features`, or "small-wide"; "light-wide" if an earlier version, whose default it was, began the workspace).
        settings: how to reconstruct (default: ReconstructSettings()).
        only: patterns, of which a name must match one (see photo_folders.photos_in).
        listed: file of the names to take.
        features: folder of features that were extracted before; settings of the detector and of the storage that are
            left at their defaults are those of these features.
        given: names of settings that are not those of the features, even if they have their defaults: `keypoints`.
        masks: folder of `<name>.png`, in COLMAP's way: no keypoints where it is 0; an image may have none.
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        undistort: also write `<workspace>/undistorted`, which trainers of Gaussian splats read: photos without
            distortion in `images/`, the largest model with pinhole cameras in `sparse/0/`.
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
        _usual_describer(Path(workspace), features, engine) if model is None else open_describer(model, engine=engine),
        settings_of_features(features, settings or ReconstructSettings(), say, given),
        None if masks is None else Path(masks),
        workers,
        say,
        progress or (lambda done, total: None),
    )
    photos, choice = _checked(job, only, listed)
    program = find_colmap(job.settings.mapper, job.settings.camera_model)  # after all mistakes in the arguments
    summary = _reconstruct(job, photos, choice, features, program)
    if undistort:
        undistort_workspace(job.images, job.workspace, program, say, job.progress)
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
        if self.settings.filter.kind == "context":
            settings["context"] = matcher_digests(self.settings.filter.weights)
        facts = {"model": self.describer.name, **self.describer.settings, **settings}
        return dict(json.loads(json.dumps(facts)))


def _reconstruct(
    job: _Job, photos: Photos, choice: PairChoice, features: str | Path | None, program: Command
) -> Summary:
    if photos.ignored:
        job.say(photos.what_was_ignored())
    digests, skipped = _digests(photos.paths, job.masks, job.say)
    inputs = {"photos": digests, "pairs": [choice.text, *(file_hash(path) for path in choice.files)]}
    recover(job.workspace)
    finished = _read_finished(job.workspace)
    job = _continuing(job, begun_with(job.workspace) if finished is None else finished.settings)
    if finished is not None:
        finished.check(job)
    if finished is not None and finished.is_made_from(inputs, skipped):
        return finished.unchanged(job)
    reused = given_features(features, job.describer, job.settings, digests, job.masks, job.say)
    with resumable_build(job.workspace, job.recorded, replaces=() if finished is None else WRITTEN) as build:
        _reuse(job, build.folder, digests, finished, reused)
        skipped |= _extract(job, build.folder, digests)
        pairs, unmatched = _match(job, build.folder, choice, [name for name in digests if name not in skipped], skipped)
        skipped |= unmatched
        if finished is not None and finished.is_made_from(inputs, skipped):
            build.is_discarded = True  # what was skipped then has failed again
            return finished.unchanged(job)
        used = {name: digest for name, digest in digests.items() if name not in skipped}
        models = _map(job, build, program, used, pairs)
        unregistered = sorted(used.keys() - set(models.refused).union(*models.names))
        summary = Summary(
            len(photos.paths),
            skipped=skipped,
            pairs=sum(not set(pair) & set(models.refused) for pair in pairs),
            models=[len(names) for names in models.names],
            ignored=photos.ignored,
            unregistered=unregistered,
            refused=models.refused,
            reasons=_reasons(job, build.folder, photos.paths, skipped, models.refused, unregistered),
            **models.facts,
        )
        record = {**dataclasses.asdict(summary), "inputs": inputs, "settings": job.recorded}
        write_json(build.folder / SUMMARY, record)
        write_json(build.folder / PHOTOS, digests)
        _say_position(job, build.folder, models.names[0])
        write_ply(build.folder / "points.ply", *point_cloud(build.folder / "sparse"))
        write_png(build.folder / "model.png", draw_model(build.folder / "sparse"))
        give_way(job.workspace, job.say)
    return summary


def _checked(job: _Job, only: Sequence[str], listed: str | Path | None) -> tuple[Photos, PairChoice]:
    """The photos of the folder and the choice of pairs; arguments and names that cannot work are refused."""
    job.settings.filter.check_recorded(job.describer.name, job.describer.settings)
    if resolved(job.workspace).is_relative_to(resolved(job.images)):
        raise ArgumentError(f"{job.workspace}: is inside the input {job.images}; choose another place")
    if any(resolved(job.images).is_relative_to(resolved(job.workspace) / name) for name in WRITTEN):
        raise ArgumentError(f"{job.images}: is replaced with the workspace {job.workspace}; move the photos elsewhere")
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
    settings: dict[str, Any]
    inputs: dict[str, Any]
    summary: dict[str, Any]

    @property
    def skipped(self) -> dict[str, str]:
        return dict(self.summary["skipped"])

    def check(self, job: _Job) -> None:
        """Refuse to replace a workspace that was made in another way."""
        if differences := describe_differences(self.settings, job.recorded):
            raise FileError(f"{self.folder}: already exists, {differences}; remove it or choose another place")
        if job.masks is None and any(MASKED in digest for digest in self.inputs["photos"].values()):
            raise FileError(f"{self.folder}: already exists, made with masks; give --masks, or choose another place")

    @cached_property
    def in_models(self) -> list[str]:
        """Names of the images in all models."""
        return [name for model in model_folders(self.folder) for name in names_in(model)]

    @property
    def damage(self) -> str | None:
        """Why its models cannot be read, or None."""
        try:
            return None if self.in_models else f"{self.folder / 'sparse'}: has no images"
        except FileError as error:
            return str(error)

    def is_made_from(self, inputs: dict[str, Any], skipped: Mapping[str, str]) -> bool:
        return self.inputs == inputs and self.skipped.keys() == skipped.keys() and self.damage is None

    def unchanged(self, job: _Job) -> Summary:
        """The summary, with a line that says why nothing was done."""
        photos = self.inputs["photos"]
        if self.skipped:
            job.say(f"{self.folder}: stays as it was; what was skipped then ({len(self.skipped)}) still cannot be used")
        else:
            job.say(f"{self.folder}: all {len(photos)} photos are in it already")
        used = photos.keys() - self.skipped.keys() - set(self.summary.get("refused", ()))
        registered = photo_names(self.in_models, used)
        unregistered = sorted(used.difference(registered.values()))  # earlier summaries lack this, or the reasons
        reasons = self.summary.get("reasons") or _reasons(
            job, self.folder, photos, self.skipped, self.summary.get("refused", ()), unregistered
        )
        return Summary(**{**self.summary, "unregistered": unregistered, "reasons": reasons})


def model_of_workspace(workspace: Path) -> str:
    """Name of the model that a workspace was made or begun with; empty if there is none."""
    recover(workspace)
    with suppress(FileError):  # not ours: said before anything is written
        finished = _read_finished(workspace)
        return str((begun_with(workspace) if finished is None else finished.settings).get("model", ""))
    return ""


def _usual_describer(workspace: Path, features: str | Path | None, engine: str) -> Describer:
    """What describes photos if no model is given: what made the features, or the default."""
    made_by = {} if features is None else model_of_features(Path(features))
    name = made_by.get("model") or photo_model(model_of_workspace(workspace))
    return open_describer(name, engine=made_by.get("engine", AUTO) if engine == AUTO else engine)


def _continuing(job: _Job, before: Mapping[str, Any]) -> _Job:
    """The job with the detector that a workspace was begun with, perhaps by an earlier version."""
    recorded = before.get("detector")
    if not isinstance(recorded, dict):
        return job
    detector = job.settings.detector.continuing(recorded)
    return replace(job, settings=replace(job.settings, detector=detector))


def _read_finished(folder: Path) -> _Finished | None:
    """What a workspace records; None if there is none. One that is not ours is refused."""
    if not folder.exists():
        return None
    try:
        facts = dict(json.loads(read_small_text(folder / SUMMARY, LONG_TEXT, what="a summary")))
        settings, inputs = dict(facts.pop("settings")), dict(facts.pop("inputs"))
        dict(inputs["photos"]), dict(facts["skipped"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise FileError(f"{folder}: already exists; remove it or choose another place") from None
    return _Finished(folder, settings, inputs, facts)


def _reuse(
    job: _Job, folder: Path, digests: dict[str, str], finished: _Finished | None, given: dict[str, Path]
) -> None:
    """Keep features of unchanged photos: of an interrupted run, of the finished workspace, and of the user's folder."""
    features = folder / "features"
    for path in sorted(features.rglob(f"*{NPZ_SUFFIX}")):
        name = path.relative_to(features).as_posix().removesuffix(NPZ_SUFFIX)
        if name not in digests or photo_of(path) != digests[name] or _damage(path):
            for made in (name, jpeg_name(name)):
                (folder / "photos" / made).unlink(missing_ok=True)
            path.unlink(missing_ok=True)  # last: its presence shows that something may have to be removed
    if _damage(folder / MATCHES):
        (folder / MATCHES).unlink()
    if finished is not None:
        _reuse_finished(job, folder, digests, finished)
    for name, path in given.items():
        link_or_copy(path, features / f"{name}{NPZ_SUFFIX}")


def _reuse_finished(job: _Job, folder: Path, digests: dict[str, str], finished: _Finished) -> None:
    """Take features and matches of a finished workspace, unless they are damaged, and say what is new."""
    features, before = folder / "features", finished.inputs["photos"]
    same = [name for name in digests if before.get(name) == digests[name]]
    gone = len(before.keys() - digests.keys())
    if finished.damage:
        job.say(f"made again: {finished.damage}")
    job.say(f"taking in {len(digests) - len(same)} new or changed photos, {len(same)} are known, {gone} are gone")
    if again := [what for what in finished.skipped if what in digests or _is_pair(what, digests)]:
        job.say(f"trying again what was skipped ({len(again)})")
    kept = {finished.folder / "features" / f"{name}{NPZ_SUFFIX}": features / f"{name}{NPZ_SUFFIX}" for name in same}
    for source, target in {**kept, finished.folder / MATCHES: folder / MATCHES}.items():
        if (damage := _damage(source)) is None:
            link_or_copy(source, target)
        else:
            job.say(f"made again: {damage}")


def _damage(path: Path) -> str | None:
    """Why the features or matches of a workspace cannot be read; None if they can, or are not there."""
    try:
        if path.exists():
            check_matches(path) if path.name == MATCHES else load_features(path)
    except FileError as error:
        return str(error)
    return None


def _is_pair(text: str, names: Collection[str]) -> bool:
    """True if a text is two of these names with a space between them; each may have spaces itself."""
    parts = text.split(" ")
    return any(" ".join(parts[:k]) in names and " ".join(parts[k:]) in names for k in range(1, len(parts)))


def _reasons(
    job: _Job,
    folder: Path,
    photos: Collection[str],
    skipped: Mapping[str, str],
    refused: Iterable[str],
    unregistered: Iterable[str],
) -> dict[str, str]:
    """A sentence for each photo that is in no model."""
    masked = [name for name in photos if mask_of(name, job.masks)]
    tried = [pair for pair in read_pairs(folder / "pairs.txt") if not skipped.keys() & {*pair, " ".join(pair)}]
    models = model_folders(folder)
    outcome = Outcome(folder / "database.db", models, tried, partial(_matches, folder / MATCHES), photos, masked)
    reasons = {
        name: why_skipped(reason.removeprefix(f"{job.images / name}: "))
        for name, reason in skipped.items()
        if name in photos  # not a pair
    }
    reasons |= dict.fromkeys(refused, "COLMAP cannot read it; save it as JPEG")
    return dict(sorted((reasons | {name: outcome.why(name) for name in unregistered}).items()))


def _say_position(job: _Job, folder: Path, names: Iterable[str]) -> None:
    """Write the GPS positions of the photos of a model, and say how to use them."""
    in_model = names_in(folder / "sparse")
    named = {name: name_in_model(name, in_model) for name in sorted(names)}
    if count := write_gps(folder / GPS, ((new, job.images / name) for name, new in named.items())):
        job.say(f"{count} photos say where they were taken: {GPS} is what colmap model_aligner reads (docs/splats.md)")


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
    """Second phase: match the pairs that are not in matches.h5 yet; returns those matched, and what was skipped."""
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


def _matches(file: Path, of: Sequence[Pair]) -> Iterator[tuple[str, str, np.ndarray]]:
    return ((*found.names, found.indices) for found in read_matches_of(file, of))


def _map(job: _Job, build: Build, program: Command, photos: dict[str, str], pairs: list[Pair]) -> Models:
    """Third phase: COLMAP verifies the matches, unless an interrupted run has done that, and makes models."""
    settings, magnification = job.settings, job.settings.detector.magnification
    cameras: dict[str, object] = {"single_camera": int(settings.single_camera), "camera_model": settings.camera_model}
    cameras |= {} if settings.camera_params is None else {"camera_params": settings.camera_params}

    def keypoints(name: str) -> np.ndarray:
        return frames_to_colmap(load_features(build.folder / "features" / f"{name}{NPZ_SUFFIX}").frames, magnification)

    key = key_of(__version__, photos, pairs)
    matched = MatchedPhotos(
        job.images, list(photos), pairs, keypoints, partial(_matches, build.folder / MATCHES), cameras, key
    )
    return Colmap(build, job.progress, program).reconstruct(matched, settings.mapper, job.say)
