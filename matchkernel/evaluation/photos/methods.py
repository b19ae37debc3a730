"""Methods that find and match the keypoints of photos: our models, SIFT, hloc's files, and peers."""

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, FileError
from matchkernel.evaluation.method import PhotoMethod
from matchkernel.evaluation.methods import baseline, unknown_sets
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import SAMPLER, Frames, extract_patches
from matchkernel.photos.context import find_matcher
from matchkernel.photos.extract import (
    CUT,
    FRAMES_AT_A_TIME,
    SIFTS,
    Describer,
    extract_with,
    open_describer,
    recorded_settings,
)
from matchkernel.photos.feature_files import read_features
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.guided import guided_matches
from matchkernel.photos.match import match as match_nearest
from matchkernel.photos.match import parse_filter
from matchkernel.photos.match_files import read_matches
from matchkernel.photos.verify import verify
from matchkernel.runtime.config import TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.runtime.weights import available, read_card
from matchkernel.storage.files import file_hash

PEERS = ("aliked", "disk", "xfeat")  # what the names of peers start with
OURS, OPENCV = "Apache-2.0", "Apache-2.0 (OpenCV)"
UNKNOWN = "not stated"
UNTRAINED = "untrained"
MARGIN = 1.0  # pixels that keypoints of hloc's files may lie outside the centres of the outermost pixels
IMAGE = "image"  # key of an image's name in the settings of its features


@dataclass(frozen=True)
class MethodSpec:
    """What a method is opened from; it can be sent to other processes."""

    # A name or weight file of ours; "untrained:NAME", a descriptor with random weights; "sift"; "rootsift"; "NAME:FILE"
    # for a patch descriptor among the baselines and its weight file: "hardtfeat:HardTFeat.pth"; "hloc:FEATURES.h5",
    # whose descriptors are matched, or "hloc:FEATURES.h5,MATCHES.h5"; or the name of a peer (see peers.py).
    text: str
    detector: Detector  # peers and hloc's files only use its number of keypoints
    filter: str = "ratio"  # which mutual nearest neighbours are kept
    device: str | None = None  # of networks (default: the CPU)
    name: str | None = None  # in tables, instead of the method's own
    engine: str = TORCH  # what computes our models, as in `describe`
    guided: bool = False  # match again with an epipolar geometry of the first matches
    aligned: bool = False  # points of B are aligned with those of A (see photos.match.align_matches)

    def open(self) -> PhotoMethod:
        """The method; opened once per process."""
        method = _open(replace(self, name=None))
        return method if self.name is None else replace(method, name=self.name)


@lru_cache(maxsize=8)
def _open(spec: MethodSpec) -> PhotoMethod:
    is_file = os.path.isfile(spec.text)  # noqa: PTH113 - False for a name too long
    kind, colon, name = ("", "", spec.text) if is_file else spec.text.rpartition(":")
    if spec.text.startswith("hloc:"):
        method = _from_files(spec)
    elif name.startswith(PEERS) and not colon:
        from matchkernel.evaluation.photos.peers import open_peer

        if spec.aligned:
            raise ArgumentError(f"keypoints of {name} have no sizes, without which points cannot be aligned")
        method = open_peer(name, spec.detector.keypoints, spec.device)
    else:
        method = _at_keypoints(kind, name, spec)
    method = _with_matching(method, spec)
    return replace(method, settings={**method.settings, "aligned": True}) if spec.aligned else method


def _with_matching(method: PhotoMethod, spec: MethodSpec) -> PhotoMethod:
    """The only place that chooses how features are matched: by the method itself, or by what the description says."""
    chosen = parse_filter(spec.filter)
    if "matcher" in method.settings:
        if spec.guided:
            raise ArgumentError(f"{method.name} matches in its own way: guided matching is for nearest neighbours")
        return replace(method, settings={**method.settings, "filter": "none"})
    if not spec.text.startswith("hloc:"):  # whose files may record limits
        chosen.check_recorded(method.name, method.settings)

    def match(a: Features, b: Features) -> Matches:
        first = match_nearest(a, b, filter=chosen, device=spec.device)
        if not spec.guided:
            return first
        ends = first.points(a, b)
        found = verify(*ends, "fundamental", size_b=b.image_size)
        return first if found.model is None else guided_matches(a, b, found.model, "fundamental", first=first)

    label = f"guided, first {chosen}" if spec.guided else str(chosen)
    settings = {**method.settings, "filter": label}
    if chosen.kind == "context":
        settings["context"] = find_matcher(method.name, method.settings, chosen.weights).weights.sha256
    return replace(method, settings=settings, match=match)


