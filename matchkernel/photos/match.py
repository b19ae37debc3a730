"""Match the features of two images: mutual nearest neighbours that pass a filter."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.alignment import align_points
from matchkernel.photos.extract import CPU, open_place
from matchkernel.photos.features import LEARNED_RATIO, RATIO, THRESHOLD, Features, Matches
from matchkernel.photos.nearest import LARGEST, find_nearest
from matchkernel.runtime.context import ContextWeights, read_context
from matchkernel.storage.extras import need
from matchkernel.storage.settings import short_repr

if TYPE_CHECKING:
    import torch

Kind = Literal["none", "ratio", "distance", "either", "both", "adalam", "context"]
NUMBERS: dict[str, tuple[str, ...]] = {  # of each kind, in the order in which they are written
    "none": (),
    "ratio": ("ratio",),
    "distance": ("distance",),
    "either": ("ratio", "distance"),
    "both": ("ratio", "distance"),
    "adalam": (),
    "context": ("chance",),
}
ADALAM_LIMIT = 20_000  # matches: it holds all distances between their points, 1.6 GB for this many


@dataclass(frozen=True)
class Filter:
    """A test that matches must pass.

    Attributes:
        kind: "none" keeps all; "ratio" those whose ratio of nearest to second-nearest distance is below a limit;
            "distance" those up to a distance of descriptors; "either" those that pass one of these tests; "both" those
            that pass both; "adalam" those whose neighbours move alike (AdaLAM, from kornia); "context" those that a
            small network judges to be right by how they agree with all others, also among second neighbours (see
            photos.context; for descriptors that such a network was trained for).
        ratio: limit of the ratio; None for the one recorded with the features (0.9 if there is none).
        distance: limit of the distance; None for the one recorded with the features. If there is none, filters that
            test distances are refused.
        chance: minimum probability that a match is right, for "context"; None for the one of its network.
        weights: of that network; None for the one of the package.
    """

    kind: Kind = "none"
    ratio: float | None = None
    distance: float | None = None
    chance: float | None = None
    weights: ContextWeights | None = None

    def __post_init__(self) -> None:
        if self.kind not in NUMBERS:
            raise ArgumentError(
                f"the matcher (filter) must be one of {', '.join(NUMBERS)}, got {short_repr(self.kind)}"
            )
        for name in ("ratio", "distance", "chance"):
            value = getattr(self, name)
            if value is not None and name not in NUMBERS[self.kind]:
                raise ArgumentError(f"the matcher {self.kind} takes no {name}, got {short_repr(value)}")
            object.__setattr__(self, name, None if value is None else _checked(name, value))
        if self.weights is not None and self.kind != "context":
            raise ArgumentError(f"the matcher {self.kind} takes no weights")

    def __str__(self) -> str:
        """The string that `parse_filter` reads, without the folder of a file."""
        values = [getattr(self, name) for name in NUMBERS[self.kind]]
        given = [repr(value) for value in values if value is not None]
        file = [] if self.weights is None else [f"{self.weights.name}{FILE}"]
        numbers = [",".join(given)] if given and len(given) == len(values) else []
        return ":".join([self.kind, *file, *numbers])

    def keep(self, matches: Matches, a: Features | np.ndarray, b: Features | np.ndarray) -> np.ndarray:
        """(M,) bool: which of the matches of A and B pass; rows without Features record no limits."""
        if self.kind == "adalam":
            return _adalam(matches, a, b)
        if self.kind == "context":
            chosen = _in_context(a, b, self).indices
            return np.isin(matches.indices @ [len(b), 1], chosen @ [len(b), 1])
        recorded = [side.settings for side in (a, b) if isinstance(side, Features)]
        passed = []
        if "ratio" in NUMBERS[self.kind]:
            passed.append(matches.ratios < self._limit("ratio", *recorded))
        if "distance" in NUMBERS[self.kind]:
            passed.append(matches.distances <= self._limit("distance", *recorded))
        combine = np.logical_or if self.kind == "either" else np.logical_and
        return np.asarray(combine.reduce(passed)) if passed else np.ones(len(matches), bool)

    def check_recorded(self, model: str, settings: Mapping[str, Any]) -> None:
        """Refuse a test that features of this model with these settings do not allow: of distances without a limit, or
        of context; or that needs what is not installed.
        """
        if self.kind == "adalam":
            _need_adalam()
        if self.kind == "context":
            from matchkernel.photos.context import find_matcher

            find_matcher(model, settings, self.weights)
        if "distance" in NUMBERS[self.kind]:
            self._limit("distance", settings)

    def _limit(self, name: str, *recorded: Mapping[str, Any]) -> float:
        """The limit of the ratio or the distance: that of the filter, else the first one recorded."""
        key, default = (RATIO, LEARNED_RATIO) if name == "ratio" else (THRESHOLD, None)
        for value in (getattr(self, name), *(settings.get(key) for settings in recorded), default):
            if value is not None:
                return _checked(name, value)
        example = ",".join({"ratio": "0.9", "distance": "0.8"}[each] for each in NUMBERS[self.kind])
        raise ArgumentError(f"no distance is recorded for these descriptors: give one, such as {self.kind}:{example}")


DEFAULT_FILTER = Filter("ratio")
FILE = ".safetensors"
FILTER_HELP = (
    "matches to keep: none (all), ratio, distance, either, both, adalam, context; with other limits: ratio:0.85, "
    "either:0.85,0.8, context:0.7; with a matcher of yours: context:FILE.safetensors"
)


def parse_filter(text: Filter | str, *, may_read: bool = True) -> Filter:
    """A filter from a string: a kind, and its numbers after a colon if they are not the calibrated ones.

    The weights of "context" may be a file: "context:own.safetensors" or "context:own.safetensors:0.7".

    Args:
        text: the string, or a Filter, which is returned unchanged.
        may_read: whether it may name a file.

    Example:
        >>> parse_filter("both:0.85,0.7")
        Filter(kind='both', ratio=0.85, distance=0.7)
    """
    if isinstance(text, Filter):
        return text
    if not isinstance(text, str):
        raise ArgumentError(
            f"the matcher (filter) must be a Filter or a string such as 'ratio:0.85', got {short_repr(text)}"
        )
    kind, colon, rest = text.strip().partition(":")
    names, file = NUMBERS.get(kind, ()), ""
    if kind == "context" and FILE in rest and may_read:
        file, _, rest = rest.rpartition(FILE)
        file, colon, rest = f"{file}{FILE}", rest[:1], rest[1:]
    try:
        if colon not in ("", ":"):
            raise ValueError
        values = [float(part) for part in rest.split(",")] if colon else []
    except ValueError:
        raise ArgumentError(f"the numbers of a matcher are written ratio:0.85, got {short_repr(text)}") from None
    if kind in NUMBERS and colon and len(values) != len(names):
        wanted = " and ".join(f"a {name}" for name in names) or "no number"
        raise ArgumentError(f"the matcher {kind} takes {wanted}, got {short_repr(text)}")
    chosen = Filter(kind, **dict(zip(names, values, strict=False)))  # type: ignore[arg-type]
    return replace(chosen, weights=read_context(file)) if file else chosen


def match(
    a: Features | np.ndarray,
    b: Features | np.ndarray,
    *,
    mutual: bool = True,
    filter: Filter | str = "none",  # noqa: A002 - the name of the option
    device: "str | torch.device | None" = None,
) -> Matches:
    """Match descriptors to their exact nearest neighbours (L2; the lowest index among ties).

    Rows of zeros, which describe nothing, are ignored on both sides: they neither match nor count as second nearest.

    Args:
        a: features, or (K, D) rows.
        b: features of the same model, or (L, D) rows.
        mutual: keep only mutual nearest neighbours; otherwise every row of A is matched to its nearest neighbour.
        filter: test that the matches must pass (see Filter), or a string such as "ratio:0.85" or "context". For mutual
            matches the ratio test applies in both directions.
        device: where the tiles are computed: "cpu" (the default), "cuda", ..., "auto" for a GPU if there is one. The
            matches are the same.

    Example:
        >>> import numpy as np
        >>> from matchkernel import match
        >>> rows = np.eye(3)
        >>> match(rows, rows[[2, 0, 1]]).indices.tolist()
        [[0, 1], [1, 2], [2, 0]]
    """
    chosen_filter = parse_filter(filter)
    place = open_place(device)
    if not place.startswith("cuda"):
        place = CPU  # other GPUs have no float64, which decides between similar distances
    if isinstance(a, Features) and isinstance(b, Features):
        _check_same_kind(a, b)
    rows_a, rows_b = _rows(a, "A"), _rows(b, "B")
    if rows_a.shape[1] != rows_b.shape[1]:
        raise ArgumentError(
            f"descriptors of A have {rows_a.shape[1]} dimensions, those of B {rows_b.shape[1]}: not comparable"
        )
    if chosen_filter.kind == "context":
        return _in_context(a, b, chosen_filter)
    used_a, used_b = (np.flatnonzero(rows.any(1)) for rows in (rows_a, rows_b))
    if not len(used_a) or not len(used_b):
        return Matches(np.empty((0, 2), np.int64), np.empty(0), np.empty(0))
    rows_a, rows_b = rows_a[used_a], rows_b[used_b]
    there = find_nearest(rows_a, rows_b, device=place)
    found = Matches(np.column_stack([used_a, used_b[there.index]]), np.sqrt(there.first), there.ratios)
    if mutual:
        chosen, position = np.unique(there.index, return_inverse=True)  # other rows of B cannot have a mutual match
        back = find_nearest(rows_b[chosen], rows_a, device=place)
        ratios = np.maximum(there.ratios, back.ratios[position])
        found = replace(found, ratios=ratios)[back.index[position] == np.arange(len(rows_a))]
    return found[chosen_filter.keep(found, a, b)]


def align_matches(matches: Matches, a: Features, b: Features, image_a: np.ndarray, image_b: np.ndarray) -> Matches:
    """The matches with points of B that are aligned with those of A (see geometry.alignment).

    The points belong to this pair alone: where matches of many images become tracks, keypoints stay where they are.

    Args:
        matches: of A and B.
        a: features of image A.
        b: features of image B.
        image_a: (H, W) gray, uint8 or float32.
        image_b: the same of B.
    """
    if a.frames.are_points or b.frames.are_points:
        raise ArgumentError(f"keypoints of {a.model} have no sizes, without which points cannot be aligned")
    ends = a.frames[matches.indices[:, 0]], b.frames[matches.indices[:, 1]]
    return replace(matches, aligned=align_points(image_a, image_b, *ends))


def _check_same_kind(a: Features, b: Features) -> None:
    """Refuse features of different models or of differently cut regions (SIFT cuts its own)."""
    if (a.model, a.settings.get("weights")) != (b.model, b.settings.get("weights")):
        raise ArgumentError(f"features of A are from {a.model!r}, those of B from {b.model!r} (or from other weights)")
    if a.settings.get("cut") is None:
        return
    for key in ("patch_size", "cut", "sampler", "magnification"):
        # The sampler of a GPU differs only by rounding.
        one, two = (str(f.settings.get(key)).removesuffix("-device") for f in (a, b))
        if one != two:
            raise ArgumentError(f"features of A were made with {key} {one}, those of B with {two}: not comparable")


def _rows(features: Features | np.ndarray, side: str) -> np.ndarray:
    rows = features.descriptors if isinstance(features, Features) else features
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "uif":
        kind = rows.dtype if isinstance(rows, np.ndarray) else type(rows).__name__
        raise ArgumentTypeError(f"descriptors of {side} must be a numpy array of numbers, got {kind}")
    if rows.ndim != 2:
        raise ArgumentError(f"descriptors of {side} must have shape (K, D), got {rows.shape}")
    rows = rows if rows.dtype == np.float32 else rows.astype(np.float64)
    is_bad = ~(np.abs(rows) <= LARGEST).all(1)
    if is_bad.any():
        raise ArgumentError(
            f"descriptors of {side}: row {int(is_bad.argmax())} contains NaN or a value above {LARGEST:g}"
        )
    return rows


def _checked(name: str, value: object) -> float:
    """A ratio or a distance as a number; any other value is refused."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    if name == "ratio" and not 0 < number <= 1:
        raise ArgumentError(f"ratio must be above 0 and at most 1, got {short_repr(value)}")
    if name == "chance" and not 0 < number < 1:
        raise ArgumentError(f"chance must be above 0 and below 1, got {short_repr(value)}")
    if name == "distance" and not 0 <= number < np.inf:
        raise ArgumentError(f"distance must be at least 0 and finite, got {short_repr(value)}")
    return number


