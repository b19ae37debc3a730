"""Photos of a finished reconstruction without distortion, as trainers of Gaussian splats read them."""

import io
from pathlib import Path

from matchkernel.colmap.installed import Command
from matchkernel.colmap.program import Colmap
from matchkernel.storage.folders import Build, new_folder
from matchkernel.storage.work import Progress, Say

UNDISTORTED = "undistorted"


def undistort_workspace(images: Path, workspace: Path, program: Command, say: Say, progress: Progress) -> None:
    """Write `<workspace>/undistorted`, unless it is there: see Colmap.undistort."""
    target = workspace / UNDISTORTED
    if target.exists():
        say(f"{target}: is there already")
        return
    say("colmap image_undistorter")
    with new_folder(target) as part:
        colmap = Colmap(Build(part, set(), (), io.StringIO()), progress, program)
        named = colmap.undistort(images, workspace / "photos", workspace / "sparse", part)
    say(f"{len(named)} photos without distortion, and their model -> {target}")
