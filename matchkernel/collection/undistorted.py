"""Photos of a finished reconstruction without distortion, as trainers of Gaussian splats read them."""

import io
from pathlib import Path

from matchkernel.colmap.installed import Command
from matchkernel.colmap.program import UNDISTORTER, Colmap, names_in
from matchkernel.errors import FileError
from matchkernel.storage.folders import Build, locked_for_building, new_folder, set_aside
from matchkernel.storage.work import Progress, Say

UNDISTORTED = "undistorted"
MODEL_FILES = (*(f"{name}.bin" for name in ("cameras", "frames", "images", "points3D", "rigs")), "points3D.ply")


def undistort_workspace(images: Path, workspace: Path, program: Command, say: Say, progress: Progress) -> None:
    """Write `<workspace>/undistorted`, unless it is there: see Colmap.undistort."""
    target = workspace / UNDISTORTED
    if target.exists():
        say(f"{target}: is there already")
        return
    with locked_for_building(workspace) as lock, new_folder(target) as part:
        say("colmap image_undistorter")
        colmap = Colmap(Build(part, set(), lock, io.StringIO()), progress, program, logs=workspace)
        named = colmap.undistort(images, workspace / "photos", workspace / "sparse", part)
    say(f"{len(named)} photos without distortion, and their model -> {target}")


def give_way(workspace: Path, say: Say) -> None:
    """Say that `<workspace>/undistorted` goes with its model; one that a trainer has written into is renamed."""
    folder = workspace / UNDISTORTED
    if not folder.exists():
        return
    if _is_as_written(folder):
        say(f"{folder}: was of the old model and is removed; --undistort makes it of the new one")
        return
    other = set_aside(folder)
    say(f"{folder}: is of the old model and holds other files; it is {other} now, --undistort makes it of the new one")


def _is_as_written(folder: Path) -> bool:
    """True if nothing was added to what undistort_workspace has written."""
    try:
        images = names_in(folder / "sparse" / "0")
    except FileError:
        return False
    ours = {f"{UNDISTORTER}.log", "images", "sparse", "sparse/0"}
    ours |= {f"images/{name}" for name in images} | {f"sparse/0/{name}" for name in MODEL_FILES}
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")} <= ours