def _in_context(a: Features | np.ndarray, b: Features | np.ndarray, chosen: Filter) -> Matches:
    from matchkernel.photos.context import match_in_context

    if not isinstance(a, Features) or not isinstance(b, Features):
        raise ArgumentError("the matcher context needs keypoints: match Features, not rows")
    return match_in_context(a, b, chosen.chance, chosen.weights)


def _need_adalam() -> Any:
    return need("kornia.feature.adalam", "kornia", "the matcher adalam")


def _adalam(matches: Matches, a: Features | np.ndarray, b: Features | np.ndarray) -> np.ndarray:
    """AdaLAM of kornia with its own settings, on the points, directions and sizes of the matches alone."""
    adalam = _need_adalam()
    import torch

    if not isinstance(a, Features) or not isinstance(b, Features):
        raise ArgumentError("the matcher adalam needs keypoints: match Features, not rows")
    if len(matches) > ADALAM_LIMIT:
        raise ArgumentError(f"the matcher adalam takes at most {ADALAM_LIMIT:,} matches, here are {len(matches):,}")
    kept = np.zeros(len(matches), bool)
    if len(matches) < 2:
        return kept  # no neighbour can confirm one
    ends = [side[rows] for side, rows in zip((a, b), matches.indices.T, strict=True)]
    found = adalam.AdalamFilter().filter_matches(
        *(torch.from_numpy(end.keypoints).float() for end in ends),
        torch.arange(len(matches)),
        torch.from_numpy(matches.ratios**2).float(),
        torch.ones(len(matches), dtype=torch.bool),
        a.image_size,
        b.image_size,
        *(torch.from_numpy(np.degrees(end.orientations)).float() for end in ends),
        *(torch.from_numpy(end.frames.half_widths).float() for end in ends),
    )
    kept[found[:, 0].numpy()] = True
    return kept
