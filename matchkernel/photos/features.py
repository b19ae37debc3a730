"""Features of an image: frames, their descriptors, and how both were made; matches between those of two images."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, MissingExtraError, short_message
from matchkernel.geometry.conventions import MAGNIFICATION, frames_to_kornia, frames_to_opencv
from matchkernel.geometry.frames import Frames
from matchkernel.runtime.config import TORCH
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.arrays import npz_checksums, read_npz, rows_as_bytes, rows_from_bytes
from matchkernel.storage.extras import need, need_opencv
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


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        width, height = self.image_size
        return f"<Features: {len(self):,} keypoints ({self.label}) of {width} x {height} pixels>"

    def to_lightglue(self) -> dict[str, Any]:
        """What LightGlue and others take: a dict of float32 tensors, of arrays where torch is not installed.

        Batch first: keypoints (1, K, 2), scales (1, K) in sigmas, oris (1, K) in radians from 0 to 2 pi, descriptors
        (1, K, D), keypoint_scores (1, K), image_size (1, 2), width before height.
        """
        names = ("keypoints", "scales", "oris", "descriptors", "keypoint_scores", "image_size")
        values = (self.keypoints, self.scales, self.orientations % (2 * np.pi), self.descriptors, self.scores)
        return dict(zip(names, _batches(*values, np.array(self.image_size)), strict=True))

    @classmethod
    def from_lightglue(
        cls, data: Mapping[str, Any], model: str = "lightglue", settings: Mapping[str, Any] | None = None
    ) -> "Features":
        """The features of one image as LightGlue's extractors return them.

        The inverse of to_lightglue with the model and the settings of those features.

        Args:
            data: tensors or arrays, with or without a batch of one: keypoints, descriptors and image_size; scales in
                sigmas (without them, regions are squares of half width 1), oris in radians and keypoint_scores.
            model: name of the descriptor; features match only those of the same model and weights.
            settings: recorded with the features: their weights, and the `magnification` of regions (default: 6).
        """
        recorded = {"magnification": MAGNIFICATION, **(settings or {})}
        size, points = _one(data, "image_size", 1), _one(data, "keypoints", 2)
        rows, K = _one(data, "descriptors", 2).astype(np.float32), len(points)
        half_widths = recorded["magnification"] * _one(data, "scales", 1) if "scales" in data else np.ones(K)
        angles = _one(data, "oris", 1) if "oris" in data else np.zeros(K)
        scores = _one(data, "keypoint_scores", 1) if "keypoint_scores" in data else np.ones(K)
        if points.shape != (K, 2) or len(size) != 2 or not len(half_widths) == len(angles) == K:
            raise ArgumentError(f"{K} keypoints need as many x, y, scales and oris, and an image_size of two numbers")
        frames = Frames.turned_squares(points, half_widths, angles)
        return cls(frames, rows, scores.astype(np.float32), (int(size[0]), int(size[1])), model, recorded)

    def to_kornia(self) -> tuple[Any, Any, Any]:
        """What kornia's `LocalFeature` returns: lafs (1, K, 2, 3), responses (1, K) and descriptors (1, K, D), float32.

        Tensors, or arrays where torch is not installed.
        """
        lafs, responses, descriptors = _batches(frames_to_kornia(self.frames), self.scores, self.descriptors)
        return lafs, responses, descriptors

    def to_opencv(self) -> tuple[tuple[Any, ...], np.ndarray]:
        """K cv2.KeyPoint objects and (K, D) float32 rows, as `detectAndCompute` returns them.

        A region that is no square becomes the square of its area.
        """
        magnification = float(self.settings.get("magnification", MAGNIFICATION))
        rows = np.column_stack([frames_to_opencv(self.frames, magnification), self.scores])
        KeyPoint = need_opencv().KeyPoint
        return tuple(KeyPoint(*row) for row in rows.tolist()), self.descriptors

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


@dataclass(frozen=True, repr=False)
class Matches:
    """M matches, ordered by the index in image A.

    Attributes:
        indices: (M, 2) int64, row in A and row in B.
        distances: (M,) float64, L2 distance of the descriptors.
        ratios: (M,) float64, ratio of nearest to second-nearest distance; for mutual matches, the larger of both
            directions. 0 if there is no second neighbour, 1 if both distances are equal.
        aligned: (M, 2) points of B that were aligned with those of A, instead of B's keypoints; None if none were.
    """

    indices: np.ndarray
    distances: np.ndarray
    ratios: np.ndarray
    aligned: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.indices)

    def __repr__(self) -> str:
        return f"<Matches: {len(self):,}>"

    def points(self, a: Features, b: Features) -> tuple[np.ndarray, np.ndarray]:
        """(M, 2) points of A and (M, 2) points of B, one row per match."""
        points_b = b.keypoints[self.indices[:, 1]] if self.aligned is None else self.aligned
        return a.keypoints[self.indices[:, 0]], points_b

    def __getitem__(self, chosen: np.ndarray) -> "Matches":
        aligned = None if self.aligned is None else self.aligned[chosen]
        return Matches(self.indices[chosen], self.distances[chosen], self.ratios[chosen], aligned)


def _batches(*arrays: np.ndarray) -> list[Any]:
    """Float32 with a first axis of one; tensors if torch can be imported."""
    batches = [np.array(array, np.float32, order="C")[None] for array in arrays]
    try:
        torch = need("torch", "torch", "tensors")
    except MissingExtraError:
        return batches
    return [torch.from_numpy(batch) for batch in batches]


def _one(data: Mapping[str, Any], name: str, axes: int) -> np.ndarray:
    """An entry of LightGlue's, float64, without the axis of its batch."""
    if name not in data:
        raise ArgumentError(f"features of LightGlue's layout need {name}; here are {', '.join(map(str, data))}")
    value = data[name]
    array = np.asarray(value.detach().cpu().float() if hasattr(value, "detach") else value)
    if array.dtype.kind not in "uif":
        raise ArgumentTypeError(f"{name} must be numbers, got {array.dtype}")
    if array.ndim == axes + 1 and len(array) == 1:
        array = array[0]
    if array.ndim != axes or not np.isfinite(array).all():
        raise ArgumentError(f"{name} of one image must be finite and have {axes} axes, got {array.shape}")
    return array.astype(np.float64)


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
    if Path(path).suffix.lower() != ".npz":
        raise ArgumentError(f"{path}: save_features writes .npz; for .h5 use append_features of photos.feature_files")
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


def checksums(path: str | Path) -> dict[str, int]:
    """What the directory of a file of features says about each of its arrays, without reading them."""
    return npz_checksums(path, ARRAYS, "a file of features")


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
