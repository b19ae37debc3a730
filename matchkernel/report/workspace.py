"""A COLMAP workspace on a page: how many photos have a place, and a picture of the cameras and points."""

import json
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.report.blocks import Block, Picture, Section, TextTable
from matchkernel.storage.files import LONG_TEXT, read_small_text

PICTURE = "model.png"


def is_workspace(folder: Path) -> bool:
    """True for a folder that `matchkernel colmap` wrote."""
    return (folder / PICTURE).is_file()


def workspace_section(folder: Path) -> Section:
    """The section of a workspace."""
    try:
        facts: dict[str, Any] = json.loads(read_small_text(folder / "summary.json", LONG_TEXT, what="a summary"))
        images, registered, points, error = (facts[key] for key in ("images", "registered", "points", "error"))
        found = f"{registered} of {images} photos have a place, {points:,} points, {error:.2f} px off on average."
        reasons = tuple((str(name), str(why)) for name, why in dict(facts.get("reasons", {})).items())
    except (LookupError, TypeError, ValueError, RecursionError):
        raise FileError(f"{folder}: its summary.json is not that of matchkernel colmap") from None
    name, picture = folder.resolve().name, (folder / PICTURE).read_bytes()
    blocks: list[Block] = [Picture("Cameras and points", picture, note="Orange: cameras. All points: points.ply.")]
    if reasons:
        blocks.append(TextTable("Photos without a place", ("photo", "why, and what to try"), reasons))
    return Section(name, tuple(blocks), summary=f"{name}: {found}")
