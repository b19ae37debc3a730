"""Digests of the features of a collection, by which matches are found again."""

import hashlib
from collections.abc import Iterable

import numpy as np

from matchkernel.collection.shards import key_of
from matchkernel.errors import FileError
from matchkernel.photos.features import Features, read_facts
from matchkernel.photos.files import SUFFIX, FeatureFiles, is_h5, recorded_facts

FACTS_AT_A_TIME = 1000  # images whose settings are in memory
IMAGE_HASH = "image_sha256"  # of the photo, recorded among the settings of the features


def feature_digests(files: FeatureFiles, names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the features of images; and the images without usable features, with the reason.

    Features of this package are identified by what they were made from: photo, model and settings. Features of other
    programs are identified by their values.
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
                if is_h5(files.place):
                    model, settings = known[name].get("model"), known[name].get("settings", {})
                else:
                    model, settings = read_facts(files.place / f"{name}{SUFFIX}")
                found[name] = key_of(model, settings) if IMAGE_HASH in settings else _contents(files.load(name))
            except FileError as error:
                bad[name] = str(error)
    return found, bad


def _contents(features: Features) -> str:
    digest = hashlib.sha256()
    for array in (features.keypoints, features.frames.shapes, features.descriptors):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()
