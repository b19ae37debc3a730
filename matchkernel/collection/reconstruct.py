"""Reconstruct scenes from our features and matches with COLMAP's importers and mapper."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from matchkernel.collection.choose_pairs import PairChoice, parse_choice
from matchkernel.collection.colmap_import import Cameras, ColmapImport
from matchkernel.collection.earlier_work import (
    drop_other_photos,
    features_to_take,
    folder_of_features,
    take_features,
    take_over,
)
from matchkernel.collection.extract import check_masks, extract_images, mask_of, photo_digest
from matchkernel.collection.make_pairs import make_pairs
from matchkernel.collection.match import match_pairs
from matchkernel.collection.shards import key_of
from matchkernel.collection.workspace import (
    MATCHES,
    SUMMARY,
    Finished,
    Summary,
    names_by_model,
    read_finished,
)
from matchkernel.colmap.model import CAMERA_MODELS
from matchkernel.colmap.program import SMALLEST_MODEL, Colmap, analyze, check_camera_model, find_colmap, find_mapper
from matchkernel.colmap.text_files import check_image_name, write_keypoints
from matchkernel.errors import ArgumentError, FileError
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.describers import Describer, Model, open_describer
from matchkernel.photos.features import Store, load_features
from matchkernel.photos.files import SUFFIX, FeatureFiles, Pair, check_pair_names, write_pairs
from matchkernel.photos.filters import DEFAULT_FILTER, Filter, as_filter
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.storage.files import file_hash, resolved, write_json
from matchkernel.storage.folders import Build, recover, resumable_build
from matchkernel.storage.photo_folders import photos_in
from matchkernel.storage.pool import Workers
from matchkernel.storage.progress import Progress, Say
from matchkernel.storage.settings import check_ranges

PHOTOS = "photos.json"
Mapper = Literal["incremental", "global"]


@dataclass(frozen=True)
class ReconstructSettings:
    """How images are reconstructed.

    Attributes:
        detector: how keypoints are found (default: COLMAP's own limits on their number and contrast).
        filter: test that matches must pass, or a string such as "ratio:0.85" (see filters.Filter).
        pairs: which images are matched (see choose_pairs.parse_choice); "auto": all pairs of up to 120 images, each
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
        object.__setattr__(self, "filter", as_filter(self.filter))
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
    """Extract and match features, import them into COLMAP, which verifies them, and run its mapper.

    The workspace holds `database.db`, `sparse/` (the model with the most images), `models/` (further ones), the
    features, `pairs.txt`, `matches.h5` (hloc's layout), the keypoints and matches as text, COLMAP's logs and
    `summary.json`. It appears when everything is done; until then the work is in `<workspace>.part`, where an
    interrupted run resumes. An image that cannot be read is skipped and reported.

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
        engine: what to run the network with (see runtime.engine.ENGINES).
        workers: who extracts and matches (default: this process).
        say: called with a line for each stage.
        progress: called with the number done and the total.
    """
    settings = settings or ReconstructSettings()
    images, describer = Path(images), open_describer(model, engine=engine)
    settings.filter.check_recorded(describer.settings)
    chosen = {name: value for name, value in dataclasses.asdict(settings).items() if name != "pairs"}
    chosen |= {"detector": settings.detector.settings(), "filter": str(settings.filter)}
    how = json.loads(json.dumps({"model": describer.name, **describer.settings, **chosen}))
    masks = None if masks is None else Path(masks)
    features = folder_of_features(features)
    if resolved(workspace).is_relative_to(resolved(images)):
        raise ArgumentError(f"{workspace}: is inside the input {images}; choose another place")
    photos = photos_in(images, only=only, listed=listed, without=masks)
    if len(photos.paths) < 2:
        raise FileError(f"{images}: contains {len(photos.paths)} images, at least two are needed")
    for name in photos.paths:
        check_image_name(name)
    parse_choice(settings.pairs, len(photos.paths)).check(photos.paths)
    cameras = Cameras(settings.single_camera, settings.camera_model, settings.camera_params)
    cameras.check(photos.paths)
    check_pair_names(photos.paths)
    check_masks(masks, photos.paths)
    program = find_colmap()  # after all mistakes in the arguments have been reported, before any work
    mapper = find_mapper(program, settings.mapper)
    check_camera_model(program, settings.camera_model)
    if photos.ignored:
        say(photos.what_was_ignored())
    found, unreadable = _digests(photos.paths, masks, say)
    choice = parse_choice(settings.pairs, len(found))
    inputs = {"photos": found, "pairs": [str(choice), *(file_hash(path) for path in choice.files)]}
    recover(Path(workspace))
    before = read_finished(Path(workspace), how)
    if known := _unchanged(before, inputs, unreadable, say):
        return known
    taken = features_to_take(features, found, describer, settings.detector, settings.store, say)
    with resumable_build(workspace, how, replaces=before is not None) as build:
        job = _Job(images, masks, settings, build, workers, say, progress)
        drop_other_photos(build.folder, found)
        take_over(before, found, build.folder, say)
        take_features(taken, build.folder / "features")
        skipped = unreadable | _extract(job, list(found), describer)
        if known := _unchanged(before, inputs, skipped, say):
            build.discard()
            return known
        names = [name for name in found if name not in skipped]
        if len(names) < 2:
            raise FileError(f"{images}: only {len(names)} images can be read: {_first(skipped)}")
        pairs = _pairs(job, names, choice, skipped)
        skipped |= _match(job, pairs, str(describer.device))
        if known := _unchanged(before, inputs, skipped, say):
            build.discard()
            return known
        pairs = [pair for pair in pairs if not skipped.keys() & {*pair, " ".join(pair)}]
        imported = f"import {key_of({name: found[name] for name in names}, pairs)}"
        if imported not in build.done:
            build.forget()  # an interrupted run had other photos or pairs
        seen, refused = ColmapImport(images, build, cameras, say, progress).run(names, pairs, imported)
        _map(dataclasses.replace(job, images=seen), mapper, program)
        facts = analyze(build.folder / "sparse")
        models = names_by_model(build.folder)
        summary = Summary(
            len(photos.paths),
            skipped=skipped,
            pairs=sum(not set(pair) & set(refused) for pair in pairs),
            models=[len(model) for model in models],
            ignored=photos.ignored,
            unregistered=sorted(set(names).difference(refused, *models)),
            refused=refused,
            **facts,
        )
        write_json(build.folder / SUMMARY, {**dataclasses.asdict(summary), "inputs": inputs, "settings": how})
        write_json(build.folder / PHOTOS, found)
    return summary


@dataclass(frozen=True)
class _Job:
    images: Path
    masks: Path | None
    settings: ReconstructSettings
    build: Build
    workers: Workers | None
    say: Say
    progress: Progress | None

    def tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)


