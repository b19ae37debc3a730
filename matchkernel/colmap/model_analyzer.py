"""What `colmap model_analyzer` says of a model."""

import re
import subprocess
from pathlib import Path
from typing import Any

from matchkernel.colmap.program import find_colmap
from matchkernel.errors import WorkError

# What `colmap model_analyzer` prints, by the names we give them.
ANALYZED = {
    "registered": r"Registered images: (\d+)",
    "points": r"Points: (\d+)",
    "observations": r"Observations: (\d+)",
    "track_length": r"Mean track length: ([\d.]+)",
    "error": r"Mean reprojection error: ([\d.]+)px",
}


def analyze(sparse: str | Path, program: str | None = None) -> dict[str, Any]:
    """Registered images, points, observations, mean track length and error of a model, from `colmap model_analyzer`."""
    command = [program or find_colmap(), "model_analyzer", "--path", str(sparse)]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    said = done.stdout + done.stderr  # it depends on the version where this is printed
    found = {name: re.search(pattern, said) for name, pattern in ANALYZED.items()}
    missing = [name for name, match in found.items() if match is None]
    if done.returncode or missing:
        raise WorkError(
            f"colmap model_analyzer did not describe {sparse}: exit code {done.returncode}, no {missing} in its output"
        )
    return {
        name: (float if name in ("track_length", "error") else int)(match[1]) for name, match in found.items() if match
    }
