"""COLMAP's own program: found, run stage by stage, its largest model kept."""

import os
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import FileError, MissingExtraError, WorkError
from matchkernel.storage.files import file_hash
from matchkernel.storage.folders import Build
from matchkernel.storage.images import SUFFIXES
from matchkernel.storage.progress import Progress

INSTALL = "COLMAP is not installed; on Debian and Ubuntu: apt-get install colmap (or see colmap.github.io/install.html)"
COUNTED = re.compile(r"\[(\d+)/(\d+)\]")
USE_GPU = re.compile(r"--(Sift|Feature)(Extraction|Matching)\.use_gpu\b")  # Feature from COLMAP 3.13 on, without alias


def find_colmap() -> str:
    """The path of COLMAP's program, or an error that says how to install it."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    return program


def photos_of(folder: Path) -> dict[str, str]:
    """The photos of a folder with their sha256."""
    if not folder.is_dir():
        raise FileError(
            f"{folder}: " + ("is a file, a folder of photos is wanted" if folder.exists() else "no such folder")
        )
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file()]
    return {str(path.relative_to(folder)): file_hash(path) for path in paths}


@cache
def on_cpu(program: str, stage: str) -> tuple[str, ...]:
    """The words that keep a stage off the GPU, as this COLMAP names them; none for a stage without the option."""
    command = [program, stage, "--help"]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", env=_offscreen(), check=False)
    option = USE_GPU.search(done.stdout + done.stderr)  # versions differ in where they say it
    return (option[0], "0") if option else ()


def run_stage(command: list[str], build: Build, progress: Progress | None) -> None:
    """Run a stage, its output into a log; COLMAP counts what it does as [3/11], which becomes progress."""
    log = build.folder / f"{command[1]}.log"
    # The lock goes with the program: should this process be killed, nobody else builds while COLMAP still writes.
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
        last = [line for line in log.read_text(encoding="utf-8").splitlines() if line.strip()][-1:]
        reason = " ".join(last)[:200]
        raise WorkError(f"colmap {command[1]} failed with code {process.returncode}: {reason} (all of it in {log})")


def keep_largest(models: Path, sparse: Path, photos: Path) -> None:
    """Move the model with the most photos to `sparse` and remove the others."""
    if not sparse.exists():
        found = [folder for folder in sorted(models.iterdir()) if folder.is_dir()]
        if not found:
            raise WorkError(f"{photos}: COLMAP found no reconstruction; the photos may not overlap")
        max(found, key=lambda folder: len(read_reconstruction(folder).images)).replace(sparse)
    shutil.rmtree(models)


def _offscreen() -> dict[str, str]:
    return {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
