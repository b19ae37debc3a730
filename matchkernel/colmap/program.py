"""Run COLMAP: single stages, or a whole reconstruction from our keypoints and matches."""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.colmap.converted import flat_names, link_photo, readable_photo, readable_photos
from matchkernel.colmap.database import (
    count_matches,
    fill_in_focal_lengths,
    has_key,
    numbered_images,
    read_image_names,
    read_matched_pairs,
    sizes_without_focal_length,
    write_key,
    write_keypoints,
    write_matches,
)
from matchkernel.colmap.focal_lengths import read_focal_length
from matchkernel.colmap.installed import MAPPERS, Command, find_colmap
from matchkernel.colmap.model import read_reconstruction, rename_images
from matchkernel.colmap.points import analyze, point_cloud, write_ply
from matchkernel.errors import FileError, WorkError
from matchkernel.storage.files import write_errors
from matchkernel.storage.folders import Build
from matchkernel.storage.images import HEIC_SUFFIXES
from matchkernel.storage.photo_folders import first_names
from matchkernel.storage.work import Progress, Say, help_of, offscreen

COUNTED = re.compile(r"\[(\d+)/(\d+)\]")
REGISTERED = re.compile(r"Registering image #\d+ \((?:num_reg_\w+=)?(\d+)\)")
# What the global mapper does one after the other, as it says "=== Running rotation averaging ===".
GLOBAL_STEP = re.compile(r"=== Running (.+) ===")
GLOBAL_STEPS = (
    *("rotation averaging", "track establishment", "global positioning", "iterative bundle adjustment"),
    "iterative retriangulation and refinement",
)
STACK = re.compile(r"@ |\*\*\*|PC: @")  # lines of the stack trace that COLMAP prints when it crashes
USE_GPU = re.compile(r"--(Sift|Feature)(Extraction|Matching)\.use_gpu\b")  # Feature from COLMAP 3.13 on, without alias
UNDISTORTER = "image_undistorter"
FIRST_PAIR = 100  # inliers of the pair that COLMAP begins with
SMALLEST_MODEL = 3  # images; COLMAP's own limit, 10, would drop the models of small scenes


@dataclass(frozen=True)
class MatchedPhotos:
    """Photos that COLMAP reconstructs from keypoints and matches which are known."""

    folder: Path
    names: Sequence[str]
    pairs: Sequence[tuple[str, str]]  # that have been matched
    keypoints: Callable[[str], np.ndarray]  # (K, 6) float32 of a photo (see geometry.conventions.frames_to_colmap)
    # For some of the pairs, the names of both photos and (M, 2) row in A and row in B.
    matches: Callable[[Sequence[tuple[str, str]]], Iterable[tuple[str, str, np.ndarray]]]
    cameras: Mapping[str, object]  # options of COLMAP's ImageReader; intrinsics in `camera_params` are kept
    key: str  # digest of what the database is made from; an existing database with this key is used as it is


@dataclass(frozen=True)
class Models:
    """What COLMAP made of photos."""

    names: list[list[str]]  # of the images of every model, that with the most images first
    refused: list[str]  # photos that COLMAP did not take in
    facts: dict[str, Any]  # of the first model (see analyze)


