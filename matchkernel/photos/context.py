"""Match in context: candidate matches are judged by how well they agree with all others (see runtime.context).

Candidates are pairs of keypoints of which one is among the two nearest neighbours of the other. Only what frames and
rows say relative to each other enters, so that turning, moving or zooming a photo changes nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.photos.extract import SIFTS
from matchkernel.photos.features import Features, Matches
from matchkernel.runtime.context import SHIPPED, ContextWeights, read_context
from matchkernel.runtime.onnx import open_session
from matchkernel.storage.work import spare_threads

ROWS = 2048  # of A whose similarities to B are held at a time
NEAREST = 1e-2  # smallest distance of rows that is told from 0
OPPOSITE = 2.0  # distance of unit rows where there is no neighbour
SCALES = 4.0  # octaves; larger changes of scale count as this
SMALLEST = 2.0**-10  # scale of a region without area
SIDE = 1000.0  # pixels: scales are those of a photo whose longer side has this length


@dataclass(frozen=True)
class Candidates:
    """C candidate matches.

    Attributes:
        indices: (C, 2) rows of A and of B.
        distances: (C,) of their descriptors.
        ratios: (C, 2) distance / that of the best other candidate of the keypoint in A, and of the one in B.
    """

    indices: np.ndarray
    distances: np.ndarray
    ratios: np.ndarray


def match_in_context(
    a: Features, b: Features, threshold: float | None = None, weights: ContextWeights | None = None
) -> Matches:
    """Matches that a network judges to be right from their context; at most one of each keypoint.

    Args:
        a: features of image A, of a model that the matcher was trained for.
        b: features of image B.
        threshold: minimum probability of a match (default: the one of the matcher).
        weights: the matcher (default: the one of the package for this model).
    """
    matcher = find_matcher(a.model, a.settings, weights)
    facts = matcher.weights.facts
    for side, frames in (("A", a.frames), ("B", b.frames)):
        is_bad = ~(np.isfinite(frames.centers).all(1) & np.isfinite(frames.shapes).all((1, 2)))
        if is_bad.any():
            raise ArgumentError(f"keypoint {int(is_bad.argmax())} of {side} has a place or region that is not finite")
        if frames.are_points:
            raise ArgumentError(f"keypoints of {side} have no sizes, without which they cannot be judged in context")
    found = find_candidates(a.descriptors, b.descriptors, int(facts["candidates"]), int(facts["top"]))
    if not len(found.indices):
        return Matches(np.empty((0, 2), np.int64), np.empty(0), np.empty(0))
    chances = matcher.judge(a, b, found)
    limit = float(facts["threshold"]) if threshold is None else threshold
    i, j = found.indices.T
    best_a, best_b = np.zeros(len(a)), np.zeros(len(b))
    np.maximum.at(best_a, i, chances)
    np.maximum.at(best_b, j, chances)
    kept = np.flatnonzero((chances > limit) & (chances >= best_a[i]) & (chances >= best_b[j]))
    kept = kept[np.lexsort((j[kept], i[kept]))]
    for ends in (i, j):  # of keypoints that are the same, the first
        kept = kept[np.sort(np.unique(ends[kept], return_index=True)[1])]
    ratios = np.minimum(found.ratios[kept].max(1, initial=0), 1.0)
    return Matches(found.indices[kept], found.distances[kept].astype(np.float64), ratios.astype(np.float64))


def row_identity(model: str, settings: Mapping[str, Any]) -> str:
    """What tells a model's rows from those of others: the digest of its weights, or the name of SIFT or RootSIFT."""
    weights = str(settings.get("weights", ""))
    return model if model in SIFTS and weights.startswith("OpenCV ") else weights


def find_matcher(model: str, settings: Mapping[str, Any], weights: ContextWeights | None = None) -> "ContextMatcher":
    """The matcher for features of this model with these settings; features that it was not trained for are refused.

    Args:
        model: name of the descriptor.
        settings: of the features.
        weights: of the matcher (default: one of the package).
    """
    rows, given = row_identity(model, settings), shipped_matchers() if weights is None else [weights]
    for one in given:
        if one.facts["descriptor_sha256"] == rows:
            return _open(one)
    judged = " and ".join(_name(one.facts["descriptor"], one.facts["descriptor_sha256"]) for one in given)
    whose = "the package's matchers judge" if weights is None else f"the matcher {weights.name} judges"
    raise ArgumentError(f"{whose} rows of {judged}, not of {_name(model, rows)}: use another matcher, or train one")


def _name(model: str, rows: str) -> str:
    """A model with the start of its digest."""
    return model if rows in ("", model) else f"{model} ({rows[:8]})"


@lru_cache(maxsize=1)
def shipped_matchers() -> list[ContextWeights]:
    """The matchers of the package."""
    return [read_context(path) for path in sorted(SHIPPED.glob("*.safetensors"))]


def matcher_digests(
    weights: ContextWeights | None, model: str, settings: Mapping[str, Any], recorded: object = None
) -> list[str]:
    """What identifies the matcher of these features (see find_matcher) in files that record how matches were made.

    What such a file has recorded stays if it names that matcher: once, all matchers of the package were recorded.
    """
    own = find_matcher(model, settings, weights).weights.sha256
    return recorded if isinstance(recorded, list) and own in recorded else [own]


class ContextMatcher:
    """A network of ONNX Runtime that judges candidates."""

    def __init__(self, weights: ContextWeights) -> None:
        self.weights = weights

    @cached_property
    def session(self) -> Any:
        """Of ONNX Runtime, opened when it is first needed."""
        return open_session(self.weights.graph, f"the context matcher {self.weights.name}", spare_threads())

    def judge(self, a: Features, b: Features, found: Candidates) -> np.ndarray:
        """(C,) probability of each candidate to be right."""
        logits = self.session.run(["logits"], inputs(a, b, found))[0]
        return np.asarray(1 / (1 + np.exp(-logits.astype(np.float64))))


