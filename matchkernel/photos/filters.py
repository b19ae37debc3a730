"""Filters: which nearest neighbours are kept as matches. `parse_filter("ratio:0.85")` makes one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal, get_args

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.photos.features import Features, Matches
from matchkernel.storage.extras import need
from matchkernel.storage.settings import short_repr

Kind = Literal["none", "ratio", "distance", "either", "both", "adalam"]
NUMBERS: dict[str, tuple[str, ...]] = {  # of each kind, in the order in which they are written
    "none": (),
    "ratio": ("ratio",),
    "distance": ("distance",),
    "either": ("ratio", "distance"),
    "both": ("ratio", "distance"),
    "adalam": (),
}
MOST_FOR_ADALAM = 20_000  # matches: it holds all distances between their points, 1.6 GB for this many
THRESHOLD, RATIO = "match_threshold", "match_ratio"  # keys of the calibrated limits in the settings of features
# Maximum ratio of nearest to second-nearest distance where none is recorded: that of `dual` and `light`, see
# docs/photos.md.
LEARNED_RATIO = 0.9


@dataclass(frozen=True)
class Filter:
    """A test that matches must pass.

    Attributes:
        kind: "none" keeps all; "ratio" those whose ratio of nearest to second-nearest distance is below a limit;
            "distance" those up to a distance of descriptors; "either" those that pass one of these tests; "both" those
            that pass both; "adalam" those whose neighbours move alike (AdaLAM, from kornia).
        ratio: limit of the ratio; None for the one recorded with the features (0.9 if there is none).
        distance: limit of the distance; None for the one recorded with the features. If there is none, filters that
            test distances are refused.
    """

    kind: Kind = "none"
    ratio: float | None = None
    distance: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in NUMBERS:
            raise ArgumentError(f"filter must be one of {', '.join(NUMBERS)}, got {short_repr(self.kind)}")
        for name, check in (("ratio", check_ratio), ("distance", check_distance)):
            value = getattr(self, name)
            if value is not None and name not in NUMBERS[self.kind]:
                raise ArgumentError(f"the filter {self.kind} takes no {name}, got {short_repr(value)}")
            if value is not None:
                object.__setattr__(self, name, check(value))

    def __str__(self) -> str:
        """The string that `parse_filter` reads."""
        values = [getattr(self, name) for name in NUMBERS[self.kind]]
        given = [repr(value) for value in values if value is not None]
        return f"{self.kind}:{','.join(given)}" if given and len(given) == len(values) else self.kind

    def keep(self, matches: Matches, a: Features | np.ndarray, b: Features | np.ndarray) -> np.ndarray:
        """(M,) bool: which of M matches pass.

        Args:
            matches: nearest neighbours with their distances and ratios.
            a: features of image A, or their rows, which record no limits.
            b: features of image B, or their rows.
        """
        if self.kind == "none":
            return np.ones(len(matches), bool)
        if self.kind == "adalam":
            return _adalam(matches, a, b)
        recorded = [side.settings for side in (a, b) if isinstance(side, Features)]
        if self.kind == "distance":
            return matches.distances <= self._distance(recorded)
        distinct = matches.ratios < self._ratio(recorded)
        if self.kind == "ratio":
            return distinct
        near = matches.distances <= self._distance(recorded)
        return near | distinct if self.kind == "either" else near & distinct

    def check_recorded(self, settings: Mapping[str, Any]) -> None:
        """Refuse a test of distances that are neither given nor recorded, before anything is computed.

        Args:
            settings: those that the features will have.
        """
        if "distance" in NUMBERS[self.kind]:
            self._distance([settings])

    def _ratio(self, recorded: Sequence[Mapping[str, Any]]) -> float:
        found = _first(RATIO, recorded) if self.ratio is None else self.ratio
        return LEARNED_RATIO if found is None else check_ratio(found, RATIO)

    def _distance(self, recorded: Sequence[Mapping[str, Any]]) -> float:
        found = _first(THRESHOLD, recorded) if self.distance is None else self.distance
        if found is None:
            example = {"ratio": self.ratio or LEARNED_RATIO, "distance": 0.8}
            numbers = ",".join(str(example[name]) for name in NUMBERS[self.kind])
            raise ArgumentError(
                f"no distance is recorded for these descriptors: give one, such as {self.kind}:{numbers}"
            )
        return check_distance(found, THRESHOLD)


def parse_filter(text: str) -> Filter:
    """A filter from a string: a kind, and its numbers after a colon if they are not the calibrated ones."""
    kind, colon, rest = text.strip().partition(":")
    known = kind in get_args(Kind)
    names = NUMBERS.get(kind, ())
    parts = rest.split(",") if colon else []
    if known and colon and len(parts) != len(names):
        wanted = " and ".join(f"a {name}" for name in names) or "no number"
        raise ArgumentError(f"the filter {kind} takes {wanted}, got {short_repr(text)}")
    try:
        values = [float(part) for part in parts]
    except ValueError:
        raise ArgumentError(f"the numbers of a filter are written ratio:0.85, got {short_repr(text)}") from None
    if not known:
        raise ArgumentError(f"filter must be one of {', '.join(NUMBERS)}, got {short_repr(text)}")
    return Filter(kind, **dict(zip(names, values, strict=False)))  # type: ignore[arg-type]


def as_filter(value: Filter | str) -> Filter:
    """A filter, or the one that a string describes."""
    if isinstance(value, Filter):
        return value
    if not isinstance(value, str):
        raise ArgumentError(f"filter must be a Filter or a string such as 'ratio:0.85', got {short_repr(value)}")
    return parse_filter(value)


def check_ratio(value: object, name: str = "ratio") -> float:
    """The value as a ratio of nearest to second-nearest distance; any other value is refused."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) <= 1:
        raise ArgumentError(f"{name} must be above 0 and at most 1, got {short_repr(value)}")
    return float(value)