def _digests(paths: dict[str, Path], masks: Path | None, say: Say) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the photos by name; and those that cannot be read, with the reason."""
    found, bad = {}, {}
    for name, path in paths.items():
        try:
            found[name] = photo_digest(path, mask_of(name, masks))
        except FileError as error:
            bad[name] = str(error)
            say(f"skipped {error}")
    return found, bad


def _unchanged(before: Finished | None, inputs: dict[str, Any], skipped: dict[str, str], say: Say) -> Summary | None:
    """The summary of the finished workspace if this run would only repeat it, or fail at the same photos and pairs."""
    if before is None or before.inputs != inputs or before.summary["skipped"].keys() != skipped.keys():
        return None
    if skipped:
        say(f"{before.folder}: stays as it was; what was skipped then ({len(skipped)}) still cannot be used")
    else:
        say(f"{before.folder}: all {len(inputs['photos'])} photos are in it already")
    used = inputs["photos"].keys() - skipped.keys() - set(before.summary.get("refused", ()))
    unregistered = sorted(used.difference(*names_by_model(before.folder)))  # a summary of earlier versions lacks it
    return Summary(**{**before.summary, "unregistered": unregistered})


def _extract(job: _Job, names: list[str], describer: Describer) -> dict[str, str]:
    """Write the features and COLMAP's keypoint text of every image; returns those that cannot be read, and why."""
    there = sum((job.build.folder / "features" / f"{name}{SUFFIX}").exists() for name in names)
    count = f"{len(names) - there} of {len(names)} images" if there else f"{len(names)} images"
    job.say(f"extracting {describer.label} features ({count})")
    detector, paths = job.settings.detector, {name: job.images / name for name in names}
    report = extract_images(
        paths,
        job.build.folder / "features",
        describer,
        detector,
        store=job.settings.store,
        masks=job.masks,
        workers=job.workers,
        say=job.say,
        progress=job.tell,
    )
    for name in [*report.done, *report.kept]:
        text = job.build.folder / "keypoints" / f"{name}.txt"
        if name in report.done or not text.exists():
            features = load_features(job.build.folder / "features" / f"{name}{SUFFIX}")
            write_keypoints(text, features.frames, detector.magnification)
    return report.skipped


def _pairs(job: _Job, names: list[str], choice: PairChoice, skipped: dict[str, str]) -> list[Pair]:
    """Choose and write the pairs to match; those of photos that were skipped are left out."""
    files = FeatureFiles(job.build.folder / "features", names)
    pairs = make_pairs(names, choice, files, unusable=skipped, say=job.say, progress=job.tell)
    if not pairs:
        raise FileError(f"{choice}: leaves no pair of photos that can be read")
    write_pairs(job.build.folder / "pairs.txt", pairs)
    return pairs


def _match(job: _Job, pairs: list[Pair], device: str) -> dict[str, str]:
    """Find the matches of every pair that is not in matches.h5 yet; returns what was skipped, see MatchedPairs."""
    job.say(f"matching {len(pairs)} pairs")
    folder = job.build.folder
    how = MatchSettings(filter=job.settings.filter, geometry="none")
    report = match_pairs(
        folder / "features",
        pairs,
        [folder / MATCHES],
        how,
        device=device,
        workers=job.workers,
        say=job.say,
        progress=job.tell,
    )
    return report.skipped


def _map(job: _Job, mapper: str, program: str) -> None:
    if "mapper" not in job.build.done:
        job.say(f"colmap {mapper}")
        wanted = {"min_model_size": SMALLEST_MODEL}
        if job.settings.camera_params is not None:
            wanted |= {"ba_refine_focal_length": 0, "ba_refine_extra_params": 0}
        Colmap(job.build, job.progress, program).map(job.images, mapper, wanted)
        job.build.mark("mapper")


def _first(skipped: dict[str, str]) -> str:
    return next(iter(skipped.values()), "")
