"""Run the program COLMAP stage by stage."""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from matchkernel.colmap.database import count_matches
from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import FileError, MissingExtraError, WorkError
from matchkernel.storage.files import file_hash
from matchkernel.storage.folders import Build
from matchkernel.storage.photo_folders import photos_in
from matchkernel.storage.progress import Progress

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


def find_colmap() -> str:
    """The path of COLMAP's program, or an error that explains how to install it."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    return program


def photos_of(folder: Path) -> dict[str, str]:
    """The photos of a folder with their sha256."""
    return {name: file_hash(path) for name, path in photos_in(folder).paths.items()}


def on_cpu(program: str, stage: str) -> tuple[str, ...]:
    """The option that keeps a stage off the GPU, as this version of COLMAP names it; empty for a stage without one."""
    option = USE_GPU.search(_help(program, stage))
    return (option[0], "0") if option else ()


def option_of(program: str, stage: str, name: str, value: object) -> tuple[str, ...]:
    """An option such as `min_model_size` with the prefix that this version has for it; empty if it has none."""
    option = re.search(rf"--[\w.]*\b{re.escape(name)}\b", _help(program, stage))
    return (option[0], str(value)) if option else ()


def find_mapper(program: str, kind: str) -> str:
    """The stage that maps in this way, or an error if the installed COLMAP has none."""
    stage = MAPPERS[kind]
    if kind != "incremental" and not re.search(rf"^\s+{stage}\s*$", _help(program, "help"), re.MULTILINE):
        raise MissingExtraError(
            f"the {kind} mapper needs COLMAP 4 ({_version(program)}); leave --mapper out for the usual one"
        )
    return stage


def check_camera_model(program: str, model: str) -> None:
    """Refuse a camera model that the installed COLMAP does not have; newer ones are tried on an empty folder."""
    if model in OLD_CAMERA_MODELS:
        return
    with tempfile.TemporaryDirectory() as folder:
        paths = [f"--{name}" for name in ("image_path", "import_path")]
        words = [word for name in paths for word in (name, folder)] + ["--database_path", f"{folder}/empty.db"]
        command = [program, "feature_importer", *words, "--ImageReader.camera_model", model]
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_offscreen(), check=False)
    if done.returncode and re.search(r"ExistsCameraModel|[Cc]amera model does not exist", done.stdout + done.stderr):
        raise MissingExtraError(f"camera model {model} needs a newer COLMAP ({_version(program)})")


def _version(program: str) -> str:
    version = re.search(r"COLMAP (\d[\w.]*)", _help(program, "help"))
    return f"this one is {version[1]}" if version else program


@cache
def _help(program: str, stage: str) -> str:
    """What COLMAP says of a stage, or of all stages; it depends on the version where this is printed."""
    command = [program, "help"] if stage == "help" else [program, stage, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_offscreen(), check=False)
    return done.stdout + done.stderr


def run_stage(command: list[str], build: Build, progress: Progress | None) -> None:
    """Run a stage with its output in a log file; COLMAP's counters, such as [3/11], are reported as progress."""
    log = build.folder / f"{command[1]}.log"
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
            pass_fds=build.lock,
        ) as process,
    ):
        assert process.stdout is not None
        try:
            for line in process.stdout:
                output.write(line)
                counted = COUNTED.search(line)
                if counted and progress is not None:
                    progress(int(counted[1]), int(counted[2]))
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        lines = [line.strip() for line in log.read_text(encoding="utf-8").splitlines()]
        reason = next((line for line in reversed(lines) if line and not STACK.match(line)), "")[:200]
        raise WorkError(f"colmap {command[1]} failed with exit code {process.returncode}: {reason} (full log: {log})")


def run_mapper(
    images: Path, build: Build, progress: Progress | None, stage: str = "mapper", options: Sequence[str] = ()
) -> None:
    """Reconstruct from the build's `database.db`; the model with the most images is `sparse`, others are in `models`.

    Args:
        images: the folder of photos.
        build: the workspace.
        progress: called with COLMAP's counters.
        stage: of COLMAP, see find_mapper.
        options: of the stage.
    """
    program, database = find_colmap(), build.folder / "database.db"
    models, sparse = build.folder / "models", build.folder / "sparse"
    for folder in (models, sparse):  # of an interrupted run
        shutil.rmtree(folder, ignore_errors=True)
    models.mkdir()
    paths = ["--database_path", str(database), "--image_path", str(images), "--output_path", str(models)]
    try:
        run_stage([program, stage, *paths, *options, *on_cpu(program, stage)], build, progress)
        _order(models, sparse, images)
    except WorkError as error:
        raise WorkError(_why_no_model(images, database, error)) from None


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
