"""Run COLMAP: single stages, or a whole reconstruction from our keypoints and matches."""

import filecmp
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.colmap.database import (
    count_matches,
    has_key,
    numbered_images,
    read_image_names,
    write_key,
    write_keypoints,
    write_matches,
)
from matchkernel.colmap.installed import MAPPERS, find_colmap
from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import FileError, WorkError
from matchkernel.storage.files import link_or_copy, replacing
from matchkernel.storage.folders import Build
from matchkernel.storage.images import HEIC_SUFFIXES, as_jpeg
from matchkernel.storage.work import Progress, Say, help_of, offscreen, output_of

COUNTED = re.compile(r"\[(\d+)/(\d+)\]")
STACK = re.compile(r"@ |\*\*\*|PC: @")  # lines of the stack trace that COLMAP prints when it crashes
USE_GPU = re.compile(r"--(Sift|Feature)(Extraction|Matching)\.use_gpu\b")  # Feature from COLMAP 3.13 on, without alias
SMALLEST_MODEL = 3  # images; COLMAP's own limit, 10, would drop the models of small scenes
ANALYZED = {  # what `colmap model_analyzer` prints, and its type
    "registered": (r"Registered images: (\d+)", int),
    "points": (r"Points: (\d+)", int),
    "observations": (r"Observations: (\d+)", int),
    "track_length": (r"Mean track length: ([\d.]+)", float),
    "error": (r"Mean reprojection error: ([\d.]+)px", float),
}


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
    program: str = field(default_factory=find_colmap)

    @property
    def database(self) -> Path:
        """The database of all stages."""
        return self.build.folder / "database.db"

    def run(self, stage: str, options: Mapping[str, object]) -> None:
        """Run a stage such as "feature_extractor" on the database, without a GPU; options by COLMAP's names."""
        command = [self.program, stage]
        for name, value in {"database_path": self.database, **options}.items():
            command += [f"--{name}", str(value)]
        command += on_cpu(self.program, stage)
        log = self.build.folder / f"{stage}.log"
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
                    counted = COUNTED.search(line)
                    if counted and self.progress is not None:
                        self.progress(int(counted[1]), int(counted[2]))
            except BaseException:
                process.kill()
                raise
        if process.returncode:
            lines = [line.strip() for line in log.read_text(encoding="utf-8").splitlines()]
            reason = next((line for line in reversed(lines) if line and not STACK.match(line)), "")[:200]
            raise WorkError(f"colmap {stage} failed with exit code {process.returncode}: {reason} (full log: {log})")

    def reconstruct(self, photos: MatchedPhotos, mapper: str, say: Say) -> Models:
        """Import photos with their keypoints and matches, verify these, and map."""
        heic = [name for name in photos.names if name.lower().endswith(HEIC_SUFFIXES)]
        images = readable_photos(photos.folder, self.build.folder / "photos", photos.names, heic)
        if has_key(self.database, photos.key):
            taken = read_image_names(self.database)
        else:
            say("colmap feature_importer, matches_importer")
            taken = self._import(images, photos)
            if unread := [name for name in photos.names if name not in taken]:  # such as 16 bit colour
                images = readable_photos(photos.folder, self.build.folder / "photos", photos.names, unread)
                taken = self._import(images, photos)
            for name in sorted(set(photos.names) - taken):
                say(f"skipped {name}: COLMAP's feature_importer did not take it in")
            self._verify(photos, taken)
            write_key(self.database, photos.key)
        stage = MAPPERS[mapper]
        say(f"colmap {stage}")
        fixed = {"ba_refine_focal_length": 0, "ba_refine_extra_params": 0} if "camera_params" in photos.cameras else {}
        names = self.map(images, stage, {"min_model_size": SMALLEST_MODEL, **fixed})
        return Models(names, sorted(set(photos.names) - taken), analyze(self.build.folder / "sparse", self.program))

    def _import(self, images: Path, photos: MatchedPhotos) -> set[str]:
        """Make a new database with the photos and their cameras; returns the names of those that COLMAP takes in."""
        for path in self.build.folder.glob("database.db*"):  # of an interrupted run, or without some of the photos
            path.unlink()
        listed = self.build.folder / "images.txt"
        listed.write_text("".join(f"{name}\n" for name in photos.names), encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for name in photos.names:
                path = Path(folder) / f"{name}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("0 128\n", encoding="ascii")  # no keypoints; without this file COLMAP skips the photo
            paths = {"image_path": images, "import_path": folder, "image_list_path": listed}
            options = {f"ImageReader.{name}": value for name, value in photos.cameras.items()}
            self.run("feature_importer", {**paths, **options})
        return read_image_names(self.database)

    def _verify(self, photos: MatchedPhotos, taken: set[str]) -> None:
        """Write the keypoints and matches of the photos that were taken in, and let COLMAP verify the matches."""
        pairs = [pair for pair in photos.pairs if taken.issuperset(pair)]
        if not pairs:
            log = self.build.folder / "feature_importer.log"
            raise WorkError(f"{photos.folder}: COLMAP took in no two photos of a pair; see {log}")
        write_keypoints(self.database, ((name, photos.keypoints(name)) for name in sorted(taken)))
        matched = write_matches(self.database, photos.matches(pairs))
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
            raise WorkError(_why_no_model(images, self.database, str(error))) from None
        names = {folder: names_in(folder) for folder in sorted(found.iterdir()) if folder.is_dir()}
        if not names:
            reason = f"{images}: COLMAP found no reconstruction; the images may not overlap"
            raise WorkError(_why_no_model(images, self.database, reason))
        ordered = sorted(names, key=lambda folder: -len(names[folder]))
        ordered[0].replace(sparse)
        for number, folder in enumerate(ordered[1:], 1):
            others.mkdir(exist_ok=True)
            folder.replace(others / str(number))
        shutil.rmtree(found)
        return [names[folder] for folder in ordered]

    def _options(self, stage: str, options: Mapping[str, object]) -> dict[str, object]:
        """Options with the prefix that this version has for them; those that it does not have are left out."""
        found = {name: re.search(rf"--([\w.]*\b{re.escape(name)})\b", help_of(self.program, stage)) for name in options}
        return {match[1]: options[name] for name, match in found.items() if match}


def on_cpu(program: str, stage: str) -> tuple[str, ...]:
    """The option that keeps a stage off the GPU, as this version of COLMAP names it; empty for a stage without one."""
    option = USE_GPU.search(help_of(program, stage))
    return (option[0], "0") if option else ()


def readable_photos(images: Path, folder: Path, names: Sequence[str], unreadable: Collection[str]) -> Path:
    """The folder that COLMAP reads: the photos, or JPEGs of those that it cannot read and links to the others.

    JPEGs and links have the names of the photos; an interrupted run may have made some of them.
    """
    if not unreadable and not folder.exists():
        return images
    for name in names:
        target, source = folder / name, (images / name).resolve()
        if name in unreadable and (not target.exists() or filecmp.cmp(target, source, shallow=False)):
            with replacing(target) as part:
                part.write_bytes(as_jpeg(source))
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.symlink_to(source)
            except OSError:  # not every user of Windows may
                link_or_copy(source, target)
    return folder


def model_folders(workspace: str | Path) -> list[Path]:
    """The models of a workspace, that with the most images first."""
    others = Path(workspace) / "models"
    numbered = sorted(others.iterdir(), key=lambda folder: int(folder.name)) if others.is_dir() else []
    return [Path(workspace) / "sparse", *numbered]


def names_in(model: Path) -> list[str]:
    """Names of the images of a model."""
    return [image.name for image in read_reconstruction(model).images.values()]


def analyze(sparse: str | Path, program: str | None = None) -> dict[str, Any]:
    """Registered images, points, observations, mean track length and error of a model, from `colmap model_analyzer`."""
    code, text = output_of(program or find_colmap(), "model_analyzer", "--path", str(sparse))
    found = {name: re.search(pattern, text) for name, (pattern, _) in ANALYZED.items()}
    missing = [name for name, match in found.items() if match is None]
    if code or missing:
        raise WorkError(
            f"colmap model_analyzer did not describe {sparse}: exit code {code}, no {missing} in its output"
        )
    return {name: ANALYZED[name][1](match[1]) for name, match in found.items() if match}


def _why_no_model(images: Path, database: Path, reason: str) -> str:
    """Why mapping failed: the reason, and the matches that COLMAP had to work with, if they can be counted."""
    try:
        found = count_matches(database)
    except FileError:
        return reason
    counts = (
        f"{found.pairs:,} image pairs with matches, {found.verified:,} verified by COLMAP; "
        f"{found.matches:,} matches, {found.inliers:,} inliers"
    )
    if not found.verified:
        return f"{images}: COLMAP verified no pair of images, so nothing can be reconstructed ({counts})"
    return f"{reason}; {counts}"
