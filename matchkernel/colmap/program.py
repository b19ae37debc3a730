"""Run the program COLMAP stage by stage, and keep the largest model."""

import os
import re
import shutil
import subprocess
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


def find_colmap() -> str:
    """The path of COLMAP's program, or an error that explains how to install it."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    return program


def photos_of(folder: Path) -> dict[str, str]:
    """The photos of a folder with their sha256."""
    return {name: file_hash(path) for name, path in photos_in(folder).paths.items()}


@cache
def on_cpu(program: str, stage: str) -> tuple[str, ...]:
    """The option that keeps a stage off the GPU, as this version of COLMAP names it; empty for a stage without one."""
    command = [program, stage, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_offscreen(), check=False)
    option = USE_GPU.search(done.stdout + done.stderr)  # it depends on the version where this is printed
    return (option[0], "0") if option else ()


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
            pass_fds=(build.lock,),
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


def run_mapper(images: Path, build: Build, progress: Progress | None) -> None:
    """Reconstruct from the build's `database.db` with `colmap mapper`; the model with the most images is `sparse`."""
    program, database = find_colmap(), build.folder / "database.db"
    models = build.folder / "models"
    models.mkdir(exist_ok=True)
    paths = ["--database_path", str(database), "--image_path", str(images), "--output_path", str(models)]
    try:
        run_stage([program, "mapper", *paths, *on_cpu(program, "mapper")], build, progress)
        _keep_largest(models, build.folder / "sparse", images)
    except WorkError as error:
        raise WorkError(_why_no_model(images, database, error)) from None


def _keep_largest(models: Path, sparse: Path, images: Path) -> None:
    """Move the model with the most images to `sparse` and remove the others."""
    if not sparse.exists():
        found = [folder for folder in sorted(models.iterdir()) if folder.is_dir()]
        if not found:
            raise WorkError(f"{images}: COLMAP found no reconstruction; the images may not overlap")
        max(found, key=lambda folder: len(read_reconstruction(folder).images)).replace(sparse)
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
