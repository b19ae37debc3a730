"""Match two photos so that the page can filter by itself: all mutual nearest neighbours, with all it needs of each."""

import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.explore.photos import PagePhoto, by_id
from matchkernel.explore.settings import ExploreSettings
from matchkernel.geometry.detect import Detection, Detector
from matchkernel.geometry.frames import extract_patches
from matchkernel.photos.extract import CUT, Describer, describe_detection, open_describer
from matchkernel.photos.features import LEARNED_RATIO, RATIO, THRESHOLD, Features
from matchkernel.photos.match import NUMBERS, Filter, match, parse_filter
from matchkernel.photos.verify import ERRORS, INLIER_PIXELS, Verification, verify
from matchkernel.runtime.weights import available
from matchkernel.storage.memo import Memo
from matchkernel.storage.settings import short_repr

SHOWN = 32  # side of the patches that are shown
RIVALS = 2  # of each match, in each direction
ROWS_AT_A_TIME = 1024
LARGE = 4_000_000  # pixels; photos of more are searched for keypoints one at a time, which takes 180 bytes per pixel


@dataclass(frozen=True)
class Comparison:
    """Matches of two photos.

    Attributes:
        facts: how they were found, the limits of the filter, the geometry; JSON values.
        arrays: frames_a (K, 6) and frames_b: x, y and the shape row by row; pairs (M, 2), distances and ratios (M,) of
            all mutual nearest neighbours; kept (M,), those that pass the filter, to which the geometry was fitted;
            errors (M,), how many pixels each is off it, infinite without one; agrees (M,), those within 3 px; rivals_b
            (M, 2), the next nearest keypoints of B to that of A, and rivals_b_distances; rivals_a, rivals_a_distances
            likewise. None lies in the middle of the match's own region: that is the same place at another size or turn.
            A row with fewer rivals repeats its match at distance 2. confusions (M,): distance over the nearest rival's.
    """

    facts: dict[str, Any]
    arrays: dict[str, np.ndarray]


class PageMatcher:
    """Matches photos; describers, keypoints, features and matches are kept in memory."""

    def __init__(self, settings: ExploreSettings, compared: str | None = None) -> None:
        self.models = {name: name for name in (*available(), "rootsift", "sift")}
        self.chosen = [self._offer(model) for model in (settings.model, compared) if model is not None]
        kept = settings.kept_results
        self.describer = Memo(self._open, len(self.models))
        self.patches = Memo(self._cut, kept, by_id)  # (K, 32, 32) uint8 of all keypoints of a photo
        self.features = Memo(self._describe, kept, by_id)  # of a photo, as `extract` gives them
        self._detection, self._comparison = Memo(self._detect, kept, by_id), Memo(self._compare, kept, by_id)
        self._one_large = threading.Lock()

    def _offer(self, model: str) -> str:
        """The name by which the page calls a model: that of its file, or its path where another has that name."""
        file = model.rpartition("/")[2]
        name = file if self.models.get(file, model) == model else model
        self.models[name] = model
        return name

    @property
    def own(self) -> dict[str, str]:
        """Name -> path of the weight files that are not shipped."""
        shipped = {*available(), "rootsift", "sift"}
        return {name: path for name, path in self.models.items() if name not in shipped}

    def compare(self, a: PagePhoto, b: PagePhoto, model: str, keypoints: int, keep: str) -> Comparison:
        """Match two photos with one of `models`; `keep` is a filter, such as "ratio" or "both:0.85,0.8"; no file."""
        chosen, describer = parse_filter(keep, may_read=False), self.describer(model)
        chosen.check_recorded(describer.name, describer.settings)
        return self._comparison(a, b, model, keypoints, chosen)

    def _open(self, name: str) -> Describer:
        """The describer of a name that the page offers; no other name is looked up."""
        if name not in self.models:
            raise ArgumentError(f"model must be one of {', '.join(self.models)}, got {short_repr(name)}")
        return open_describer(self.models[name])

    def _detect(self, photo: PagePhoto, keypoints: int) -> Detection:
        with self._one_large if photo.gray.size > LARGE else nullcontext():
            return Detector(keypoints=keypoints).detect(photo.gray)

    def _cut(self, photo: PagePhoto, keypoints: int) -> np.ndarray:
        return shown_patches(photo, self._detection(photo, keypoints).frames)

    def _describe(self, photo: PagePhoto, model: str, keypoints: int) -> Features:
        found = self._detection(photo, keypoints)
        return describe_detection(photo.gray, found, self.describer(model), Detector(keypoints=keypoints))

    def _compare(self, a: PagePhoto, b: PagePhoto, model: str, keypoints: int, keep: Filter) -> Comparison:
        start, describer = time.perf_counter(), self.describer(model)
        first, second = (self.features(photo, model, keypoints) for photo in (a, b))
        found = match(first, second, filter=keep if keep.kind == "context" else "none")  # it has its own candidates
        kept = np.ones(len(found), bool) if keep.kind == "context" else keep.keep(found, first, second)
        ends = found.points(first, second)
        frames = [side.frames[rows[kept]] for side, rows in zip((first, second), found.indices.T, strict=True)]
        geometry = verify(
            *(end[kept] for end in ends),
            size_b=second.image_size,
            ratios=found.ratios[kept],
            frames=(frames[0], frames[1]),
        )
        errors = np.full(len(found), np.inf)
        if geometry.model is not None and geometry.geometry is not None:
            errors = ERRORS[geometry.geometry](geometry.model, *ends)
        arrays = {
            "frames_a": _frame_rows(first),
            "frames_b": _frame_rows(second),
            "pairs": found.indices.astype(np.uint32),
            "distances": found.distances.astype(np.float32),
            "ratios": found.ratios.astype(np.float32),
            "kept": kept.astype(np.uint8),
            "errors": errors.astype(np.float32),
            "agrees": (errors <= INLIER_PIXELS).astype(np.uint8),
        }
        arrays["rivals_b"], arrays["rivals_b_distances"] = _rivals(first, second, found.indices)
        arrays["rivals_a"], arrays["rivals_a_distances"] = _rivals(second, first, found.indices[:, ::-1])
        nearest = np.minimum(arrays["rivals_a_distances"][:, 0], arrays["rivals_b_distances"][:, 0])
        arrays["confusions"] = (arrays["distances"] / np.maximum(nearest, 1e-6)).astype(np.float32)
        facts = {
            "model": describer.name,
            "label": describer.label,
            "engine": describer.settings.get("engine"),
            "keypoints": keypoints,
            "limits": _limits(keep, describer),
            "geometry": geometry.geometry if geometry.model is not None else None,
            "matrix": None if geometry.model is None else geometry.model.tolist(),
            "file_matrix": _of_files(geometry, a, b),
            "significance": geometry.significance if np.isfinite(geometry.significance or 0) else None,
            "reason": geometry.reason,
            "seconds": round(time.perf_counter() - start, 4),
        }
        return Comparison(facts, arrays)


