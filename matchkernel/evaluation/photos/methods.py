"""Methods that find and match the keypoints of photos: our models, SIFT, hloc's files, and peers."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.methods import baseline
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import SAMPLER, Frames, extract_patches
from matchkernel.photos.extract import (
    CUT,
    FRAMES_AT_A_TIME,
    SIFTS,
    Describer,
    extract_with,
    open_describer,
    recorded_settings,
)
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.files import read_features, read_matches
from matchkernel.photos.guided import guided_matches
from matchkernel.photos.match import Filter, match, parse_filter
from matchkernel.photos.verify import verify
from matchkernel.runtime.config import TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.runtime.weights import available, read_card
from matchkernel.storage.files import file_hash

PEERS = ("aliked", "disk", "xfeat")  # what the names of peers start with
OURS, OPENCV = "Apache-2.0", "Apache-2.0 (OpenCV)"
UNKNOWN = "not stated"
UNTRAINED = "untrained"
MATCHING = ("filter", "matcher")  # keys of a method's settings that do not change its features
MARGIN = 1.0  # pixels that keypoints of hloc's files may lie outside the centres of the outermost pixels
IMAGE = "image"  # key of an image's name in the settings of its features


@dataclass(frozen=True)
class PhotoMethod:
    """A way to find and to match keypoints.

    Attributes:
        name: in tables.
        licence: of its weights or code.
        settings: everything that determines the result, JSON values; those of MATCHING only concern `match`.
        extract: (H, W) or (H, W, 3) uint8 pixels and the image's name -> features.
        match: features of two images -> matches, filtered.
        trained_on: names of the scenes that our weights learned from.
    """

    name: str
    licence: str
    settings: dict[str, Any]
    extract: Callable[[np.ndarray, str], Features] = field(repr=False)
    match: Callable[[Features, Features], Matches] = field(repr=False)
    trained_on: frozenset[str] = frozenset()


@dataclass(frozen=True)
class MethodSpec:
    """What a method is opened from; it can be sent to other processes.

    Attributes:
        text: a name or weight file of ours; "untrained:NAME", a descriptor with random weights; "sift" or "rootsift";
            "NAME:FILE", a patch descriptor among the baselines and its weight file, such as "hardtfeat:HardTFeat.pth";
            "hloc:FEATURES.h5", whose descriptors are matched, or "hloc:FEATURES.h5,MATCHES.h5"; or the name of a peer
            (see peers.py).
        detector: how keypoints are found; peers and hloc's files only use its number of keypoints.
        filter: which mutual nearest neighbours are kept.
        device: where networks run (default: the CPU).
        name: in tables, instead of the method's own.
        engine: what computes our models, as in `describe`.
        guided: match again with an epipolar geometry of the first matches.
    """

    text: str
    detector: Detector
    filter: str = "ratio"
    device: str | None = None
    name: str | None = None
    engine: str = TORCH
    guided: bool = False

    def open(self) -> PhotoMethod:
        """The method; opened once per process."""
        method = _open(replace(self, name=None))
        return method if self.name is None else replace(method, name=self.name)


@lru_cache(maxsize=8)
def _open(spec: MethodSpec) -> PhotoMethod:
    text, filter_ = spec.text, parse_filter(spec.filter)
    if text.startswith("hloc:"):
        method = _hloc(text.removeprefix("hloc:"), spec.detector.keypoints, filter_)
    else:
        is_file = os.path.isfile(text)  # noqa: PTH113 - False for a name too long
        kind, colon, name = ("", "", text) if is_file else text.rpartition(":")
        if name.startswith(PEERS) and not colon:
            method = _peer(text, spec.detector.keypoints, filter_, spec.device)
        else:
            method = _at_keypoints(kind, name, spec, filter_)
    return _guided(method) if spec.guided else method


def _at_keypoints(kind: str, name: str, spec: MethodSpec, filter: Filter) -> PhotoMethod:  # noqa: A002
    """A descriptor at the keypoints of our detector: of our own, untrained, OpenCV's SIFT or a baseline."""
    is_untrained = kind == UNTRAINED
    if kind and not is_untrained:
        describer: Describer = BaselineDescriber(kind, Path(name))
        licence, learned = describer.settings.get("licence", UNKNOWN), frozenset[str]()
    else:
        describer = open_describer(name, untrained=is_untrained, device=spec.device, engine=spec.engine)
        licence = _licence(name, is_untrained)
        learned = frozenset() if is_untrained or name in SIFTS else read_card(name).set_names
    filter.check_recorded(describer.settings)

    def extract(pixels: np.ndarray, _: str) -> Features:
        return extract_with(pixels, describer, spec.detector)

    def match_pair(a: Features, b: Features) -> Matches:
        return match(a, b, filter=filter, device=describer.device)

    settings = {**recorded_settings(describer, spec.detector), "filter": str(filter)}
    if settings.get(ENGINE) == TORCH:
        del settings[ENGINE]  # the definition is not named, so that results from before there were others stay valid
    return PhotoMethod(describer.name, licence, settings, extract, match_pair, learned)


