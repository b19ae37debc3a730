"""Reconstruct scenes from our features and matches with COLMAP, in three phases: features, matches, model."""

import dataclasses
import json
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matchkernel.collection.extract import (
    ExtractJob,
    Extractor,
    check_masks,
    check_same_settings,
    extract_images,
    mask_of,
    photo_digest,
)
from matchkernel.collection.match import match_pairs
from matchkernel.collection.pairs import PairChoice, make_pairs, parse_choice
from matchkernel.collection.workspace import (
    MATCHES,
    SUMMARY,
    Finished,
    Summary,
    link_or_copy,
    names_by_model,
    photo_of,
    read_finished,
    readable_photos,
    remove_other_photos,
    reuse_finished,
)
from matchkernel.colmap.database import has_key, read_image_names, write_key, write_keypoints
from matchkernel.colmap.model import CAMERA_MODELS
from matchkernel.colmap.program import SMALLEST_MODEL, Colmap, analyze, check_camera_model, find_colmap, find_mapper
from matchkernel.colmap.text_files import check_image_name
from matchkernel.errors import ArgumentError, FileError, WorkError
from matchkernel.geometry.conventions import frames_to_colmap
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.describers import Describer, Model, open_describer
from matchkernel.photos.features import Store, load_features, read_facts
from matchkernel.photos.files import SUFFIX, FeatureFiles, Pair, check_pair_names, read_matches_of, write_pairs
from matchkernel.photos.match import DEFAULT_FILTER, Filter, parse_filter
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.storage.files import file_hash, resolved, write_json
from matchkernel.storage.folders import recover, resumable_build
from matchkernel.storage.images import HEIC_SUFFIXES, open_image
from matchkernel.storage.photo_folders import Photos, first_names, photos_in
from matchkernel.storage.pool import Workers
from matchkernel.storage.settings import check_ranges
from matchkernel.storage.shards import key_of
from matchkernel.storage.work import Progress, Say

PHOTOS = "photos.json"
Mapper = Literal["incremental", "global"]


@dataclass(frozen=True)
class ReconstructSettings:
    """How images are reconstructed.

    Attributes:
        detector: how keypoints are found (default: COLMAP's own limits on their number and contrast).
        filter: test that matches must pass, or a string such as "ratio:0.85" (see photos.match.Filter).
        pairs: which images are matched (see pairs.parse_choice); "auto": all pairs of up to 120 images, each
            with the 20 most similar ones of more.
        single_camera: all images were taken by one camera with one focal length.
        camera_model: of COLMAP.
        camera_params: known intrinsics of the model, such as "1200,640,480,0"; they are then kept as they are.
        mapper: "global" needs COLMAP 4.
        store: how descriptors are stored.
    """

    detector: Detector = COLMAP_LIKE
    filter: Filter = DEFAULT_FILTER
    pairs: str = "auto"
    single_camera: bool = False
    camera_model: str = "SIMPLE_RADIAL"
    camera_params: str | None = None
    mapper: Mapper = "incremental"
    store: Store = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "filter", parse_filter(self.filter))
        check_ranges(self)
        if self.camera_model not in CAMERA_MODELS:
            raise ArgumentError(f"camera_model must be one of {', '.join(CAMERA_MODELS)}, got {self.camera_model!r}")
        if self.camera_params is not None:
            _check_params(self.camera_model, self.camera_params)


def _check_params(model: str, text: str) -> None:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != CAMERA_MODELS[model] or not np.isfinite(numbers).all():
        raise ArgumentError(
            f"camera_params of {model} must be {CAMERA_MODELS[model]} numbers with commas between them, got {text!r}"
        )


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
        engine: what to run the network with (see runtime.onnx.ENGINES).
        workers: who extracts and matches (default: this process).
        say: called with a line for each stage.
        progress: called with the number done and the total.

    Example (needs COLMAP):
        >>> from matchkernel.collection.reconstruct import reconstruct
        >>> reconstruct("photos", "workspace", "tiny").registered  # doctest: +SKIP
        24
    """
    settings, images = settings or ReconstructSettings(), Path(images)
    job = _Job(
        images,
        Path(workspace),
        open_describer(model, engine=engine),
        settings,
        None if masks is None else Path(masks),
        workers,
        say,
        progress or (lambda done, total: None),
    )
    photos = _checked_photos(job, only, listed, features)
    program = find_colmap()  # after all mistakes in the arguments have been reported, before any work
    mapper = find_mapper(program, settings.mapper)
    check_camera_model(program, settings.camera_model)
    if photos.ignored:
        say(photos.what_was_ignored())
    digests, skipped = _digests(photos.paths, job.masks, say)
    choice = parse_choice(settings.pairs, len(digests))
    inputs = {"photos": digests, "pairs": [str(choice), *(file_hash(path) for path in choice.files)]}
    recover(job.workspace)
    finished = read_finished(job.workspace, job.recorded)
    if finished is not None and finished.is_same(inputs, skipped):
        return finished.unchanged(say)
    given = _given_features(job, features, digests)
    with resumable_build(workspace, job.recorded, replaces=finished is not None) as build:
        skipped |= _extract(job, build.folder, digests, finished, given)
        names = [name for name in digests if name not in skipped]
        pairs, unmatched = _match(job, build.folder, names, choice, skipped)
        skipped |= unmatched
        if finished is not None and finished.is_same(inputs, skipped):
            build.discard()
            return finished.unchanged(say)
        names = [name for name in names if name not in unmatched]
        key = key_of({name: digests[name] for name in names}, pairs)
        refused = _map(job, Colmap(build, progress, program), mapper, names, pairs, key)
        summary = _summary(build.folder, photos, skipped, names, pairs, refused)
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


def _checked_photos(job: _Job, only: Sequence[str], listed: str | Path | None, features: str | Path | None) -> Photos:
    """The photos of the folder; arguments and names that cannot work are refused."""
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
    parse_choice(job.settings.pairs, len(photos.paths)).check(photos.paths)
    if job.settings.single_camera:
        _check_one_size(photos.paths)
    check_masks(job.masks, photos.paths)
    return photos


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


def _given_features(job: _Job, place: str | Path | None, digests: dict[str, str]) -> dict[str, Path]:
    """The features that the user's folder has of these photos; features made with other settings are refused."""
    if place is None:
        return {}
    place, settings = Path(place), job.settings
    facts = Extractor(job.describer, ExtractJob(settings.detector, place, settings.store)).facts
    paths = {name: place / f"{name}{SUFFIX}" for name in digests}
    found = {name: path for name, path in paths.items() if photo_of(path) == digests[name]}
    for name, path in found.items():
        check_same_settings(*read_facts(path), facts, name, place, advice="give the same settings here")
    job.say(f"taking features of {len(found)} of {len(digests)} photos from {place}")
    return found