@lru_cache(maxsize=8)
def _open(weights: ContextWeights) -> ContextMatcher:
    return ContextMatcher(weights)  # one for equal digests


def inputs(a: Features, b: Features, found: Candidates) -> dict[str, np.ndarray]:
    """The inputs of the network (see runtime.context.context_file)."""
    ends = [side[rows] for side, rows in zip((a, b), found.indices.T, strict=True)]
    scales = [np.log2(np.maximum(end.scales * SIDE / max(end.image_size), SMALLEST)) for end in ends]
    change = np.clip(scales[1] - scales[0], -SCALES, SCALES)
    turn = ends[1].orientations - ends[0].orientations
    ratios = np.log(np.sort(found.ratios, 1))
    features = np.column_stack(
        [
            found.distances,
            ratios[:, 1],
            ratios[:, 0],
            (ratios < 0).all(1),
            (np.maximum(*scales) - 3) / 2,
            (np.minimum(*scales) - 3) / 2,
            np.abs(scales[1] - scales[0]),
        ]
    )
    arrays: dict[str, Any] = {
        "features": features,
        "places_a": _places(ends[0]),
        "places_b": _places(ends[1]),
        "similarity": np.exp2(change)[:, None] * np.column_stack([np.cos(turn), np.sin(turn)]),
        "log_scale": change[:, None],
    }
    return {name: np.ascontiguousarray(values, np.float32) for name, values in arrays.items()}


def _places(features: Features) -> np.ndarray:
    """(C, 2) from the centre of the photo, as a share of half its longer side."""
    size = np.array(features.image_size)
    return np.asarray((features.keypoints - (size - 1) / 2) / (size.max() / 2))


def find_candidates(rows_a: np.ndarray, rows_b: np.ndarray, most: int, top: int = 2) -> Candidates:
    """The most promising candidates of unit rows; rows of zeros have none.

    Args:
        rows_a: (N, D) float32.
        rows_b: (M, D).
        most: maximum number; those are kept that are nearer than the alternatives of both keypoints.
        top: neighbours of a keypoint that may be its match.
    """
    used_a, used_b = (np.flatnonzero(rows.any(1)) for rows in (rows_a, rows_b))
    if not len(used_a) or not len(used_b):
        return Candidates(np.empty((0, 2), np.int64), np.empty(0, np.float32), np.empty((0, 2)))
    (near_a, at_a), (near_b, at_b) = _neighbours(rows_a[used_a], rows_b[used_b], max(top, 2))
    pairs = [(np.repeat(np.arange(len(used_a)), top), at_a[:, :top].ravel())]
    pairs.append((at_b[:, :top].ravel(), np.repeat(np.arange(len(used_b)), top)))
    i, j = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    code = np.unique((i * len(used_b) + j)[(i >= 0) & (j >= 0)])
    i, j = code // len(used_b), code % len(used_b)
    distances = _distances(np.einsum("cd,cd->c", rows_a[used_a[i]], rows_b[used_b[j]]))
    best_a = np.where(at_a[i, 0] == j, near_a[i, 1], near_a[i, 0])
    best_b = np.where(at_b[j, 0] == i, near_b[j, 1], near_b[j, 0])
    ratios = np.column_stack([distances / best_a, distances / best_b]).astype(np.float64)
    logs = np.log(ratios)
    order = np.argsort(logs.max(1) + 0.5 * logs.min(1), kind="stable")[:most]
    return Candidates(np.column_stack([used_a[i], used_b[j]])[order], distances[order], ratios[order])


def _neighbours(
    rows_a: np.ndarray, rows_b: np.ndarray, wanted: int
) -> tuple[tuple[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]:
    """Of every row of A, and of B: (N, wanted) distances of the nearest rows of the other, and where they are.

    Where there are fewer, the distance is OPPOSITE and the place -1.
    """
    columns = np.full((wanted, len(rows_b)), -np.inf, np.float32), np.full((wanted, len(rows_b)), -1)
    near, at = [], []
    for start in range(0, len(rows_a), ROWS):
        table = rows_a[start : start + ROWS] @ rows_b.T
        values, places = _largest(table.T.copy(), wanted)
        values, places = np.concatenate([columns[0], values.T]), np.concatenate([columns[1], places.T + start])
        order = np.argsort(-values, axis=0, kind="stable")[:wanted]
        columns = np.take_along_axis(values, order, 0), np.take_along_axis(places, order, 0)
        values, places = _largest(table, wanted)
        near.append(values)
        at.append(places)
    sides = ((np.concatenate(near), np.concatenate(at)), (columns[0].T, columns[1].T))
    found = [(_distances(values), np.where(values > -np.inf, places, -1)) for values, places in sides]
    return found[0], found[1]


def _largest(table: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
    """(N, wanted) largest values of each row and their columns, in order; the table is changed."""
    rows = np.arange(len(table))
    values, places = np.full((len(table), wanted), -np.inf, np.float32), np.full((len(table), wanted), -1)
    for k in range(min(wanted, table.shape[1])):
        places[:, k] = table.argmax(1)
        values[:, k] = table[rows, places[:, k]]
        table[rows, places[:, k]] = -np.inf
    return values, places


def _distances(similarities: np.ndarray) -> np.ndarray:
    """Distances of unit rows, at least NEAREST."""
    known = np.where(similarities > -np.inf, similarities, 1 - OPPOSITE**2 / 2)
    return np.sqrt(np.maximum(2 - 2 * known, NEAREST**2))
