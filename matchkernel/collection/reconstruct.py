"""Reconstruct scenes from our features and matches with COLMAP, in three phases: features, matches, model."""

import dataclasses
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel import __version__
from matchkernel.collection.choice import PairChoice, parse_choice
from matchkernel.collection.extract import extract_images
from matchkernel.collection.given_features import given_features, model_of_features, settings_of_features
from matchkernel.collection.match import CONTEXT, match_pairs
from matchkernel.collection.pairs import make_pairs
from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.collection.undistorted import UNDISTORTED, give_way, undistort_workspace
from matchkernel.collection.workspace import (
    GPS,
    MATCHES,
    PHOTOS,
    SUMMARY,
    WRITTEN,
    Summary,
    matches_of,
    model_of_workspace,
    read_finished,
    reuse,
    why_in_no_model,
)
from matchkernel.colmap.converted import name_in_model
from matchkernel.colmap.georeference import write_gps
from matchkernel.colmap.installed import Command, find_colmap
from matchkernel.colmap.picture import draw_model
from matchkernel.colmap.points import point_cloud, write_ply
from matchkernel.colmap.program import Colmap, MatchedPhotos, Models, names_in
from matchkernel.colmap.text_files import check_image_name
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.conventions import frames_to_colmap
from matchkernel.photos.context import matcher_digests
from matchkernel.photos.extract import Describer, Model, open_describer
from matchkernel.photos.feature_files import NPZ_SUFFIX, FeatureFiles
from matchkernel.photos.features import load_features
from matchkernel.photos.match_files import check_pair_names
from matchkernel.photos.pair_lists import Pair, read_pairs, write_pairs
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.runtime.config import AUTO, photo_model
from matchkernel.storage.files import file_hash, key_of, remove_leftovers_of, resolved, write_json
from matchkernel.storage.folders import Build, begun_with, recover, resumable_build
from matchkernel.storage.images import open_image, write_png
from matchkernel.storage.photo_folders import Photos, check_masks, first_names, mask_of, photo_digest, photos_in
from matchkernel.storage.pool import Workers
from matchkernel.storage.work import Progress, Say


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
    context_before: object = None  # what the workspace recorded of its matcher

    @cached_property
    def recorded(self) -> dict[str, Any]:
        """What determines the result, apart from photos and pairs, as JSON values."""
        settings = {name: value for name, value in dataclasses.asdict(self.settings).items() if name != "pairs"}
        detector = self.settings.detector.settings(self.describer.device)
        settings |= {"detector": detector, "filter": str(self.settings.filter)}
        model = self.describer.name, self.describer.settings
        if self.settings.filter.kind == "context":
            settings[CONTEXT] = matcher_digests(self.settings.filter.weights, *model, self.context_before)
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
    finished = read_finished(job.workspace)
    job = _continuing(job, begun_with(job.workspace) if finished is None else finished.settings)
    if finished is not None:
        finished.check(job.recorded, job.masks)
    if finished is not None and finished.is_made_from(inputs, skipped):
        return finished.unchanged(job.images, job.masks, job.say)
    reused = given_features(features, job.describer, job.settings, digests, job.masks, job.say)
    with resumable_build(job.workspace, job.recorded, replaces=() if finished is None else finished.written) as build:
        remove_leftovers_of(job.workspace / UNDISTORTED)
        reuse(build.folder, digests, finished, reused, job.say)
        skipped |= _extract(job, build.folder, digests)
        pairs, unmatched = _match(job, build.folder, choice, [name for name in digests if name not in skipped], skipped)
        skipped |= unmatched
        if finished is not None and finished.is_made_from(inputs, skipped):
            build.is_discarded = True  # what was skipped then has failed again
            return finished.unchanged(job.images, job.masks, job.say)
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
            reasons=why_in_no_model(
                build.folder, job.images, job.masks, photos.paths, skipped, models.refused, unregistered
            ),
            **models.facts,
        )
        write_json(build.folder / PHOTOS, digests)
        _say_position(job, build.folder, models.names[0])
        write_ply(build.folder / "points.ply", *point_cloud(build.folder / "sparse"))
        write_png(build.folder / "model.png", draw_model(build.folder / "sparse"))
        made = sorted(WRITTEN.intersection(path.name for path in build.folder.iterdir()) | {SUMMARY})
        record = {**dataclasses.asdict(summary), "inputs": inputs, "settings": job.recorded, "written": made}
        write_json(build.folder / SUMMARY, record)
        give_way(job.workspace, job.say)
        if finished is not None:
            finished.keep_others(made, job.say)
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


def _usual_describer(workspace: Path, features: str | Path | None, engine: str) -> Describer:
    """What describes photos if no model is given: what made the features, or the default."""
    made_by = {} if features is None else model_of_features(Path(features))
    name = made_by.get("model") or photo_model(model_of_workspace(workspace))
    return open_describer(name, engine=made_by.get("engine", AUTO) if engine == AUTO else engine)


def _continuing(job: _Job, before: Mapping[str, Any]) -> _Job:
    """The job with the detector and the matcher that a workspace was begun with, perhaps by an earlier version."""
    recorded = before.get("detector")
    if not isinstance(recorded, dict):
        return job
    detector = job.settings.detector.continuing(recorded)
    return replace(job, settings=replace(job.settings, detector=detector), context_before=before.get(CONTEXT))


def _say_position(job: _Job, folder: Path, names: Iterable[str]) -> None:
    """Write the GPS positions of the photos of a model, and say how to use them."""
    in_model = names_in(folder / "sparse")
    named = {name: name_in_model(name, in_model) for name in sorted(names)}
    count, left_out = write_gps(folder / GPS, ((new, job.images / name) for name, new in named.items()))
    if count:
        job.say(f"{count} photos say where they were taken: {GPS} is what colmap model_aligner reads (docs/splats.md)")
    if left_out:
        job.say(f"{left_out} photos say where they were taken, but {GPS} cannot hold names with spaces")


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


def _map(job: _Job, build: Build, program: Command, photos: dict[str, str], pairs: list[Pair]) -> Models:
    """Third phase: COLMAP verifies the matches, unless an interrupted run has done that, and makes models."""
    settings, magnification = job.settings, job.settings.detector.magnification
    cameras: dict[str, object] = {"single_camera": int(settings.single_camera), "camera_model": settings.camera_model}
    cameras |= {} if settings.camera_params is None else {"camera_params": settings.camera_params}

    def keypoints(name: str) -> np.ndarray:
        return frames_to_colmap(load_features(build.folder / "features" / f"{name}{NPZ_SUFFIX}").frames, magnification)

    key = key_of(__version__, photos, pairs)
    matched = MatchedPhotos(
        job.images, list(photos), pairs, keypoints, partial(matches_of, build.folder / MATCHES), cameras, key
    )
    return Colmap(build, job.progress, program).reconstruct(matched, settings.mapper, job.say)
