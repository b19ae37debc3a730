"""Reconstruct a scene from our features and matches with COLMAP's importers and mapper."""

import dataclasses
import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from matchkernel.collection.batch_extract import extract_images
from matchkernel.colmap.program import find_colmap, on_cpu, photos_of, run_mapper, run_stage
from matchkernel.colmap.text_files import check_match_name, write_keypoints, write_match_list
from matchkernel.errors import FileError, WorkError
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.describers import Describer, Model, open_describer
from matchkernel.photos.features import load_features
from matchkernel.photos.filters import FOR_A_SCENE, Filter, as_filter
from matchkernel.photos.match import match
from matchkernel.storage.files import replacing
from matchkernel.storage.folders import Build, resumable_build
from matchkernel.storage.progress import Progress, Say
from matchkernel.storage.settings import check_ranges, setting

ALL_PAIRS_UP_TO = 120  # images; with more, each is matched with its neighbours in name order
OVERLAP = 10  # neighbours on either side
PHOTOS, SUMMARY = "photos.json", "summary.json"
# What `colmap model_analyzer` prints, by field of Summary.
ANALYZED = {
    "registered": r"Registered images: (\d+)",
    "points": r"Points: (\d+)",
    "observations": r"Observations: (\d+)",
    "track_length": r"Mean track length: ([\d.]+)",
    "error": r"Mean reprojection error: ([\d.]+)px",
}


@dataclass(frozen=True)
class ReconstructSettings:
    """How images are reconstructed.

    Attributes:
        detector: how keypoints are found (default: COLMAP's own limits on their number and contrast).
        filter: test that matches must pass, or a string such as "ratio:0.85" (see filters.Filter).
        overlap: match each image with this many following ones in name order; None: all pairs, up to 120 images.
        single_camera: all images were taken by one camera with one focal length.
    """

    detector: Detector = COLMAP_LIKE
    filter: Filter = FOR_A_SCENE
    overlap: int | None = setting(None, low=1)
    single_camera: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "filter", as_filter(self.filter))
        check_ranges(self)


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
        skipped: images that could not be read, and why.
    """

    images: int
    registered: int
    points: int
    observations: int
    track_length: float
    error: float
    skipped: dict[str, str] = dataclasses.field(default_factory=dict)


def reconstruct(
    images: str | Path,
    workspace: str | Path,
    model: Model = "light-wide",
    settings: ReconstructSettings | None = None,
    *,
    engine: str = "auto",
    say: Say = lambda stage: None,
    progress: Progress | None = None,
) -> Summary:
    """Extract and match features, import them into COLMAP, which verifies them, and run its mapper.

    The workspace holds `database.db`, `sparse/` (the model with the most images), `matches.txt`, the keypoints as text,
    COLMAP's logs and `summary.json`. It appears when everything is done; until then the work is in `<workspace>.part`,
    where an interrupted run resumes. An image that cannot be read is skipped and reported.

    Args:
        images: folder of images of one scene.
        workspace: folder to create.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        settings: how to reconstruct (default: ReconstructSettings()).
        engine: what to run the network with (see model.engines.choose.open_engine).
        say: called with a line for each stage.
        progress: called with the number done and the total.
    """
    settings = settings or ReconstructSettings()
    images, describer, program = Path(images), open_describer(model, engine=engine), find_colmap()
    settings.filter.check_recorded(describer.settings)
    found = photos_of(images)
    if len(found) < 2:
        raise FileError(f"{images}: contains {len(found)} images, at least two are needed")
    for name in found:
        check_match_name(name)
    chosen = {**dataclasses.asdict(settings), "detector": settings.detector.settings(), "filter": str(settings.filter)}
    how = {"model": describer.name, **describer.settings, **chosen}
    with resumable_build(workspace, {"photos": found, **how}) as build:
        job = _Job(images, settings, build, say, progress)
        skipped = _extract(job, list(found), describer)
        names = [name for name in found if name not in skipped]
        if len(names) < 2:
            raise FileError(f"{images}: only {len(names)} images can be read: {_first(skipped)}")
        pairs = pairs_of(len(names), settings.overlap)
        _match(job, names, pairs, describer.device)
        _import(job, names, pairs)
        _map(job)
        facts = analyze(build.folder / "sparse", program)
        summary = Summary(len(found), skipped=skipped, **facts)
        _write_json(build.folder / SUMMARY, {**dataclasses.asdict(summary), "settings": how})
        _write_json(build.folder / PHOTOS, found)
    return summary


def pairs_of(count: int, overlap: int | None = None) -> list[tuple[int, int]]:
    """Which images are matched: all pairs, or each with its `overlap` neighbours (10 for more than 120 images)."""
    reach = overlap or (count if count <= ALL_PAIRS_UP_TO else OVERLAP)
    return [(i, j) for i in range(count) for j in range(i + 1, min(count, i + 1 + reach))]


def analyze(sparse: str | Path, program: str | None = None) -> dict[str, Any]:
    """Registered images, points, observations, mean track length and error of a model, from `colmap model_analyzer`."""
    command = [program or find_colmap(), "model_analyzer", "--path", str(sparse)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = done.stdout + done.stderr  # it depends on the version where this is printed
    found = {name: re.search(pattern, said) for name, pattern in ANALYZED.items()}
    missing = [name for name, match in found.items() if match is None]
    if done.returncode or missing:
        raise WorkError(
            f"colmap model_analyzer did not describe {sparse}: exit code {done.returncode}, no {missing} in its output"
        )
    return {
        name: (float if name in ("track_length", "error") else int)(match[1]) for name, match in found.items() if match
    }


@dataclass(frozen=True)
class _Job:
    images: Path
    settings: ReconstructSettings
    build: Build
    say: Say
    progress: Progress | None

    def tell(self, done: int, total: int) -> None:
        if self.progress is not None:
            self.progress(done, total)

    def colmap(self, stage: str, **options: object) -> None:
        """Run a stage of COLMAP on the database."""
        program = find_colmap()
        words = [word for name, value in options.items() for word in (f"--{name.replace('__', '.')}", str(value))]
        database = ["--database_path", str(self.build.folder / "database.db")]
        run_stage([program, stage, *database, *words, *on_cpu(program, stage)], self.build, self.progress)


def _extract(job: _Job, names: list[str], describer: Describer) -> dict[str, str]:
    """Write the features and COLMAP's keypoint text of every image; returns those that cannot be read, and why."""
    job.say(f"extracting {describer.label} features ({len(names)} images)")
    detector, paths = job.settings.detector, {name: job.images / name for name in names}
    skipped = extract_images(
        paths, job.build.folder / "features", describer, detector, say=job.say, progress=job.tell
    ).skipped
    for name in names:
        text = job.build.folder / "keypoints" / f"{name}.txt"
        if name not in skipped and not text.exists():
            text.parent.mkdir(parents=True, exist_ok=True)
            write_keypoints(text, load_features(_features(job.build, name)).frames, detector.magnification)
    return skipped