def check_distance(value: object, name: str = "distance") -> float:
    """The value as a distance; any other value is refused."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) < np.inf:
        raise ArgumentError(f"{name} must be a distance of at least 0, got {short_repr(value)}")
    return float(value)


def _first(key: str, recorded: Sequence[Mapping[str, Any]]) -> object:
    """The value of the first settings that have one."""
    return next((value for settings in recorded if (value := settings.get(key)) is not None), None)


def _adalam(matches: Matches, a: Features | np.ndarray, b: Features | np.ndarray) -> np.ndarray:
    """AdaLAM of kornia with its own settings, on the points, directions and sizes of the matches alone."""
    import torch

    adalam = need("kornia.feature.adalam", "kornia", "the filter adalam")
    if not isinstance(a, Features) or not isinstance(b, Features):
        raise ArgumentError("the filter adalam needs keypoints: match Features, not rows")
    if len(matches) > MOST_FOR_ADALAM:
        raise ArgumentError(f"the filter adalam takes at most {MOST_FOR_ADALAM:,} matches, here are {len(matches):,}")
    kept = np.zeros(len(matches), bool)
    if len(matches) < 2:
        return kept  # no neighbour can confirm one
    ends = a[matches.indices[:, 0]], b[matches.indices[:, 1]]
    points, degrees, sizes = (
        [torch.from_numpy(value).float() for value in values]
        for values in (
            [end.keypoints for end in ends],
            [np.degrees(end.orientations) for end in ends],
            [end.frames.half_widths for end in ends],
        )
    )
    found = adalam.AdalamFilter().filter_matches(
        *points,
        torch.arange(len(matches)),
        torch.from_numpy(matches.ratios**2).float(),
        torch.ones(len(matches), dtype=torch.bool),
        a.image_size,
        b.image_size,
        *degrees,
        *sizes,
    )
    kept[found[:, 0].numpy()] = True
    return kept


FOR_A_PAIR = Filter("ratio")  # default of `match_images` and of the verb match
FOR_A_SCENE = Filter("ratio")  # default of `reconstruct` and of the verb colmap
