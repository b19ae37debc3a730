"""The folder that a reconstruction leaves: what is recorded in it, to add photos later."""

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import FileError
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing
from matchkernel.storage.settings import describe_differences

SUMMARY, MATCHES = "summary.json", "matches.h5"


@dataclass(frozen=True)
class Summary:
    """The result of a reconstruction.

    Attributes:
        images: number of images given.
        registered: number of images with a pose in the largest model.
        points: number of points in that model.
        observations: number of observations of these points in images.
        track_length: mean number of images in which a point is seen.
        error: mean reprojection error in pixels.
        skipped: images that could not be used, and pairs ("a b") that could not be matched, each with the reason.
        pairs: number of pairs of images that were matched.
        models: number of images of every model, the largest (in `sparse`) first, then those in `models`.
        ignored: number of files that are no photos, by kind.
        unregistered: images that were used and are in no model.
        refused: images that COLMAP did not take in.
    """

    images: int
    registered: int
    points: int
    observations: int
    track_length: float
    error: float
    skipped: dict[str, str] = field(default_factory=dict)
    pairs: int = 0
    models: list[int] = field(default_factory=list)
    ignored: dict[str, int] = field(default_factory=dict)
    unregistered: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Finished:
    """A finished workspace: what it was made from, and what came out."""

    folder: Path
    inputs: dict[str, Any]
    summary: dict[str, Any]


def read_finished(folder: Path, settings: Mapping[str, Any]) -> Finished | None:
    """What a workspace records; None if there is none. One made with other settings, or not by us, is refused."""
    if not folder.exists():
        return None
    try:
        facts = dict(json.loads(read_small_text(folder / SUMMARY, LONG_TEXT, what="a summary")))
        before, inputs = dict(facts.pop("settings")), dict(facts.pop("inputs"))
        dict(inputs["photos"]), dict(facts["skipped"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise FileError(f"{folder}: already exists; remove it or choose another place") from None
    if told := describe_differences(before, settings):
        raise FileError(f"{folder}: already exists, {told}; remove it or choose another place")
    return Finished(folder, inputs, facts)


def model_folders(workspace: str | Path) -> list[Path]:
    """The models of a workspace, that with the most images first."""
    others = Path(workspace) / "models"
    numbered = sorted(others.iterdir(), key=lambda folder: int(folder.name)) if others.is_dir() else []
    return [Path(workspace) / "sparse", *numbered]


def names_by_model(workspace: str | Path) -> list[list[str]]:
    """Names of the images of every model, that with the most images first."""
    return [
        [image.name for image in read_reconstruction(folder).images.values()] for folder in model_folders(workspace)
    ]


def link_or_copy(source: Path, target: Path) -> None:
    """Make a file appear at another place too, if it exists and nothing is there; files are replaced, not changed."""
    if os.path.isfile(source) and not target.exists():  # noqa: PTH113 - False for a name too long
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(source, target)
        except OSError:  # another disk, or one without links
            with replacing(target) as part:
                shutil.copyfile(source, part)
