"""Match the features of two images: mutual nearest neighbours that pass a filter."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.photos.describers import CPU, open_place
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.filters import Filter, as_filter
from matchkernel.photos.nearest import LARGEST, find_nearest

if TYPE_CHECKING:
    import torch


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
        filter: test that the matches must pass (see filters.Filter), or a string such as "ratio:0.85". For mutual
            matches the ratio test applies in both directions.
        device: where the tiles are computed: "cpu" (the default), "cuda", ..., "auto" for a GPU if there is one. The
            matches are the same.

    Example:
        >>> rows = np.eye(3)
        >>> match(rows, rows[[2, 0, 1]]).indices.tolist()
        [[0, 1], [1, 2], [2, 0]]
    """
    chosen_filter = as_filter(filter)
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


def _check_same_kind(a: Features, b: Features) -> None:
    """Refuse features of different models or of differently cut regions (SIFT cuts its own)."""
    ours, theirs = ((f.model, f.settings.get("weights")) for f in (a, b))
    if ours != theirs:
        raise ArgumentError(
            f"features of A are from {ours[0]!r}, those of B from {theirs[0]!r} (or from other weights)"
        )
    for key in ("patch_size", "cut", "sampler", "magnification"):
        one, two = (_without_device(f.settings.get(key)) for f in (a, b))
        if a.settings.get("cut") is not None and one != two:
            raise ArgumentError(f"features of A were made with {key} {one}, those of B with {two}: not comparable")


def _without_device(value: Any) -> Any:
    """The name of a sampler: a GPU's differs by rounding."""
    return value.removesuffix("-device") if isinstance(value, str) else value


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
