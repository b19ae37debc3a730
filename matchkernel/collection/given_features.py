"""Features that the user extracted before: by which model, with which settings, and of which photos."""

from collections.abc import Collection, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from matchkernel.collection.reconstruct_settings import ReconstructSettings
from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.geometry.detect import NETWORKS
from matchkernel.photos.extract import SIFTS, Describer, feature_facts
from matchkernel.photos.feature_files import NPZ_SUFFIX, first_facts
from matchkernel.photos.features import IMAGE_HASH, STORE, check_same_settings, read_facts
from matchkernel.runtime.config import ENGINES, TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.runtime.weights import available
from matchkernel.storage.photo_folders import MASKED
from matchkernel.storage.work import Say


def model_of_features(folder: Path) -> dict[str, str]:
    """The `model` and `engine` that made features; empty if the package does not have that model."""
    name, stored = _first_facts(folder)
    if name in SIFTS:
        return {"model": name}
    engine = stored.get(ENGINE, TORCH)
    return {"model": name, "engine": engine} if name in available() and engine in ENGINES else {}


def settings_of_features(
    folder: str | Path | None, settings: ReconstructSettings, say: Say, given: Collection[str] = ()
) -> ReconstructSettings:
    """The settings; the detector's and the storage that are left at their defaults are those of the features.

    Those whose names are in `given` stay as they are.
    """
    if folder is None:
        return settings
    usual, detector, stored = ReconstructSettings(), settings.detector, _first_facts(Path(folder))[1]
    known = {field.name: stored[field.name] for field in fields(detector) if field.name in stored}
    taken = {
        name: value
        for name, value in known.items()
        if name not in (*NETWORKS, *given) and getattr(detector, name) == getattr(usual.detector, name) != value
    }
    takes_store = stored and STORE not in given and settings.store == usual.store
    store = stored.get(STORE, "float32") if takes_store else settings.store
    try:
        found = replace(settings, detector=replace(detector, **taken).continuing(stored), store=store)
    except MatchKernelError:  # not ours: said when its photo is read
        return settings
    changed = taken if store == settings.store else {**taken, STORE: store}
    if changed:
        say(f"with the settings of {folder}: {', '.join(f'{name} {value}' for name, value in changed.items())}")
    return found


def _first_facts(folder: Path) -> tuple[str, dict[str, Any]]:
    """Model and settings of some features of a folder that can be read; nothing if there are none."""
    if not folder.is_dir():
        reason = "is not a folder" if folder.exists() else "no such folder"
        raise FileError(f"{folder}: {reason}; features are taken from a folder that `matchkernel extract` wrote")
    return first_facts(folder)


def given_features(
    folder: str | Path | None,
    describer: Describer,
    settings: ReconstructSettings,
    digests: Mapping[str, str],
    masks: Path | None,
    say: Say,
) -> dict[str, Path]:
    """The features that a folder has of these photos; features made with other settings, or masks, are refused."""
    if folder is None:
        return {}
    folder, facts = Path(folder), feature_facts(describer, settings.detector, settings.store)
    paths = {name: folder / f"{name}{NPZ_SUFFIX}" for name in digests}
    made_from = {name: photo_of(path) for name, path in paths.items()}
    if masks is None and any(MASKED in (digest or "") for digest in made_from.values()):
        raise ArgumentError(f"{folder}: its features were made with masks; give --masks, or choose another folder")
    found = {name: path for name, path in paths.items() if made_from[name] == digests[name]}
    for name, path in found.items():
        check_same_settings(*read_facts(path), facts, name, folder, advice="give the same --model and settings here")
    say(f"taking features of {len(found)} of {len(digests)} photos from {folder}")
    return found


def photo_of(features: Path) -> str | None:
    """The digest of the photo that features were made from; None if they cannot be read or do not record it."""
    try:
        return read_facts(features)[1].get(IMAGE_HASH)
    except FileError:
        return None