def _extract(
    job: _Job, folder: Path, digests: dict[str, str], finished: Finished | None, given: dict[str, Path]
) -> dict[str, str]:
    """First phase: features of all photos, as far as they are not known; returns photos without, and why."""
    features = folder / "features"
    remove_other_photos(folder, digests)
    if finished is not None:
        reuse_finished(finished, digests, folder, job.say)
    for name, path in given.items():
        link_or_copy(path, features / f"{name}{SUFFIX}")
    known = sum((features / f"{name}{SUFFIX}").exists() for name in digests)
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
    job: _Job, folder: Path, names: list[str], choice: PairChoice, skipped: dict[str, str]
) -> tuple[list[Pair], dict[str, str]]:
    """Second phase: choose the pairs and match those that are not in matches.h5 yet.

    Returns:
        The pairs that were matched; and what was skipped, see MatchedPairs.
    """
    files = FeatureFiles(folder / "features", names)
    pairs = make_pairs(names, choice, files, unusable=skipped, say=job.say, progress=job.progress)
    if not pairs:
        raise FileError(f"{choice}: leaves no pair of photos that can be read")
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


def _map(job: _Job, colmap: Colmap, mapper: str, names: list[str], pairs: list[Pair], key: str) -> list[str]:
    """Third phase: COLMAP verifies the matches, unless an interrupted run has done that, and makes models.

    Returns:
        The names of photos that COLMAP does not take in.
    """
    folder, database, settings = colmap.build.folder, colmap.database, job.settings
    heic = [name for name in names if name.lower().endswith(HEIC_SUFFIXES)]
    images = readable_photos(job.images, folder / "photos", names, heic)
    if not has_key(database, key):
        job.say("colmap feature_importer, matches_importer")
        cameras: dict[str, object] = {
            "single_camera": int(settings.single_camera),
            "camera_model": settings.camera_model,
        }
        cameras |= {} if settings.camera_params is None else {"camera_params": settings.camera_params}
        if unread := colmap.import_images(images, names, cameras):  # such as 16 bit colour
            images = readable_photos(job.images, folder / "photos", names, unread)
            for name in colmap.import_images(images, names, cameras):
                job.say(f"skipped {name}: COLMAP's feature_importer did not take it in")
        _write_database(job, colmap, pairs)
        write_key(database, key)
    job.say(f"colmap {mapper}")
    options: dict[str, object] = {"min_model_size": SMALLEST_MODEL}
    if settings.camera_params is not None:
        options |= {"ba_refine_focal_length": 0, "ba_refine_extra_params": 0}
    colmap.map(images, mapper, options)
    return sorted(set(names) - read_image_names(database))


def _write_database(job: _Job, colmap: Colmap, pairs: list[Pair]) -> None:
    """Write keypoints and matches of the photos that COLMAP has taken in."""
    folder, database = colmap.build.folder, colmap.database
    names = read_image_names(database)
    usable = [pair for pair in pairs if names.issuperset(pair)]
    if not usable:
        raise WorkError(f"{job.images}: COLMAP took in no two photos of a pair; see {folder}/feature_importer.log")
    features = ((name, load_features(folder / "features" / f"{name}{SUFFIX}")) for name in sorted(names))
    magnification = job.settings.detector.magnification
    write_keypoints(database, ((name, frames_to_colmap(one.frames, magnification)) for name, one in features))
    matches = ((*found.names, found.indices) for found in read_matches_of(folder / MATCHES, usable))
    if not colmap.verify_matches(matches):
        raise WorkError(f"{job.images}: no two images have a match; they may not overlap")


def _summary(
    folder: Path, photos: Photos, skipped: dict[str, str], names: list[str], pairs: list[Pair], refused: list[str]
) -> Summary:
    models = names_by_model(folder)
    return Summary(
        len(photos.paths),
        skipped=skipped,
        pairs=sum(not set(pair) & set(refused) for pair in pairs),
        models=[len(model) for model in models],
        ignored=photos.ignored,
        unregistered=sorted(set(names).difference(refused, *models)),
        refused=refused,
        **analyze(folder / "sparse"),
    )
