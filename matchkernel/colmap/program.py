"""Run the program COLMAP stage by stage: features or an import, matching, mapping, and what a model contains."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.colmap.database import count_matches, numbered_images, read_image_names, write_matches
from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import FileError, MissingExtraError, WorkError
from matchkernel.storage.folders import Build
from matchkernel.storage.work import Progress

INSTALL = "COLMAP is not installed; on Debian and Ubuntu: apt-get install colmap (or see colmap.github.io/install.html)"
COUNTED = re.compile(r"\[(\d+)/(\d+)\]")
STACK = re.compile(r"@ |\*\*\*|PC: @")  # lines of the stack trace that COLMAP prints when it crashes
USE_GPU = re.compile(r"--(Sift|Feature)(Extraction|Matching)\.use_gpu\b")  # Feature from COLMAP 3.13 on, without alias
MAPPERS = {"incremental": "mapper", "global": "global_mapper"}  # what COLMAP calls them
OLD_CAMERA_MODELS = (  # that every COLMAP has
    *("SIMPLE_PINHOLE", "PINHOLE", "SIMPLE_RADIAL", "RADIAL", "OPENCV", "OPENCV_FISHEYE", "FULL_OPENCV", "FOV"),
    *("SIMPLE_RADIAL_FISHEYE", "RADIAL_FISHEYE", "THIN_PRISM_FISHEYE"),
)
SMALLEST_MODEL = 3  # images; COLMAP's own limit, 10, would drop the models of small scenes
ANALYZED = {  # what `colmap model_analyzer` prints, and its type
    "registered": (r"Registered images: (\d+)", int),
    "points": (r"Points: (\d+)", int),
    "observations": (r"Observations: (\d+)", int),
    "track_length": (r"Mean track length: ([\d.]+)", float),
    "error": (r"Mean reprojection error: ([\d.]+)px", float),
}


def find_colmap() -> str:
    """The path of COLMAP's program, or an error that explains how to install it."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    return program


def find_mapper(program: str, kind: str) -> str:
    """The stage of an "incremental" or "global" mapper, or an error if the installed COLMAP does not have it."""
    stage = MAPPERS[kind]
    if kind != "incremental" and not re.search(rf"^\s+{stage}\s*$", _help(program, "help"), re.MULTILINE):
        raise MissingExtraError(
            f"the {kind} mapper needs COLMAP 4 ({_version(program)}); leave --mapper out for the usual one"
        )
    return stage


def on_cpu(program: str, stage: str) -> tuple[str, ...]:
    """The option that keeps a stage off the GPU, as this version of COLMAP names it; empty for a stage without one."""
    option = USE_GPU.search(_help(program, stage))
    return (option[0], "0") if option else ()


def check_camera_model(program: str, model: str) -> None:
    """Refuse a camera model that the installed COLMAP does not have; newer ones are tried on an empty folder."""
    if model in OLD_CAMERA_MODELS:
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = {"image_path": folder, "import_path": folder, "database_path": f"{folder}/empty.db"}
        code, text = _output(program, "feature_importer", *_words({**paths, "ImageReader.camera_model": model}))
    if code and re.search(r"ExistsCameraModel|[Cc]amera model does not exist", text):
        raise MissingExtraError(f"camera model {model} needs a newer COLMAP ({_version(program)})")


def analyze(sparse: str | Path) -> dict[str, Any]:
    """Registered images, points, observations, mean track length and error of a model, from `colmap model_analyzer`."""
    code, text = _output(find_colmap(), "model_analyzer", "--path", str(sparse))
    found = {name: re.search(pattern, text) for name, (pattern, _) in ANALYZED.items()}
    missing = [name for name, match in found.items() if match is None]
    if code or missing:
        raise WorkError(
            f"colmap model_analyzer did not describe {sparse}: exit code {code}, no {missing} in its output"
        )
    return {name: ANALYZED[name][1](match[1]) for name, match in found.items() if match}


