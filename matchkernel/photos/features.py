"""Features of an image: frames, their descriptors, and how both were made; matches between those of two images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from matchkernel.errors import ArgumentError, FileError, short_message
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.frames import Frames
from matchkernel.runtime.config import TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.arrays import read_npz, rows_as_bytes, rows_from_bytes
from matchkernel.storage.files import replacing
from matchkernel.storage.settings import describe_differences

ARRAYS = ("centers", "shapes", "descriptors", "scores")
Store = Literal["float32", "float16", "bytes"]  # how descriptors are stored
IMAGE_HASH = "image_sha256"  # recorded among the settings: digest of the photo (see photo_folders.photo_digest)
STORE = "store"  # recorded among the settings; without it, float32
THRESHOLD, RATIO = "match_threshold", "match_ratio"  # keys of the calibrated limits in the settings
# Maximum ratio of nearest to second-nearest distance where none is recorded: that of `dual` and `light`, see
# docs/photos.md.
LEARNED_RATIO = 0.9


@dataclass(frozen=True)
class Features:
    """K keypoints of one image.

    Attributes:
        frames: where they are; the centre of the top-left pixel is (0, 0).
        descriptors: (K, D) float32 unit rows; a row of zeros where a patch had no content.
        scores: (K,) float32, strength according to the detector.
        image_size: width and height in pixels.
        model: name of the descriptor.
        settings: everything else that determines the result (detector, magnification, versions), JSON values.
    """

    frames: Frames
    descriptors: np.ndarray
    scores: np.ndarray
    image_size: tuple[int, int]
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        K = len(self.frames)
        if self.descriptors.ndim != 2 or len(self.descriptors) != K or self.scores.shape != (K,):
            shapes = f"{self.descriptors.shape} descriptors and {self.scores.shape} scores"
            raise ArgumentError(f"features of {K} keypoints need {K} descriptors and scores, got {shapes}")

    def __len__(self) -> int:
        return len(self.frames)

    def __getitem__(self, chosen: "slice | np.ndarray | Sequence[int]") -> "Features":
        rows, scores = self.descriptors[chosen], self.scores[chosen]
        return replace(self, frames=self.frames[chosen], descriptors=rows, scores=scores)

    @property
    def label(self) -> str:
        """The name of the descriptor, and the engine that computed it, for messages."""
        return label_of(self.model, self.settings)

    @property
    def keypoints(self) -> np.ndarray:
        """(K, 2) x and y."""
        return self.frames.centers

    @property
    def scales(self) -> np.ndarray:
        """(K,) sigma of the detector: half width of the region / magnification."""
        return self.frames.half_widths / float(self.settings.get("magnification", MAGNIFICATION))

    @property
    def orientations(self) -> np.ndarray:
        """(K,) radians from +x towards +y."""
        return self.frames.angles


@dataclass(frozen=True)
class Matches:
    """M matches, ordered by the index in image A.

    Attributes:
        indices: (M, 2) int64, row in A and row in B.
        distances: (M,) float64, L2 distance of the descriptors.
        ratios: (M,) float64, ratio of nearest to second-nearest distance; for mutual matches, the larger of both
            directions. 0 if there is no second neighbour, 1 if both distances are equal.
    """

    indices: np.ndarray
    distances: np.ndarray
    ratios: np.ndarray

    def __len__(self) -> int:
        return len(self.indices)

    def points(self, a: Features, b: Features) -> tuple[np.ndarray, np.ndarray]:
        """(M, 2) points of A and (M, 2) points of B, one row per match."""
        return a.keypoints[self.indices[:, 0]], b.keypoints[self.indices[:, 1]]

    def __getitem__(self, chosen: np.ndarray) -> "Matches":
        return Matches(self.indices[chosen], self.distances[chosen], self.ratios[chosen])


def label_of(model: str, settings: Mapping[str, Any]) -> str:
    """The name of a descriptor, and the engine that computes it if its settings name one."""
    return f"{model}, {settings[ENGINE]}" if ENGINE in settings else model


def save_features(features: Features, path: str | Path) -> None:
    """Write features as .npz, atomically; descriptors as the setting `store` says, float32 without it.

    With float16 and bytes, places and shapes are float32 instead of float64.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.frames import Frames
        >>> from matchkernel.photos.features import Features, load_features, save_features
        >>> frames = Frames.turned_squares(np.array([[20.0, 30.0]]), np.array([6.0]), np.zeros(1))
        >>> rows = np.ones((1, 4), np.float32) / 2
        >>> path = "left.npz"
        >>> save_features(Features(frames, rows, np.ones(1, np.float32), (100, 80), "mine"), path)
        >>> load_features(path).keypoints.tolist()
        [[20.0, 30.0]]
    """
    store, rows = features.settings.get(STORE, "float32"), features.descriptors
    if store not in get_args(Store):
        raise ArgumentError(f"store must be one of {', '.join(get_args(Store))}, got {store!r}")
    geometry = np.float64 if store == "float32" else np.float32
    facts = {"image_size": features.image_size, "model": features.model, "settings": dict(features.settings)}
    with replacing(path) as part, part.open("wb") as file:
        np.savez(
            file,
            centers=features.frames.centers.astype(geometry),
            shapes=features.frames.shapes.astype(geometry),
            descriptors=rows_as_bytes(rows) if store == "bytes" else rows if store == "float32" else rows.astype(store),
            scores=features.scores,
            facts=np.array(json.dumps(facts, sort_keys=True)),
        )


def load_features(path: str | Path) -> Features:
    """Read features written by save_features; any other file is refused. Nothing is unpickled.

    Example: see save_features.
    """
    arrays = read_npz(path, (*ARRAYS, "facts"), "a file of features")
    model, settings = parse_facts(arrays["facts"], path)
    try:
        if not all(np.isfinite(arrays[name]).all() for name in ARRAYS):
            raise ValueError("it holds numbers that are not finite")
        width, height = json.loads(str(arrays["facts"]))["image_size"]
        rows, store = arrays["descriptors"], settings.get(STORE, "float32")
        rows = rows_from_bytes(rows) if store == "bytes" else rows.astype(np.float32) if store == "float16" else rows
        frames = Frames(arrays["centers"], arrays["shapes"])
        return Features(frames, rows, arrays["scores"], (int(width), int(height)), model, settings)
    except (LookupError, ValueError, TypeError, OverflowError) as error:
        raise FileError(f"{path}: not a file of features ({short_message(error)})") from None


def read_facts(path: str | Path) -> tuple[str, dict[str, Any]]:
    """Model and settings of features written by save_features, without their arrays."""
    return parse_facts(read_npz(path, ("facts",), "a file of features")["facts"], path)


def parse_facts(text: object, where: str | Path) -> tuple[str, dict[str, Any]]:
    """Model and settings, from the JSON that is stored with features."""
    try:
        facts = json.loads(str(text))
        return str(facts["model"]), dict(facts["settings"])
    except (LookupError, ValueError, TypeError, RecursionError):
        raise FileError(f"{where}: the model and settings of these features cannot be read") from None


def check_same_settings(
    model: str, settings: Any, facts: dict[str, Any], name: str, out: Path, advice: str = "remove them"
) -> None:
    """Refuse features made in another way than these facts describe (see feature_facts)."""
    oldest = {ENGINE: TORCH, STORE: "float32"}  # of features that do not record them
    before = {**oldest, "model": model, **settings}
    now = {**oldest, "model": facts["name"], **facts["settings"]}
    keys = ["model", *sorted((before.keys() | now.keys()) - {IMAGE_HASH, THRESHOLD, RATIO, "model"})]
    readable = [key for key in keys if not key.endswith("sha256")]
    for some in (readable, keys):  # digests are named only if all else is the same
        differences = describe_differences({key: before.get(key) for key in some}, {key: now.get(key) for key in some})
        if differences:
            only_engine = [key for key in readable if before.get(key) != now.get(key)] == [ENGINE]
            other = f"use --engine {before[ENGINE]}, " if only_engine else ""
            raise ArgumentError(
                f"{out}: features of {name} were {differences}; {other}{advice} or choose another place"
            )