def _at_keypoints(kind: str, name: str, spec: MethodSpec) -> PhotoMethod:
    """A descriptor at the keypoints of our detector: of our own, untrained, OpenCV's SIFT or a baseline."""
    learned, warnings = frozenset[str](), tuple[str, ...]()
    if kind and kind != UNTRAINED:
        describer: Describer = (found := BaselineDescriber(kind, Path(name)))
        licence = describer.settings.get("licence", UNKNOWN)
        learned, warnings = found.network.trained_on, found.network.warnings
    else:
        describer = open_describer(name, untrained=kind == UNTRAINED, device=spec.device, engine=spec.engine)
        licence = OPENCV if name in SIFTS else OURS
        if name not in SIFTS and kind != UNTRAINED:
            card = read_card(name)
            learned, warnings = card.set_names, unknown_sets(card)
            stated = "".join(letter for letter in " ".join((card.licence or "").split()) if letter.isprintable())
            licence = OURS if name in available() else stated or UNKNOWN
    settings = recorded_settings(describer, spec.detector)
    if settings.get(ENGINE) == TORCH:
        del settings[ENGINE]  # the definition is not named, so that results from before there were others stay valid

    def extract(pixels: np.ndarray, _: str) -> Features:
        return extract_with(pixels, describer, spec.detector)

    return PhotoMethod(describer.name, licence, settings, extract, trained_on=learned, warnings=warnings)


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


def _from_files(spec: MethodSpec) -> PhotoMethod:
    """Features and matches of any program, from hloc's files; without matches, at most `keypoints` are used."""
    files = [Path(part) for part in spec.text.removeprefix("hloc:").split(",")]
    if len(files) > 2:
        raise ArgumentError(f"{spec.text}: expected hloc:FEATURES.h5 or hloc:FEATURES.h5,MATCHES.h5")
    for path in files:
        if not path.is_file():
            raise FileError(f"{path}: no such file")
    features, limit = files[0], spec.detector.keypoints if len(files) == 1 else 0

    def extract(pixels: np.ndarray, name: str) -> Features:
        found, size = read_features(features, name, need_regions=False), (pixels.shape[1], pixels.shape[0])
        if found.image_size != size:
            raise FileError(f"{features}: {name} is an image of {found.image_size} pixels there, here of {size}")
        is_outside = ((found.keypoints < -MARGIN) | (found.keypoints > np.array(size) - 1 + MARGIN)).any(1)
        if is_outside.any():
            raise FileError(f"{features}: keypoint {int(is_outside.argmax())} of {name} lies outside the image")
        found = replace(found, settings={**found.settings, IMAGE: name})
        is_cut = limit and len(found) > limit
        return found[np.sort(np.argsort(-found.scores, kind="stable")[:limit])] if is_cut else found

    def match(a: Features, b: Features) -> Matches:
        names = a.settings[IMAGE], b.settings[IMAGE]
        indices = read_matches(files[1], *names).indices
        if len(indices) and (indices.max(0) >= (len(a), len(b))).any():
            where = f"{files[1]}: matches of {names[0]} and {names[1]}"
            raise FileError(f"{where} refer to keypoints that are not in {features}")
        return Matches(indices, np.zeros(len(indices)), np.zeros(len(indices)))

    name = f"hloc:{','.join(path.name for path in files)}"
    settings: dict[str, Any] = {"features": file_hash(features), "keypoints": limit}
    if len(files) == 1:
        return PhotoMethod(name, UNKNOWN, settings, extract)
    return PhotoMethod(name, UNKNOWN, {**settings, "matcher": file_hash(files[1])}, extract, match)
