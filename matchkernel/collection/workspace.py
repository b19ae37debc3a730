"""The folder that a reconstruction leaves: what is recorded in it, to add photos later."""

import filecmp
import json
import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matchkernel.collection.extract import IMAGE_HASH
from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import FileError
from matchkernel.photos.features import read_facts
from matchkernel.photos.files import SUFFIX
from matchkernel.storage.files import LONG_TEXT, read_small_text, replacing
from matchkernel.storage.images import as_jpeg
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.work import Say

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

    def is_same(self, inputs: dict[str, Any], skipped: Collection[str]) -> bool:
        """True if a run with these inputs that skips these photos and pairs would only repeat this workspace."""
        return self.inputs == inputs and self.summary["skipped"].keys() == set(skipped)

    def unchanged(self, say: Say) -> Summary:
        """The summary, with a line that says why nothing was done."""
        skipped, photos = self.summary["skipped"], self.inputs["photos"]
        if skipped:
            say(f"{self.folder}: stays as it was; what was skipped then ({len(skipped)}) still cannot be used")
        else:
            say(f"{self.folder}: all {len(photos)} photos are in it already")
        used = photos.keys() - skipped.keys() - set(self.summary.get("refused", ()))
        unregistered = sorted(used.difference(*names_by_model(self.folder)))  # a summary of earlier versions lacks it
        return Summary(**{**self.summary, "unregistered": unregistered})


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
    if differences := describe_differences(before, settings):
        raise FileError(f"{folder}: already exists, {differences}; remove it or choose another place")
    return Finished(folder, inputs, facts)


def remove_other_photos(folder: Path, photos: Mapping[str, str]) -> None:
    """Remove what an interrupted run has left of photos that have changed since or are gone."""
    for path in sorted((folder / "features").rglob(f"*{SUFFIX}")):
        name = path.relative_to(folder / "features").as_posix().removesuffix(SUFFIX)
        if name not in photos or photo_of(path) != photos[name]:
            (folder / "photos" / name).unlink(missing_ok=True)
            path.unlink(missing_ok=True)  # last: its presence shows that something may have to be removed


def photo_of(features: Path) -> str | None:
    """The digest of the photo that features were made from; None if they cannot be read or do not record it."""
    try:
        return read_facts(features)[1].get(IMAGE_HASH)
    except FileError:
        return None


def reuse_finished(finished: Finished, photos: Mapping[str, str], folder: Path, say: Say) -> None:
    """Link what a finished workspace knows of unchanged photos into a new one."""
    before = finished.inputs["photos"]
    same = [name for name in photos if before.get(name) == photos[name]]
    gone = len(before.keys() - photos.keys())
    say(f"taking in {len(photos) - len(same)} new or changed photos, {len(same)} are known, {gone} are gone")
    if again := [what for what in finished.summary["skipped"] if what in photos or _is_pair(what, photos)]:
        say(f"trying again what was skipped ({len(again)})")
    for name in same:
        part = Path("features") / f"{name}{SUFFIX}"
        link_or_copy(finished.folder / part, folder / part)
    link_or_copy(finished.folder / MATCHES, folder / MATCHES)


def _is_pair(text: str, names: Collection[str]) -> bool:
    """True if a text is two of these names with a space between them; each may have spaces itself."""
    parts = text.split(" ")
    return any(" ".join(parts[:k]) in names and " ".join(parts[k:]) in names for k in range(1, len(parts)))


def readable_photos(images: Path, folder: Path, names: Sequence[str], unreadable: Collection[str]) -> Path:
    """The folder that COLMAP reads: the photos, or JPEGs of those that it cannot read and links to the others.

    Args:
        images: the photos.
        folder: of the JPEGs and links, which have the names of the photos; an interrupted run may have filled it.
        names: of all photos.
        unreadable: names of photos that COLMAP cannot read.
    """
    if not unreadable and not folder.exists():
        return images
    for name in names:
        target, source = folder / name, (images / name).resolve()
        if name in unreadable and (not target.exists() or filecmp.cmp(target, source, shallow=False)):
            with replacing(target) as part:
                part.write_bytes(as_jpeg(source))
        elif not target.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.symlink_to(source)
            except OSError:  # not every user of Windows may
                link_or_copy(source, target)
    return folder


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
