"""Features of a collection as they lie on disk: a folder of .npz files, or a features.h5 in hloc's layout."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.collection.shards import key_of
from matchkernel.errors import FileError
from matchkernel.photos.features import Features, load_features
from matchkernel.photos.hloc import image_names, read_features, recorded_facts
from matchkernel.storage.arrays import read_npz

H5_SUFFIXES = (".h5", ".hdf5")
SUFFIX = ".npz"
FACTS_AT_A_TIME = 1000  # images whose settings are in memory
IMAGE_HASH = "image_sha256"  # of the photo, recorded among the settings of the features


@dataclass(frozen=True)
class FeatureFiles:
    """The features that a place holds.

    Attributes:
        place: folder or .h5.
        names: of the images, sorted.
    """

    place: Path
    names: list[str]

    def load(self, name: str) -> Features:
        """The features of one image; without regions, as most networks write them, these are small squares."""
        if is_h5(self.place):
            return read_features(self.place, name, need_regions=False)
        return load_features(self.place / f"{name}{SUFFIX}")


def open_features(place: str | Path) -> FeatureFiles:
    """Look which images a folder of .npz files or an .h5 holds features of; none are refused."""
    place = Path(place)
    if is_h5(place):
        names = image_names(place)
    elif place.is_dir():
        names = names_in(place)
    else:
        reason = "is neither a folder nor an .h5" if place.exists() else "no such file or folder"
        raise FileError(f"{place}: {reason}; features are what `matchkernel extract` writes")
    if not names:
        raise FileError(f"{place}: contains no features")
    return FeatureFiles(place, names)


def names_in(folder: Path) -> list[str]:
    """Names of the images that a folder holds .npz files of, sorted."""
    paths = (path for path in folder.rglob(f"*{SUFFIX}") if path.is_file() and not path.name.startswith("."))
    return sorted(path.relative_to(folder).as_posix().removesuffix(SUFFIX) for path in paths)


def is_h5(place: Path) -> bool:
    """Whether features at this place are one HDF5 file, by its name."""
    return place.suffix.lower() in H5_SUFFIXES


def feature_digests(files: FeatureFiles, names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the features of images; and the images without usable ones, with the reason.

    Features that this package made are told by what they were made from: photo, model and settings. Of others the
    numbers are read.
    """
    found: dict[str, str] = {}
    bad: dict[str, str] = {}
    there, wanted = set(files.names), sorted(set(names))
    for start in range(0, len(wanted), FACTS_AT_A_TIME):
        some = wanted[start : start + FACTS_AT_A_TIME]
        known = recorded_facts(files.place, there.intersection(some)) if is_h5(files.place) else {}
        for name in some:
            try:
                if name not in there:
                    raise FileError(f"{files.place}: contains no features of {name}")
                facts = known[name] if is_h5(files.place) else facts_of(files.place / f"{name}{SUFFIX}")
                is_made = IMAGE_HASH in facts.get("settings", {})
                found[name] = key_of(facts["model"], facts["settings"]) if is_made else _contents(files.load(name))
            except FileError as error:
                bad[name] = str(error)
    return found, bad


def facts_of(path: Path) -> dict[str, Any]:
    """What a file of features says about itself: `model` and `settings`."""
    text = read_npz(path, ("facts",), "a file of features")["facts"]
    try:
        facts = json.loads(str(text))
        return {"model": str(facts["model"]), "settings": dict(facts["settings"])}
    except (LookupError, ValueError, TypeError, RecursionError):
        raise FileError(f"{path}: what it says about itself cannot be read") from None


def _contents(features: Features) -> str:
    digest = hashlib.sha256()
    for array in (features.keypoints, features.frames.shapes, features.descriptors):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
