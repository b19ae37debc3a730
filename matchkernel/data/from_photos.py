"""A patch set from a folder of photos: COLMAP reconstructs the scene, from_colmap cuts the patches."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

from matchkernel.data.building import building
from matchkernel.data.colmap_model import read_reconstruction
from matchkernel.data.from_colmap import CutSettings, build_from_colmap
from matchkernel.data.images import SUFFIXES
from matchkernel.data.packed import PatchSet
from matchkernel.errors import FileError, MissingExtraError, WorkError

INSTALL = "COLMAP is not installed; on Debian and Ubuntu: apt-get install colmap (or see colmap.github.io/install.html)"
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
        progress: as for build_from_colmap.
    """
    photos, target = Path(photos), Path(target)
    if target.exists():
        raise FileError(f"{target}: exists already; remove it or choose another place")
    workspace = target.with_name(target.name + "-colmap")
    if not workspace.exists():
        reconstruct(photos, workspace, sequential=sequential, say=say)
    say("cutting patches")
    return build_from_colmap(
        photos, workspace / "sparse", workspace / "database.db", target, settings, progress=progress
    )


def reconstruct(
    photos: Path, workspace: Path, *, sequential: bool | None = None, say: Callable[[str], object] = lambda stage: None
) -> None:
    """Run COLMAP's feature extraction, matching and mapping on the CPU; keeps the model with the most photos."""
    program = shutil.which("colmap")
    if program is None:
        raise MissingExtraError(INSTALL)
    if not photos.is_dir():
        raise FileError(f"{photos}: no such folder")
    count = sum(path.suffix.lower() in SUFFIXES for path in photos.rglob("*"))
    if count < 2:
        raise FileError(f"{photos}: {count} photos ({', '.join(SUFFIXES)}) here, two are the least")
    matcher = (
        "sequential_matcher"
        if (count > EXHAUSTIVE_UP_TO if sequential is None else sequential)
        else "exhaustive_matcher"
    )
    with building(workspace, {"photos": str(photos.resolve()), "matcher": matcher}) as build:
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
                say(f"colmap {stage} ({count} photos)")
                _run(program, stage, arguments, build.folder / f"{stage}.log")
                build.mark(stage)
        _keep_largest(models, build.folder / "sparse", photos)


def _run(program: str, stage: str, arguments: list[str], log: Path) -> None:
    with log.open("w", encoding="utf-8") as output:
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
        done = subprocess.run(
            [program, stage, *arguments], stdout=output, stderr=subprocess.STDOUT, env=environment, check=False
        )
    if done.returncode:
        last = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()][-1:]
        raise WorkError(
            f"colmap {stage} failed with code {done.returncode}: {' '.join(last)[:200]} (all of it in {log})"
        )


def _keep_largest(models: Path, sparse: Path, photos: Path) -> None:
    found = [folder for folder in sorted(models.iterdir()) if folder.is_dir()]
    if not found:
        raise WorkError(f"{photos}: COLMAP found no reconstruction; the photos may not overlap")
    largest = max(found, key=lambda folder: len(read_reconstruction(folder).images))
    largest.replace(sparse)
    shutil.rmtree(models)