@dataclass(frozen=True)
class Colmap:
    """COLMAP at work on `database.db` of a folder that is being built.

    Attributes:
        build: the folder, in which every stage also writes a log.
        progress: called with the numbers done and in total that a stage prints, such as [3/11].
        program: the path of COLMAP's program.
    """

    build: Build
    progress: Progress | None = None
    program: str = field(default_factory=find_colmap)

    @property
    def database(self) -> Path:
        """The database of all stages."""
        return self.build.folder / "database.db"

    def run(self, stage: str, options: Mapping[str, object]) -> None:
        """Run a stage on the database, without a GPU.

        Args:
            stage: such as "feature_extractor".
            options: by COLMAP's names without the leading dashes; `database_path` is added.
        """
        command = [self.program, stage, *_words({"database_path": self.database, **options})]
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
                env=_offscreen(),
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

    def import_images(self, images: Path, names: Sequence[str], cameras: Mapping[str, object]) -> list[str]:
        """Make a new database with the photos and their cameras, and without keypoints.

        Args:
            images: folder of the photos.
            names: of the photos.
            cameras: options of COLMAP's ImageReader, such as `single_camera`.

        Returns:
            The names of photos that COLMAP did not take in.
        """
        for path in self.build.folder.glob("database.db*"):  # of an interrupted run, or without some of the photos
            path.unlink()
        listed = self.build.folder / "images.txt"
        listed.write_text("".join(f"{name}\n" for name in names), encoding="utf-8")
        with tempfile.TemporaryDirectory() as folder:
            for name in names:
                path = Path(folder) / f"{name}.txt"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text("0 128\n", encoding="ascii")  # no keypoints; without this file COLMAP skips the photo
            paths = {"image_path": images, "import_path": folder, "image_list_path": listed}
            options = {f"ImageReader.{name}": value for name, value in cameras.items()}
            self.run("feature_importer", {**paths, **options})
        taken = read_image_names(self.database)
        return [name for name in names if name not in taken]

    def verify_matches(self, matches: Iterable[tuple[str, str, np.ndarray]]) -> bool:
        """Write matches into the database, where COLMAP verifies them; False if no pair has a match.

        Args:
            matches: names of two images and (M, 2) row in A and row in B.
        """
        pairs = write_matches(self.database, matches)
        if not pairs:
            return False
        listed = self.build.folder / "verified_pairs.txt"
        listed.write_text("".join(f"image{a} image{b}\n" for a, b in pairs), encoding="ascii")
        stage = "matches_importer"
        one_thread = self._options(stage, {"num_threads": 1})  # with more, RANSAC's samples would differ in each run
        with numbered_images(self.database):
            self.run(stage, {"match_list_path": listed, "match_type": "pairs", **one_thread})
        listed.unlink()
        return True

    def map(self, images: Path, stage: str = "mapper", options: Mapping[str, object] | None = None) -> None:
        """Reconstruct: the model with the most images becomes `sparse`, the others are numbered in `models`.

        Args:
            images: folder of the photos.
            stage: see find_mapper.
            options: such as `min_model_size`, without the prefix that the version has for it; one that it does not
                have is left out.
        """
        models, sparse = self.build.folder / "models", self.build.folder / "sparse"
        for folder in (models, sparse):  # of an interrupted run
            shutil.rmtree(folder, ignore_errors=True)
        models.mkdir()
        paths: dict[str, object] = {"image_path": images, "output_path": models}
        try:
            self.run(stage, {**paths, **self._options(stage, options or {})})
            _order(models, sparse, images)
        except WorkError as error:
            raise WorkError(_why_no_model(images, self.database, error)) from None

    def _options(self, stage: str, options: Mapping[str, object]) -> dict[str, object]:
        """Options with the prefix that this version has for them; those that it does not have are left out."""
        found = {name: re.search(rf"--([\w.]*\b{re.escape(name)})\b", _help(self.program, stage)) for name in options}
        return {match[1]: options[name] for name, match in found.items() if match}


def _words(options: Mapping[str, object]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name}", str(value))]


def _version(program: str) -> str:
    version = re.search(r"COLMAP (\d[\w.]*)", _help(program, "help"))
    return f"this one is {version[1]}" if version else program


@cache
def _help(program: str, stage: str) -> str:
    """COLMAP's list of all stages ("help"), or of the options of a stage."""
    return _output(program, *(["help"] if stage == "help" else [stage, "--help"]))[1]


def _output(*command: str) -> tuple[int, str]:
    """Exit code and output of a command; it depends on COLMAP's version to which of the streams it prints."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_offscreen(), check=False)
    return done.returncode, done.stdout + done.stderr


def _order(models: Path, sparse: Path, images: Path) -> None:
    """Move the model with the most images to `sparse`, and number the others from 1 by their size."""
    found = [folder for folder in sorted(models.iterdir()) if folder.is_dir()]
    if not found:
        raise WorkError(f"{images}: COLMAP found no reconstruction; the images may not overlap")
    sizes = {folder: len(read_reconstruction(folder).images) for folder in found}
    first, *others = sorted(found, key=lambda folder: -sizes[folder])
    first.replace(sparse)
    for number, folder in enumerate(others, 1):
        folder.replace(models / f"model-{number}")
    for number in range(1, len(others) + 1):
        (models / f"model-{number}").replace(models / str(number))
    if not others:
        shutil.rmtree(models)


def _why_no_model(images: Path, database: Path, error: WorkError) -> str:
    """Why mapping failed: COLMAP's own message, and the matches it had to work with, if they can be counted."""
    try:
        found = count_matches(database)
    except FileError:
        return str(error)
    counts = (
        f"{found.pairs:,} image pairs with matches, {found.verified:,} verified by COLMAP; "
        f"{found.matches:,} matches, {found.inliers:,} inliers"
    )
    if not found.verified:
        return f"{images}: COLMAP verified no pair of images, so nothing can be reconstructed ({counts})"
    return f"{error}; {counts}"


def _offscreen() -> dict[str, str]:
    return {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
