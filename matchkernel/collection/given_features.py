"""Features that the user extracted before: with which settings, and of which photos."""

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path

from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.errors import FileError, MatchKernelError
from matchkernel.geometry.detect import NETWORKS
from matchkernel.photos.extract import Describer, feature_facts
from matchkernel.photos.features import IMAGE_HASH, STORE, check_same_settings, read_facts
from matchkernel.photos.files import NPZ_SUFFIX
from matchkernel.storage.work import Say


def settings_of_features(folder: str | Path | None, settings: ReconstructSettings, say: Say) -> ReconstructSettings:
    """The settings; the detector's and the storage that are left at their defaults are those of the features."""
    if folder is None:
        return settings
    if not Path(folder).is_dir():
        reason = "is not a folder" if Path(folder).exists() else "no such folder"
        raise FileError(f"{folder}: {reason}; features are taken from a folder that `matchkernel extract` wrote")
    path = min(Path(folder).rglob(f"*{NPZ_SUFFIX}"), default=None)
    usual, detector = ReconstructSettings(), settings.detector
    try:
        stored = {} if path is None else read_facts(path)[1]
        known = {field.name: stored[field.name] for field in fields(detector) if field.name in stored}
        taken = {
            name: value
            for name, value in known.items()
            if name not in NETWORKS and getattr(detector, name) == getattr(usual.detector, name) != value
        }
        store = stored.get(STORE, "float32") if stored and settings.store == usual.store else settings.store
        found = replace(settings, detector=replace(detector, **taken).continuing(stored), store=store)
    except MatchKernelError:  # damaged, or not ours: said when its photo is read
        return settings
    if found != settings:
        say(f"with the settings of {folder}: {', '.join(f'{name} {value}' for name, value in taken.items()) or store}")
    return found


def given_features(
    folder: str | Path | None,
    describer: Describer,
    settings: ReconstructSettings,
    digests: Mapping[str, str],
    say: Say,
) -> dict[str, Path]:
    """The features that a folder has of these photos; features made with other settings are refused."""
    if folder is None:
        return {}
    folder, facts = Path(folder), feature_facts(describer, settings.detector, settings.store)
    paths = {name: folder / f"{name}{NPZ_SUFFIX}" for name in digests}
    found = {name: path for name, path in paths.items() if photo_of(path) == digests[name]}
    for name, path in found.items():
        check_same_settings(*read_facts(path), facts, name, folder, advice="give the same settings here")
    say(f"taking features of {len(found)} of {len(digests)} photos from {folder}")
    return found


def photo_of(features: Path) -> str | None:
    """The digest of the photo that features were made from; None if they cannot be read or do not record it."""
    try:
        return read_facts(features)[1].get(IMAGE_HASH)
    except FileError:
        return None