def _of_files(found: Verification, a: PagePhoto, b: PagePhoto) -> list[list[float]] | None:
    """The model for pixels of the files, from that for pixels of the page."""
    if found.model is None:
        return None
    left = b.to_file if found.geometry == "homography" else np.linalg.inv(b.to_file).T
    moved: list[list[float]] = (left @ found.model @ np.linalg.inv(a.to_file)).tolist()
    return moved


def shown_patches(photo: PagePhoto, frames: Any) -> np.ndarray:
    """(K, 32, 32) uint8: patches as they are cut, at half the size, which is what the networks see."""
    cut = extract_patches(photo.gray, frames, CUT)
    factor = CUT // SHOWN
    blocks = cut.reshape(len(cut), SHOWN, factor, SHOWN, factor).astype(np.uint16).sum((2, 4))
    return ((blocks + factor**2 // 2) // factor**2).astype(np.uint8)


def _frame_rows(features: Features) -> np.ndarray:
    shapes = features.frames.shapes.reshape(-1, 4)
    return np.column_stack([features.frames.centers, shapes]).astype(np.float32).reshape(-1, 6)


def _limits(keep: Filter, describer: Describer) -> dict[str, Any]:
    """Where the sliders stand: the filter's own limits, or those recorded for the model."""
    ratio = keep.ratio or describer.settings.get(RATIO) or LEARNED_RATIO
    distance = keep.distance if keep.distance is not None else describer.settings.get(THRESHOLD)
    tested = NUMBERS[keep.kind]
    return {
        "kind": keep.kind,
        "ratio": ratio if "ratio" in tested else None,
        "distance": distance if "distance" in tested else None,
    }


def _rivals(first: Features, second: Features, pairs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(M, RIVALS) uint32 and float32: the rows of B nearest to that of A, elsewhere than its match, their distances."""
    rows_a, rows_b, centers = first.descriptors, second.descriptors, second.frames.centers
    index = np.repeat(pairs[:, 1:], RIVALS, 1).astype(np.uint32)
    distance = np.full((len(pairs), RIVALS), 2, np.float32)
    count = min(RIVALS, len(rows_b) - 1)
    if not len(pairs) or count < 1:
        return index, distance
    empty = ~rows_b.any(1)
    for start in range(0, len(pairs), ROWS_AT_A_TIME):
        part = pairs[start : start + ROWS_AT_A_TIME]
        alike, each, here = rows_a[part[:, 0]] @ rows_b.T, np.arange(len(part)), slice(start, start + len(part))
        alike[:, empty] = -1
        off = np.linalg.norm(centers[None] - centers[part[:, 1], None], axis=2)
        alike[off <= second.frames.half_widths[part[:, 1], None] / 2] = -2
        for rank in range(count):
            best = alike.argmax(1)
            is_elsewhere = alike[each, best] >= -1
            index[here, rank] = np.where(is_elsewhere, best, part[:, 1])
            distance[here, rank] = np.sqrt(np.clip(2 - 2 * alike[each, best], 0, 4))
            alike[each, best] = -3
    return index, distance
