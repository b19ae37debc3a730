"""A patch set from a folder of photos: COLMAP reconstructs the scene, from_colmap cuts the patches."""

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from matchkernel.data.building import Build, building, file_hash
from matchkernel.data.colmap_model import read_reconstruction
from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.images import SUFFIXES
from matchkernel.data.packed import PatchSet
from matchkernel.errors import FileError, MissingExtraError, WorkError

INSTALL = "COLMAP is not installed; on Debian and Ubuntu: apt-get install colmap (or see colmap.github.io/install.html)"
PHOTOS = "photos.json"  # which photos a reconstruction is of
COUNTED = re.compile(r"\[(\d+)/(\d+)\]")
EXHAUSTIVE_UP_TO = 120  # photos; beyond, every pair would take hours on a CPU


def build_from_photos(
    photos: str | Path,
    target: str | Path,
    settings: CutSettings | None = None,
    *,
    sequential: bool | None = None,
    say: Callable[[str], object] = lambda stage: None,
    progress: Callable[[int, int], object] | None = None,
) -> PatchSet:
    """Reconstruct photos with COLMAP into `<target>-colmap`, then cut patches into `target`.

    The reconstruction is kept: run again, it is not done again, and `from-colmap` can use it with other settings.

    Args:
        photos: folder of photos of one scene.
        target: folder to make.
        settings: how to choose and cut.
        sequential: match neighbours in the order of names instead of all pairs (default: for more than 120 photos).
        say: told each stage.
        progress: told how many of how many COLMAP or build_from_colmap has done.
    """
    photos, target = Path(photos), Path(target)
    if target.exists():
        raise FileError(f"{target}: exists already; remove it or choose another place")
    workspace = target.with_name(target.name + "-colmap")
    if not workspace.exists():
        reconstruct(photos, workspace, sequential=sequential, say=say, progress=progress)
    elif _recorded(workspace) != _photos(photos):
        raise FileError(
            f"{workspace}: is a reconstruction of other photos than {photos}; remove it or choose another place"
        )
    say("cutting patches")
    return build_from_colmap(
        photos, workspace / "sparse", workspace / "database.db", target, settings, progress=progress
    )


def reconstruct(
    photos: Path,
    workspace: Path,
    *,
    sequential: bool | None = None,
    say: Callable[[str], object] = lambda stage: None,
    progress: Callable[[int, int], object] | None = None,
) -> None:
    """Run COLMAP's feature extraction, matching and mapping on the CPU; keeps the model with the most photos."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    found = _photos(photos)
    if len(found) < 2:
        raise FileError(f"{photos}: {len(found)} photos ({', '.join(SUFFIXES)}) here, two are the least")
    by_name = len(found) > EXHAUSTIVE_UP_TO if sequential is None else sequential
    matcher = "sequential_matcher" if by_name else "exhaustive_matcher"
    with building(workspace, {"photos": found, "matcher": matcher}) as build:
        database, models = build.folder / "database.db", build.folder / "models"
        models.mkdir(exist_ok=True)
        common = ["--database_path", str(database)]
        stages = {
            "feature_extractor": [*common, "--image_path", str(photos), "--SiftExtraction.use_gpu", "0"],
            matcher: [*common, "--SiftMatching.use_gpu", "0"],
            "mapper": [*common, "--image_path", str(photos), "--output_path", str(models)],
        }
        for stage, arguments in stages.items():
            if stage not in build.done:
                how = ", neighbours by name; --no-sequential matches all pairs" if stage == "sequential_matcher" else ""
                say(f"colmap {stage} ({len(found)} photos{how})")
                _run([program, stage, *arguments], build, progress)
                build.mark(stage)
        _keep_largest(models, build.folder / "sparse", photos)
        (build.folder / PHOTOS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _photos(folder: Path) -> dict[str, str]:
    """The photos of a folder with their sha256."""
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    paths = [path for path in sorted(folder.rglob("*")) if path.suffix.lower() in SUFFIXES and path.is_file()]
    return {str(path.relative_to(folder)): file_hash(path) for path in paths}


def _recorded(workspace: Path) -> object:
    try:
        return json.loads((workspace / PHOTOS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def _run(command: list[str], build: Build, progress: Callable[[int, int], object] | None) -> None:
    """Run a stage, its output into a log; COLMAP counts what it does as [3/11], which becomes progress."""
    log = build.folder / f"{command[1]}.log"
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    # The lock goes with the program: should this process be killed, nobody else builds while COLMAP still writes.
    with (
        log.open("w", encoding="utf-8") as output,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
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


def _keep_largest(models: Path, sparse: Path, photos: Path) -> None:
    if not sparse.exists():
        found = [folder for folder in sorted(models.iterdir()) if folder.is_dir()]
        if not found:
            raise WorkError(f"{photos}: COLMAP found no reconstruction; the photos may not overlap")
        max(found, key=lambda folder: len(read_reconstruction(folder).images)).replace(sparse)
    shutil.rmtree(models)