@dataclass(frozen=True)
class Colmap:
    """COLMAP at work on `database.db` of a folder that is being built, in which every stage also writes a log."""

    build: Build
    progress: Progress | None = None  # called with the numbers done and in total that a stage prints, such as [3/11]
    program: Command = field(default_factory=find_colmap)
    logs: Path | None = None  # a folder for them that stays where the build fails (default: that of the build)

    @property
    def database(self) -> Path:
        """The database of all stages."""
        return self.build.folder / "database.db"

    def run(self, stage: str, options: Mapping[str, object]) -> None:
        """Run a stage such as "feature_extractor" on the database, without a GPU; options by COLMAP's names."""
        command = [*self.program, stage]
        paths = {} if stage == UNDISTORTER else {"database_path": self.database}
        for name, value in {**paths, **options}.items():
            command += [f"--{name}", str(value)]
        command += on_cpu(self.program, stage)
        log, total = (self.logs or self.build.folder) / f"{stage}.log", self._images() if stage == "mapper" else 0
        # COLMAP inherits the lock: if this process is killed, no other build starts while COLMAP is still writing.
        with (
            log.open("w", encoding="utf-8") as output,
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                env=offscreen(),
                pass_fds=self.build.lock,
            ) as process,
        ):
            assert process.stdout is not None
            try:
                for line in process.stdout:
                    output.write(line)
                    self._report(line, total)
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            lines = [line.strip() for line in log.read_text(encoding="utf-8").splitlines()]
            reason = next((line for line in reversed(lines) if line and not STACK.match(line)), "")[:200]
            raise WorkError(f"colmap {stage} failed with exit code {process.returncode}: {reason} (full log: {log})")

    def _images(self) -> int:
        try:
            return len(read_image_names(self.database))
        except FileError:
            return 0

    def _report(self, line: str, total: int) -> None:
        """Report the progress that a line of COLMAP tells: photos in the model, or steps of the global mapper."""
        counted, registered, step = (form.search(line) for form in (COUNTED, REGISTERED, GLOBAL_STEP))
        if self.progress is None:
            return
        if counted:
            self.progress(int(counted[1]), int(counted[2]))
        elif registered:
            self.progress(min(int(registered[1]), total), total)
        elif step and step[1] in GLOBAL_STEPS:
            self.progress(GLOBAL_STEPS.index(step[1]), len(GLOBAL_STEPS))

    def reconstruct(self, photos: MatchedPhotos, mapper: str, say: Say) -> Models:
        """Import photos with their keypoints and matches, verify these, and map."""
        heic = [name for name in photos.names if name.lower().endswith(HEIC_SUFFIXES)]
        images, named = readable_photos(photos.folder, self.build.folder / "photos", photos.names, heic)
        if has_key(self.database, photos.key):
            taken = read_image_names(self.database)
        else:
            say("colmap feature_importer, matches_importer")
            taken = self._import(images, named, photos.cameras)
            if unread := [name for name in photos.names if named[name] not in taken]:  # such as 16 bit colour
                images, named = readable_photos(photos.folder, self.build.folder / "photos", photos.names, unread)
                taken = self._import(images, named, photos.cameras)
            for name in sorted(name for name in photos.names if named[name] not in taken):
                say(f"skipped {name}: COLMAP's feature_importer did not take it in")
            files = {named[name]: photos.folder / name for name in photos.names}
            fill_in_focal_lengths(self.database, lambda name: read_focal_length(files[name]))
            self._advise_one_camera(say)
            self._verify(photos, {name: named[name] for name in photos.names if named[name] in taken})
            write_key(self.database, photos.key)
        stage = MAPPERS[mapper]
        say(f"colmap {stage}")
        fixed = {"ba_refine_focal_length": 0, "ba_refine_extra_params": 0} if "camera_params" in photos.cameras else {}
        models = self.map(images, stage, {"min_model_size": SMALLEST_MODEL, **fixed})
        original = {named[name]: name for name in photos.names}
        names = [[original[name] for name in model] for model in models]
        refused = sorted(name for name in photos.names if named[name] not in taken)
        return Models(names, refused, analyze(self.build.folder / "sparse"))

    def _advise_one_camera(self, say: Say) -> None:
        """Say that photos of one size without a known focal length may be of one camera."""
        for size, count in sizes_without_focal_length(self.database).items():
            if count > 1:
                say(
                    f"{count} photos of {size} pixels do not say their focal length (EXIF), so each gets a camera of"
                    " its own; if one camera took them without zooming, --single-camera makes a better model"
                )

    def _import(self, images: Path, named: Mapping[str, str], cameras: Mapping[str, object]) -> set[str]:
        """Make a new database with the photos and their cameras; returns the names of those that COLMAP takes in."""
        for path in self.build.folder.glob("database.db*"):  # of an interrupted run, or without some of the photos
            path.unlink()
        listed = self.build.folder / "images.txt"
        listed.write_text("".join(f"{name}\n" for name in named.values()), encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            with write_errors(Path(folder)):
                for name in named.values():
                    path = Path(folder) / f"{name}.txt"
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text("0 128\n", encoding="ascii")  # no keypoints; without it COLMAP skips the photo
            paths = {"image_path": images, "import_path": folder, "image_list_path": listed}
            options = {f"ImageReader.{name}": value for name, value in cameras.items()}
            self.run("feature_importer", {**paths, **options})
        return read_image_names(self.database)

    def _verify(self, photos: MatchedPhotos, named: Mapping[str, str]) -> None:
        """Write the keypoints and matches of the photos that were taken in, and let COLMAP verify the matches."""
        pairs = [pair for pair in photos.pairs if named.keys() >= set(pair)]
        if not pairs:
            log = self.build.folder / "feature_importer.log"
            raise WorkError(f"{photos.folder}: COLMAP took in no two photos of a pair; see {log}")
        write_keypoints(self.database, ((named[name], photos.keypoints(name)) for name in sorted(named)))
        matches = ((named[a], named[b], rows) for a, b, rows in photos.matches(pairs))
        matched = write_matches(self.database, matches)
        if not matched:
            raise WorkError(f"{photos.folder}: no two images have a match; they may not overlap")
        listed = self.build.folder / "verified_pairs.txt"
        listed.write_text("".join(f"image{a} image{b}\n" for a, b in matched), encoding="ascii")
        stage = "matches_importer"
        one_thread = self._options(stage, {"num_threads": 1})  # with more, RANSAC's samples would differ in each run
        with numbered_images(self.database):
            self.run(stage, {"match_list_path": listed, "match_type": "pairs", **one_thread})
        listed.unlink()

    def map(self, images: Path, stage: str = "mapper", options: Mapping[str, object] | None = None) -> list[list[str]]:
        """Make models: that with the most images becomes `sparse`, the others are numbered in `models`.

        Options such as `min_model_size` are given without the prefix that the version has for them; those that it does
        not have are left out. Returns the names of the images of every model, that with the most images first.
        """
        found, sparse, others = (self.build.folder / name for name in ("mapped", "sparse", "models"))
        for folder in (found, sparse, others):  # of an interrupted run
            shutil.rmtree(folder, ignore_errors=True)
        found.mkdir()
        paths: dict[str, object] = {"image_path": images, "output_path": found}
        try:
            self.run(stage, {**paths, **self._options(stage, options or {})})
        except WorkError as error:
            if not list(found.iterdir()):
                raise WorkError(_why_no_model(images, self.database, str(error))) from None
            raise
        for project in found.glob("*/project.ini"):  # it names folders that will be gone
            project.unlink()
        names = {folder: names_in(folder) for folder in sorted(found.iterdir()) if folder.is_dir()}
        if not names:
            log = self.build.folder / f"{stage}.log"
            raise WorkError(_why_no_model(images, self.database, f"colmap {stage} found no model (full log: {log})"))
        ordered = sorted(names, key=lambda folder: -len(names[folder]))
        ordered[0].replace(sparse)
        for number, folder in enumerate(ordered[1:], 1):
            others.mkdir(exist_ok=True)
            folder.replace(others / str(number))
        shutil.rmtree(found)
        return [names[folder] for folder in ordered]

    def undistort(self, images: Path, converted: Path, sparse: Path, out: Path) -> dict[str, str]:
        """Undistort the photos of a model, or their JPEGs in the folder `converted`, as trainers of splats read them.

        `out` gets `images/`, whose names are flat, ASCII and end in .jpg or .png, and `sparse/0/` with pinhole cameras
        and points3D.ply. Returns the new name of each image.
        """
        named = flat_names(names_in(sparse))
        with tempfile.TemporaryDirectory(dir=self.build.folder) as folder:
            staged = Path(folder) / "model"
            shutil.copytree(sparse, staged)
            rename_images(sparse / "images.bin", staged / "images.bin", named)
            for name, new in named.items():
                link_photo(readable_photo(images, converted, name), Path(folder) / "photos" / new)
            paths = {"image_path": Path(folder) / "photos", "input_path": staged, "output_path": Path(folder) / "out"}
            (Path(folder) / "out").mkdir()
            self.run(UNDISTORTER, paths)
            if missing := [name for name, new in named.items() if not (Path(folder) / "out" / "images" / new).exists()]:
                raise WorkError(f"colmap {UNDISTORTER} did not write {first_names(missing)}: can the photos be read?")
            (out / "sparse").mkdir(parents=True)
            (Path(folder) / "out" / "images").replace(out / "images")
            (Path(folder) / "out" / "sparse").replace(out / "sparse" / "0")
        write_ply(out / "sparse" / "0" / "points3D.ply", *point_cloud(out / "sparse" / "0"))
        return named

    def _options(self, stage: str, options: Mapping[str, object]) -> dict[str, object]:
        """Options with the prefix that this version has for them; those that it does not have are left out."""
        found = {name: re.search(rf"--([\w.]*\b{re.escape(name)})\b", help_of(self.program, stage)) for name in options}
        return {match[1]: options[name] for name, match in found.items() if match}


def on_cpu(program: Command, stage: str) -> tuple[str, ...]:
    """The option that keeps a stage off the GPU, as this version of COLMAP names it; empty for a stage without one."""
    option = USE_GPU.search(help_of(program, stage))
    return (option[0], "0") if option else ()


def model_folders(workspace: str | Path) -> list[Path]:
    """The models of a workspace, that with the most images first."""
    others = Path(workspace) / "models"
    numbered = [folder for folder in others.iterdir() if folder.name.isdecimal()] if others.is_dir() else []
    return [Path(workspace) / "sparse", *sorted(numbered, key=lambda folder: int(folder.name))]


def names_in(model: Path) -> list[str]:
    """Names of the images of a model."""
    return [image.name for image in read_reconstruction(model).images.values()]


def _why_no_model(images: Path, database: Path, reason: str) -> str:
    """Why mapping failed, the matches that COLMAP had to work with, and what to photograph instead."""
    try:
        found = count_matches(database)
        most = max((pair.inliers for pair in read_matched_pairs(database)), default=0)
    except FileError:
        return reason
    counts = (
        f"{found.pairs:,} image pairs with matches, {found.verified:,} verified by COLMAP; "
        f"{found.matches:,} matches, {found.inliers:,} inliers"
    )
    if not found.verified:
        advice = "no two photos show the same things: take photos that share two thirds of their view with the next"
    elif most < FIRST_PAIR:
        advice = (
            f"no two photos share the {FIRST_PAIR} points to begin with (at most {most}): photograph in smaller steps,"
            " so that each photo shares two thirds of its view with the next, or try --keypoints 16000"
        )
    else:
        advice = (
            "the photos match, but without depth: do not turn on the spot or zoom, walk around what you photograph and"
            " take a step sideways for each photo, a tenth of the distance or more"
        )
    return f"{images}: {advice} ({counts}); {reason}"
