"""Filters: which nearest neighbours are kept as matches. `parse_filter("ratio:0.85")` makes one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any, Literal

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
ADALAM_LIMIT = 20_000  # matches: it holds all distances between their points, 1.6 GB for this many
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
        for name in ("ratio", "distance"):
            value = getattr(self, name)
            if value is not None and name not in NUMBERS[self.kind]:
                raise ArgumentError(f"the filter {self.kind} takes no {name}, got {short_repr(value)}")
            if value is not None:
                object.__setattr__(self, name, _checked(name, value))

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
        if self.kind == "adalam":
            return _adalam(matches, a, b)
        recorded = [side.settings for side in (a, b) if isinstance(side, Features)]
        passed = []
        if "ratio" in NUMBERS[self.kind]:
            passed.append(matches.ratios < self._limit("ratio", recorded))
        if "distance" in NUMBERS[self.kind]:
            passed.append(matches.distances <= self._limit("distance", recorded))
        combine = np.logical_or if self.kind == "either" else np.logical_and
        return np.asarray(combine.reduce(passed)) if passed else np.ones(len(matches), bool)

    def check_recorded(self, settings: Mapping[str, Any]) -> None:
        """Refuse a test of distances that are neither given nor recorded, before anything is computed.

        Args:
            settings: those that the features will have.
        """
        if "distance" in NUMBERS[self.kind]:
            self._limit("distance", [settings])

    def _limit(self, name: str, recorded: Sequence[Mapping[str, Any]]) -> float:
        """The limit of the ratio or the distance: that of the filter, else the first one recorded."""
        key = RATIO if name == "ratio" else THRESHOLD
        found = next((value for settings in recorded if (value := settings.get(key)) is not None), None)
        found = found if getattr(self, name) is None else getattr(self, name)
        if found is None and name == "ratio":
            return LEARNED_RATIO
        if found is None:
            example = {"ratio": self.ratio or LEARNED_RATIO, "distance": 0.8}
            numbers = ",".join(str(example[each]) for each in NUMBERS[self.kind])
            raise ArgumentError(
                f"no distance is recorded for these descriptors: give one, such as {self.kind}:{numbers}"
            )
        return _checked(name, found)


def parse_filter(text: str) -> Filter:
    """A filter from a string: a kind, and its numbers after a colon if they are not the calibrated ones.

    Example:
        >>> parse_filter("both:0.85,0.7")
        Filter(kind='both', ratio=0.85, distance=0.7)
    """
    kind, colon, rest = text.strip().partition(":")
    names = NUMBERS.get(kind, ())
    try:
        values = [float(part) for part in rest.split(",")] if colon else []
    except ValueError:
        raise ArgumentError(f"the numbers of a filter are written ratio:0.85, got {short_repr(text)}") from None
    if kind in NUMBERS and colon and len(values) != len(names):
        wanted = " and ".join(f"a {name}" for name in names) or "no number"
        raise ArgumentError(f"the filter {kind} takes {wanted}, got {short_repr(text)}")
    return Filter(kind, **dict(zip(names, values, strict=False)))  # type: ignore[arg-type]


def as_filter(value: Filter | str) -> Filter:
    """A filter, or the one that a string describes."""
    if isinstance(value, Filter):
        return value
    if not isinstance(value, str):
        raise ArgumentError(f"filter must be a Filter or a string such as 'ratio:0.85', got {short_repr(value)}")
    return parse_filter(value)


def _checked(name: str, value: object) -> float:
    """A ratio or a distance as a number; any other value is refused."""
    number = float(value) if isinstance(value, Real) and not isinstance(value, bool) else np.nan
    if name == "ratio" and not 0 < number <= 1:
        raise ArgumentError(f"ratio must be above 0 and at most 1, got {short_repr(value)}")
    if name == "distance" and not 0 <= number < np.inf:
        raise ArgumentError(f"distance must be at least 0 and finite, got {short_repr(value)}")
    return number


def _adalam(matches: Matches, a: Features | np.ndarray, b: Features | np.ndarray) -> np.ndarray:
    """AdaLAM of kornia with its own settings, on the points, directions and sizes of the matches alone."""
    import torch

    adalam = need("kornia.feature.adalam", "kornia", "the filter adalam")
    if not isinstance(a, Features) or not isinstance(b, Features):
        raise ArgumentError("the filter adalam needs keypoints: match Features, not rows")
    if len(matches) > ADALAM_LIMIT:
        raise ArgumentError(f"the filter adalam takes at most {ADALAM_LIMIT:,} matches, here are {len(matches):,}")
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


DEFAULT_FILTER = Filter("ratio")
