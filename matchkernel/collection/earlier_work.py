"""Features and matches of earlier runs that a reconstruction need not compute again."""

from collections.abc import Collection
from pathlib import Path

from matchkernel.collection.extract import IMAGE_HASH, ExtractJob, Extractor, check_same_settings
from matchkernel.collection.workspace import MATCHES, Finished, link_or_copy
from matchkernel.errors import FileError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import Describer
from matchkernel.photos.features import Store, read_facts
from matchkernel.photos.files import SUFFIX
from matchkernel.storage.progress import Say


def drop_other_photos(folder: Path, now: dict[str, str]) -> None:
    """Remove what an interrupted run has left of photos that have changed since or are gone."""
    for path in sorted((folder / "features").rglob(f"*{SUFFIX}")):
        name = path.relative_to(folder / "features").as_posix().removesuffix(SUFFIX)
        if name not in now or _photo_of(path) != now[name]:
            for old in (folder / "photos" / name, folder / "keypoints" / f"{name}.txt", path):  # it tells, so goes last
                old.unlink(missing_ok=True)


def _photo_of(features: Path) -> str | None:
    """The digest of the photo that features were made from; None if they do not tell."""
    try:
        return read_facts(features)[1].get(IMAGE_HASH)
    except FileError:
        return None


def take_over(before: Finished | None, now: dict[str, str], folder: Path, say: Say) -> None:
    """Take what is known of unchanged photos from the finished workspace, if there is one."""
    if before is None:
        return
    same = [name for name in now if before.inputs["photos"].get(name) == now[name]]
    gone = len(before.inputs["photos"].keys() - now.keys())
    say(f"taking in {len(now) - len(same)} new or changed photos, {len(same)} are known, {gone} are gone")
    if again := [what for what in before.summary["skipped"] if what in now or _is_pair(what, now)]:
        say(f"trying again what was skipped ({len(again)})")
    for name in same:
        for part in (Path("features") / f"{name}{SUFFIX}", Path("keypoints") / f"{name}.txt"):
            link_or_copy(before.folder / part, folder / part)
    link_or_copy(before.folder / MATCHES, folder / MATCHES)


def _is_pair(what: str, names: Collection[str]) -> bool:
    """Whether words are two of these names, each of which may have spaces."""
    words = what.split(" ")
    return any(" ".join(words[:k]) in names and " ".join(words[k:]) in names for k in range(1, len(words)))


def folder_of_features(place: str | Path | None) -> Path | None:
    """The folder given for features, if it is one."""
    if place is None or Path(place).is_dir():
        return None if place is None else Path(place)
    reason = "is not a folder" if Path(place).exists() else "no such folder"
    raise FileError(f"{place}: {reason}; features are taken from a folder that `matchkernel extract` wrote")


def features_to_take(
    place: Path | None, now: dict[str, str], describer: Describer, detector: Detector, store: Store, say: Say
) -> dict[str, Path]:
    """The features that a folder has of these photos; those made with other settings are refused."""
    if place is None:
        return {}
    facts = Extractor(describer, ExtractJob(detector, place, store)).facts
    files = {name: place / f"{name}{SUFFIX}" for name in now}
    taken = {name: path for name, path in files.items() if _photo_of(path) == now[name]}
    for name, path in taken.items():
        check_same_settings(*read_facts(path), facts, name, place, advice="give the same settings here")
    say(f"taking features of {len(taken)} of {len(now)} photos from {place}")
    return taken


def take_features(taken: dict[str, Path], out: Path) -> None:
    """Put features that a folder has among those of a build."""
    for name, path in taken.items():
        link_or_copy(path, out / f"{name}{SUFFIX}")
