"""What a workspace of a reconstruction holds and records, and what another run keeps of it."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from functools import cached_property, partial
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import numpy as np

from matchkernel.collection.given_features import photo_of
from matchkernel.collection.undistorted import MODEL_FILES, UNDISTORTED
from matchkernel.colmap.converted import jpeg_name, photo_names
from matchkernel.colmap.installed import MAPPERS
from matchkernel.colmap.program import UNDISTORTER, model_folders, names_in
from matchkernel.colmap.unregistered import Outcome, why_skipped
from matchkernel.errors import FileError
from matchkernel.photos.feature_files import NPZ_SUFFIX
from matchkernel.photos.features import load_features
from matchkernel.photos.match_files import check_matches, read_matches_of
from matchkernel.photos.pair_lists import Pair, read_pairs
from matchkernel.storage.files import LONG_TEXT, link_or_copy, read_small_text
from matchkernel.storage.folders import begun_with, recover, set_aside
from matchkernel.storage.photo_folders import MASKED, mask_of
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.work import Say

SUMMARY, PHOTOS, MATCHES, GPS = "summary.json", "photos.json", "matches.h5", "gps.txt"
OF_0_1 = frozenset({"keypoints", "matches.txt", "model_analyzer.log"})  # only version 0.1 wrote them
LEFT_BY_SYSTEMS = re.compile(r"\.DS_Store$|\._|Thumbs\.db$|desktop\.ini$")  # in folders that were looked at
LATER = frozenset(  # not written by the run itself
    {"database.db-journal", "database.db-shm", "database.db-wal", UNDISTORTED, f"{UNDISTORTER}.log"}
)
# What a run writes into a workspace, earlier versions too, and another run replaces; what else is there is the user's.
WRITTEN = OF_0_1.union(
    LATER,
    ("database.db", "sparse", "models", "features", "pairs.txt", MATCHES, "photos", PHOTOS, SUMMARY, GPS),
    ("points.ply", "model.png", "images.txt", "feature_importer.log", "matches_importer.log"),
    (f"{stage}.log" for stage in MAPPERS.values()),
)


@dataclass(frozen=True)
class Summary:
    """The result of a reconstruction."""

    images: int  # given
    registered: int  # images with a pose in the largest model
    points: int  # in that model
    observations: int  # of these points in images
    track_length: float  # mean number of images in which a point is seen
    error: float  # mean reprojection error in pixels
    # Images that could not be used, and pairs ("a b") that could not be matched, each with the reason.
    skipped: dict[str, str] = field(default_factory=dict)
    pairs: int = 0  # that were matched
    models: list[int] = field(default_factory=list)  # images of each model, the largest (`sparse`) first, then `models`
    ignored: dict[str, int] = field(default_factory=dict)  # number of files that are no photos, by kind
    unregistered: list[str] = field(default_factory=list)  # images that were used and are in no model
    refused: list[str] = field(default_factory=list)  # images that COLMAP did not take in
    reasons: dict[str, str] = field(default_factory=dict)  # why each image is in no model, and what to try


@dataclass(frozen=True)
class Finished:
    """A finished workspace: what it was made from, and what came out."""

    folder: Path
    settings: dict[str, Any]
    inputs: dict[str, Any]
    summary: dict[str, Any]
    recorded: Collection[str] | None = None  # names that the run wrote; earlier versions did not say

    @property
    def written(self) -> frozenset[str]:
        """Names in it that another run replaces; a name that none of its runs wrote is the user's."""
        if self.recorded is not None:
            return WRITTEN.intersection(self.recorded) | LATER
        others = set() if len(self.summary.get("models", ())) > 1 else {"models"}
        return WRITTEN - others - (OF_0_1 if "reasons" in self.summary else set())

    def keep_others(self, made: Iterable[str], say: Say) -> None:
        """Rename what no run wrote, or a folder that holds such files, where a new run has `made` these names."""
        for name in sorted((self.written | set(made)) - {UNDISTORTED}):
            path = self.folder / name
            if path.exists() and not (name in self.written and self._is_as_written(name)):
                say(f"{path}: holds what colmap did not write there; it is {set_aside(path)} now")

    def _is_as_written(self, name: str) -> bool:
        """True unless files of others lie in a folder of photos, of what is made of each, or of further models."""
        photos, numbers = self.inputs["photos"], range(1, len(self.summary.get("models", ())))
        ours = {
            "photos": {*photos, *map(jpeg_name, photos)},
            "features": {f"{photo}{NPZ_SUFFIX}" for photo in photos},
            "keypoints": {f"{photo}.txt" for photo in photos},
            "models": {f"{number}/{file}" for number in numbers for file in (*MODEL_FILES, "project.ini")},
        }
        folder = self.folder / name
        files = (path for path in folder.rglob("*") if not path.is_dir() and not LEFT_BY_SYSTEMS.match(path.name))
        return name not in ours or ours[name].issuperset(path.relative_to(folder).as_posix() for path in files)

    @property
    def skipped(self) -> dict[str, str]:
        """Images and pairs that could not be used, and why."""
        return dict(self.summary["skipped"])

    def check(self, settings: Mapping[str, Any], masks: Path | None) -> None:
        """Refuse to replace a workspace that was made in another way."""
        if differences := describe_differences(self.settings, dict(settings)):
            raise FileError(f"{self.folder}: already exists, {differences}; remove it or choose another place")
        if masks is None and any(MASKED in digest for digest in self.inputs["photos"].values()):
            raise FileError(f"{self.folder}: already exists, made with masks; give --masks, or choose another place")

    @cached_property
    def in_models(self) -> list[str]:
        """Names of the images in all models."""
        return [name for model in model_folders(self.folder) for name in names_in(model)]

    @property
    def damage(self) -> str | None:
        """Why its models cannot be read, or None."""
        try:
            return None if self.in_models else f"{self.folder / 'sparse'}: has no images"
        except FileError as error:
            return str(error)

    def is_made_from(self, inputs: dict[str, Any], skipped: Mapping[str, str]) -> bool:
        """Whether it is whole and was made from just these inputs."""
        return self.inputs == inputs and self.skipped.keys() == skipped.keys() and self.damage is None

    def unchanged(self, images: Path, masks: Path | None, say: Say) -> Summary:
        """The summary, with a line that says why nothing was done."""
        photos = self.inputs["photos"]
        if self.skipped:
            say(f"{self.folder}: stays as it was; what was skipped then ({len(self.skipped)}) still cannot be used")
        else:
            say(f"{self.folder}: all {len(photos)} photos are in it already")
        used = photos.keys() - self.skipped.keys() - set(self.summary.get("refused", ()))
        registered = photo_names(self.in_models, used)
        unregistered = sorted(used.difference(registered.values()))  # earlier summaries lack this, or the reasons
        reasons = self.summary.get("reasons")
        if reasons is None:
            refused = self.summary.get("refused", ())
            reasons = why_in_no_model(self.folder, images, masks, photos, self.skipped, refused, unregistered)
        return Summary(**{**self.summary, "unregistered": unregistered, "reasons": reasons})