def _match(job: _Job, names: list[str], pairs: list[tuple[int, int]], device: torch.device) -> None:
    """Find the matches of every pair, and keep them in one file per first image."""
    job.say(f"matching {len(pairs)} pairs")
    (job.build.folder / "matches").mkdir(exist_ok=True)
    done = 0
    for i, name in enumerate(names):
        others = [j for first, j in pairs if first == i]
        step = f"matches of {name} with {len(others)} of {len(names)}"
        if step not in job.build.done and others:
            here = load_features(_features(job.build, name))
            found: dict[str, Any] = {}
            for j in others:
                there = load_features(_features(job.build, names[j]))
                found[str(j)] = match(here, there, filter=job.settings.filter, device=device).indices
            with replacing(_matches(job.build, i)) as part, part.open("wb") as file:
                np.savez(file, **found)
            job.build.mark(step)
        done += len(others)
        job.tell(done, len(pairs))


def _import(job: _Job, names: list[str], pairs: list[tuple[int, int]]) -> None:
    """Import keypoints and matches into a new database with COLMAP's importers, which verify the matches."""
    if "import" in job.build.done:
        return
    job.say("colmap feature_importer, matches_importer")
    folder = job.build.folder
    for path in folder.glob("database.db*"):  # incomplete, from an interrupted run
        path.unlink()
    (folder / "images.txt").write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
    if not write_match_list(folder / "matches.txt", _read_matches(names, pairs, job.build)):
        raise WorkError(f"{job.images}: no two images have a match; they may not overlap")
    job.colmap(
        "feature_importer",
        image_path=job.images,
        import_path=folder / "keypoints",
        image_list_path=folder / "images.txt",
        ImageReader__single_camera=int(job.settings.single_camera),
    )
    job.colmap("matches_importer", match_list_path=folder / "matches.txt", match_type="raw")
    job.build.mark("import")


def _map(job: _Job) -> None:
    if "mapper" not in job.build.done:
        job.say("colmap mapper")
        run_mapper(job.images, job.build, job.progress)
        job.build.mark("mapper")


def _read_matches(
    names: list[str], pairs: list[tuple[int, int]], build: Build
) -> Iterator[tuple[str, str, np.ndarray]]:
    for i in sorted({first for first, _ in pairs}):
        with np.load(_matches(build, i), allow_pickle=False) as found:
            yield from ((names[i], names[j], found[str(j)]) for first, j in pairs if first == i)


def _features(build: Build, name: str) -> Path:
    return build.folder / "features" / f"{name}.npz"


def _matches(build: Build, number: int) -> Path:
    return build.folder / "matches" / f"{number:06}.npz"


def _first(skipped: dict[str, str]) -> str:
    return next(iter(skipped.values()), "")


def _write_json(path: Path, content: Any) -> None:
    with replacing(path) as part:
        part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