def _guided(method: PhotoMethod) -> PhotoMethod:
    """A method that matches again, among keypoints that agree with an epipolar geometry of its first matches."""
    if "matcher" in method.settings:
        raise ArgumentError(f"{method.name} matches in its own way: guided matching is for nearest neighbours")

    def match_again(a: Features, b: Features) -> Matches:
        first = method.match(a, b)
        ends = a.keypoints[first.indices[:, 0]], b.keypoints[first.indices[:, 1]]
        found = verify(*ends, "fundamental", size_b=b.image_size)
        return first if found.model is None else guided_matches(a, b, found.model, "fundamental", first=first)

    settings = {**method.settings, "filter": f"guided, first {method.settings['filter']}"}
    return replace(method, settings=settings, match=match_again)


def _licence(text: str, untrained: bool) -> str:
    """The licence of OpenCV's SIFT, of our own weights, or the one that a user's weight file states in its card."""
    if text in SIFTS:
        return OPENCV
    if untrained or text in available():
        return OURS
    stated = " ".join((read_card(text).licence or "").split())
    return "".join(letter for letter in stated if letter.isprintable()) or UNKNOWN


class BaselineDescriber(Describer):
    """A patch descriptor of another program at our keypoints."""

    name, device, runner = "", "cpu", None

    def __init__(self, name: str, weights: Path) -> None:
        self.network = baseline(name, weights=weights)
        if self.network.distance == "hamming":
            raise ArgumentError(f"{name} gives bits, which photos are not matched by")
        self.name = self.network.name
        facts = self.network.facts["settings"]
        self.settings = {"weights": file_hash(weights), **facts, "cut": CUT, "sampler": SAMPLER}

    def compute(self, image: np.ndarray, frames: Frames, *_: object) -> np.ndarray:
        """See Describer."""
        rows = [
            self.network.describe(extract_patches(image, frames[start : start + FRAMES_AT_A_TIME], CUT), None)
            for start in range(0, max(len(frames), 1), FRAMES_AT_A_TIME)
        ]
        return np.concatenate(rows).astype(np.float32)


def _peer(text: str, keypoints: int, filter: Filter, device: str | None) -> PhotoMethod:  # noqa: A002
    from matchkernel.evaluation.photos.peers import LICENCES, open_peer

    settings, extract, own_match = open_peer(text, keypoints, device)
    if own_match is None:
        filter.check_recorded(settings)

    def nearest(a: Features, b: Features) -> Matches:
        return match(a, b, filter=filter, device=device)

    settings = {**settings, "filter": "none" if own_match else str(filter)}
    return PhotoMethod(text, LICENCES[text], settings, lambda pixels, _: extract(pixels), own_match or nearest)


def _hloc(text: str, keypoints: int, filter: Filter) -> PhotoMethod:  # noqa: A002
    """Features and matches of any program, from files; of the features the first `keypoints` are used (0: all)."""
    files = [Path(part) for part in text.split(",")]
    if len(files) > 2:
        raise ArgumentError(f"hloc:{text}: expected hloc:FEATURES.h5 or hloc:FEATURES.h5,MATCHES.h5")
    for path in files:
        if not path.is_file():
            raise FileError(f"{path}: no such file")
    features = files[0]

    def extract(pixels: np.ndarray, name: str) -> Features:
        found = _read_checked(features, name, (pixels.shape[1], pixels.shape[0]))
        found = replace(found, settings={**found.settings, IMAGE: name})
        is_cut = len(files) == 1 and keypoints and len(found) > keypoints
        return found[np.sort(np.argsort(-found.scores, kind="stable")[:keypoints])] if is_cut else found

    def match_pair(a: Features, b: Features) -> Matches:
        names = a.settings[IMAGE], b.settings[IMAGE]
        if len(files) == 1:
            if a.descriptors.shape[1] != b.descriptors.shape[1]:
                raise FileError(f"{features}: descriptors of {names[0]} and {names[1]} differ in length")
            return match(a, b, filter=filter)
        indices = read_matches(files[1], *names).indices
        if len(indices) and (indices.max(0) >= (len(a), len(b))).any():
            where = f"{files[1]}: matches of {names[0]} and {names[1]}"
            raise FileError(f"{where} refer to keypoints that are not in {features}")
        return Matches(indices, np.zeros(len(indices)), np.zeros(len(indices)))

    settings: dict[str, Any] = {"features": file_hash(features), "keypoints": keypoints if len(files) == 1 else 0}
    settings |= {"filter": str(filter)} if len(files) == 1 else {"matcher": file_hash(files[1]), "filter": "none"}
    return PhotoMethod(f"hloc:{','.join(path.name for path in files)}", UNKNOWN, settings, extract, match_pair)


def _read_checked(path: Path, name: str, size: tuple[int, int]) -> Features:
    """Features of an image from a file, if they can be of an image of this width and height."""
    found = read_features(path, name, need_regions=False)
    if found.image_size != size:
        raise FileError(f"{path}: {name} is an image of {found.image_size} pixels there, here of {size}")
    is_outside = ((found.keypoints < -MARGIN) | (found.keypoints > np.array(size) - 1 + MARGIN)).any(1)
    if is_outside.any():
        raise FileError(f"{path}: keypoint {int(is_outside.argmax())} of {name} lies outside the image")
    return found