def read_finished(folder: Path) -> Finished | None:
    """What a workspace records; None if there is none. One that is not ours is refused."""
    if not folder.exists():
        return None
    try:
        facts = dict(json.loads(read_small_text(folder / SUMMARY, LONG_TEXT, what="a summary")))
        settings, inputs, recorded = dict(facts.pop("settings")), dict(facts.pop("inputs")), facts.pop("written", None)
        dict(inputs["photos"]), dict(facts["skipped"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        raise FileError(f"{folder}: already exists; remove it or choose another place") from None
    return Finished(folder, settings, inputs, _known(facts, folder), recorded if isinstance(recorded, list) else None)


def _known(facts: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """The fields of a Summary; what a newer version recorded besides is left out, what is of another type refused."""
    known, kinds = {one.name: facts[one.name] for one in fields(Summary) if one.name in facts}, get_type_hints(Summary)
    for name, value in known.items():
        kind = get_origin(kinds[name]) or kinds[name]
        if not isinstance(value, (int, float) if kind is float else kind):
            raise FileError(f"{folder / SUMMARY}: {name} must be of the type {kind.__name__}")
    return known


def model_of_workspace(workspace: Path) -> str:
    """Name of the model that a workspace was made or begun with; empty if there is none."""
    recover(workspace)
    with suppress(FileError):  # not ours: said before anything is written
        finished = read_finished(workspace)
        return str((begun_with(workspace) if finished is None else finished.settings).get("model", ""))
    return ""


def reuse(
    folder: Path, digests: Mapping[str, str], finished: Finished | None, given: Mapping[str, Path], say: Say
) -> None:
    """Keep features of unchanged photos: of an interrupted run, of the finished workspace, and of the user's folder."""
    features = folder / "features"
    for path in sorted(features.rglob(f"*{NPZ_SUFFIX}")):
        name = path.relative_to(features).as_posix().removesuffix(NPZ_SUFFIX)
        if name not in digests or photo_of(path) != digests[name] or _damage(path):
            for made in (name, jpeg_name(name)):
                (folder / "photos" / made).unlink(missing_ok=True)
            path.unlink(missing_ok=True)  # last: its presence shows that something may have to be removed
    if _damage(folder / MATCHES):
        (folder / MATCHES).unlink()
    if finished is not None:
        _reuse_finished(folder, digests, finished, say)
    for name, path in given.items():
        link_or_copy(path, features / f"{name}{NPZ_SUFFIX}")


def _reuse_finished(folder: Path, digests: Mapping[str, str], finished: Finished, say: Say) -> None:
    """Take features and matches of a finished workspace, unless they are damaged, and say what is new."""
    features, before = folder / "features", finished.inputs["photos"]
    same = [name for name in digests if before.get(name) == digests[name]]
    gone = len(before.keys() - digests.keys())
    if finished.damage:
        say(f"made again: {finished.damage}")
    say(f"taking in {len(digests) - len(same)} new or changed photos, {len(same)} are known, {gone} are gone")
    if again := [what for what in finished.skipped if what in digests or _is_pair(what, digests)]:
        say(f"trying again what was skipped ({len(again)})")
    kept = {finished.folder / "features" / f"{name}{NPZ_SUFFIX}": features / f"{name}{NPZ_SUFFIX}" for name in same}
    for source, target in {**kept, finished.folder / MATCHES: folder / MATCHES}.items():
        if (damage := _damage(source)) is None:
            link_or_copy(source, target)
        else:
            say(f"made again: {damage}")


def _damage(path: Path) -> str | None:
    """Why the features or matches of a workspace cannot be read; None if they can, or are not there."""
    try:
        if path.exists():
            check_matches(path) if path.name == MATCHES else load_features(path)
    except FileError as error:
        return str(error)
    return None


def _is_pair(text: str, names: Collection[str]) -> bool:
    """True if a text is two of these names with a space between them; each may have spaces itself."""
    parts = text.split(" ")
    return any(" ".join(parts[:k]) in names and " ".join(parts[k:]) in names for k in range(1, len(parts)))


def why_in_no_model(
    folder: Path,
    images: Path,
    masks: Path | None,
    photos: Collection[str],
    skipped: Mapping[str, str],
    refused: Iterable[str],
    unregistered: Iterable[str],
) -> dict[str, str]:
    """A sentence for each photo that is in no model."""
    masked = [name for name in photos if mask_of(name, masks)]
    tried = [pair for pair in read_pairs(folder / "pairs.txt") if not skipped.keys() & {*pair, " ".join(pair)}]
    models = model_folders(folder)
    outcome = Outcome(folder / "database.db", models, tried, partial(matches_of, folder / MATCHES), photos, masked)
    reasons = {
        name: why_skipped(reason.removeprefix(f"{images / name}: "))
        for name, reason in skipped.items()
        if name in photos  # not a pair
    }
    reasons |= dict.fromkeys(refused, "COLMAP cannot read it; save it as JPEG")
    return dict(sorted((reasons | {name: outcome.why(name) for name in unregistered}).items()))


def matches_of(file: Path, of: Sequence[Pair]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Names and (M, 2) matches of these pairs."""
    return ((*found.names, found.indices) for found in read_matches_of(file, of))
