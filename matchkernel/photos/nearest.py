"""Exact distances and nearest neighbours at the speed of matrix products.

A matrix product gives all distances of a tile at once, but its rounding error could change the order of similar
distances. The error has a known bound, so the product only decides the clear cases; distances that differ by less than
the bound are computed again in float64 from the differences of the rows. The result is therefore that of brute force
in float64, however the work is divided into tiles.

L2 distances are kept as squares, which have the same order. Hamming distances are squared L2 distances of bits.

On a CPU everything is computed by numpy. On a GPU the same lines are run by torch, whose functions have the same names.
"""

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    import torch

Distance = Literal["l2", "l1", "hamming"]  # bits are compared as numbers 0 and 1
Array = Any  # of numpy or, on a GPU or where the caller has tensors, of torch

LARGEST = 1e15  # limit of a descriptor's values, so that sums of squares stay far from overflow in float32
TILE, COLUMNS = 2**23, 8192  # distances per tile (32 MiB of float32), and maximum number of columns
PAIRS_AT_A_TIME, PAIRS_IN_CACHE = 2**15, 2**10  # whose differences are held at once, on a GPU and on a CPU
PARTS = 4  # of a tile, whose minima bound the second least value
SMALL = 1e-9  # of all values; the squares of smaller ones might underflow in float32
UNIT = float(np.finfo(np.float64).eps)


class Nearest:
    """The nearest of M rows to each of Q rows, among the pairs offered so far.

    Attributes:
        index: (Q,) int64, the lowest index among ties.
        first: (Q,) float64 distance to it, squared for L2; infinite if no pair was offered.
        second: (Q,) float64 distance to the second nearest; infinite if there is none, or if it was not requested and
            is certainly larger than `first`.
    """

    def __init__(self, count: int, xp: Any = np, device: Any = "cpu") -> None:
        self.index = xp.zeros(count, dtype=xp.int64, device=device)
        self.first = xp.full((count,), xp.inf, dtype=xp.float64, device=device)
        self.second = xp.full((count,), xp.inf, dtype=xp.float64, device=device)

    def offer(self, rows: Array, columns: Array, distances: Array) -> None:
        """Merge candidates: pairs of rows of a and b, ordered by row and then column, each offered once."""
        if not len(rows):
            return
        xp = _library(rows)
        starts = xp.ones(len(rows), dtype=xp.bool, device=rows.device)
        starts[1:] = rows[1:] != rows[:-1]
        at = _where(starts)
        if len(at) < len(rows):
            order = xp.argsort(distances, stable=True)
            order = order[xp.argsort(rows[order], stable=True)]  # by row, then distance, then column
            rows, columns, distances = rows[order], columns[order], distances[order]
        owner, best, nearest = rows[at], distances[at], columns[at]
        following = xp.clip(at + 1, 0, len(rows) - 1)
        has_second = (at + 1 < len(rows)) & (rows[following] == owner)
        runner_up = xp.where(has_second, distances[following], xp.inf)
        first, second = self.first[owner], self.second[owner]
        is_better = (best < first) | ((best == first) & (nearest < self.index[owner]))
        self.index[owner] = xp.where(is_better, nearest, self.index[owner])
        self.first[owner] = xp.where(is_better, best, first)
        self.second[owner] = xp.where(is_better, xp.minimum(first, runner_up), xp.minimum(second, best))

    @property
    def is_only(self) -> np.ndarray:
        """(Q,) whether the nearest is unique, up to a relative rounding error of 10^-12."""
        return np.asarray(self.second > self.first * (1 + 1e-12))

    @property
    def ratios(self) -> np.ndarray:
        """(Q,) ratios of nearest to second-nearest L2 distance: 0 if there is no second, 1 if both are 0."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.where(self.second > 0, np.sqrt(self.first) / np.sqrt(self.second), 1.0)


class Distances:
    """Distances between rows of a and rows of b: in tiles, with an error of at most `error`, and exactly, one by one.

    Args:
        a: (Q, D) finite numbers.
        b: (M, D), of the same library and on the same device.
        distance: "l2" and "hamming" are squared L2 distances; "l1" is for tensors of torch.
        dtype: of the tiles, "float32" or "float64"; those of L1 are always float64.
    """

    def __init__(self, a: Array, b: Array, distance: Distance = "l2", dtype: str = "float64") -> None:
        self.a, self.b, self.distance = a, b, distance
        D, xp = a.shape[1], _library(a)
        if distance == "l1":
            self.error = 4 * (D + 4) * D * UNIT * _largest(a, b)
            return
        a, b = (xp.asarray(rows, dtype=getattr(xp, dtype)) for rows in (a, b))
        squares_a, squares_b = (_squares(rows)[:, None] for rows in (a, b))
        # One product gives |a|^2 - 2 a.b + |b|^2.
        self._left = xp.concat([a, squares_a, xp.ones_like(squares_a)], axis=1)
        self._right = xp.concat([-2 * b, xp.ones_like(squares_b), squares_b], axis=1).T
        longest, unit = _largest(squares_a, squares_b), float(np.finfo(dtype).eps)
        # At most D + 4 roundings of each of the terms, and as many of the direct sum in float64.
        roundings = 3 * unit + 5 * UNIT
        self.error = 0.0 if _are_exact(self.a, self.b, longest, unit) else (D + 4) * roundings * longest

    def tile(self, rows: Any, columns: slice = slice(None), out: Array | None = None) -> Array:
        """(q, m) distances of a[rows] and b[columns], in the flat buffer `out` if given: allocating takes time."""
        xp = _library(self.a)
        if self.distance == "l1":
            return xp.cdist(self.a[rows].double(), self.b[columns].double(), p=1)
        left, right = self._left[rows], self._right[:, columns]
        target = None if out is None else out[: len(left) * right.shape[1]].reshape(len(left), -1)
        return xp.matmul(left, right, out=target)

    def exact(self, rows: Array, columns: Array) -> Array:
        """See exact_distances."""
        return exact_distances(self.a, self.b, rows, columns, self.distance)


def exact_distances(a: Array, b: Array, rows: Array, columns: Array, distance: Distance) -> Array:
    """(m,) float64 distances of a[rows] and b[columns], each from its own differences; squared for L2."""
    xp = _library(a)
    found = xp.empty(len(rows), dtype=xp.float64, device=a.device)
    step = PAIRS_IN_CACHE if str(a.device) == "cpu" else PAIRS_AT_A_TIME
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        difference = _differences(a, b, rows[part], columns[part])
        found[part] = abs(difference).sum(1) if distance == "l1" else _squares(difference)
    return found


def find_nearest(
    a: np.ndarray,
    b: np.ndarray,
    distance: Distance = "l2",
    *,
    wants_second: bool = True,
    device: "str | torch.device" = "cpu",
    tile: tuple[int, int] = (TILE, COLUMNS),
    room: Array | None = None,
) -> Nearest:
    """Find the nearest row of b to each row of a, and the distance to the second nearest.

    Memory: a few copies of the rows, a tile of 32 MiB and its mask. 100,000 x 100,000 rows of 128 float32 took 450 MB
    in addition to the 100 MB of input.

    Args:
        a: (Q, D) finite floats.
        b: (M, D) finite floats, M at least 1.
        distance: which; "l1" needs torch.
        wants_second: if False, the second distance is computed only where it may be as small, which is faster.
        device: where the tiles are computed; any but "cpu" needs torch.
        tile: number of distances per tile, and maximum number of its columns.
        room: (tile[0],) float32 buffer for the tiles, to be reused in many calls; on the device, not for L1.
    """
    largest = max(float(max(rows.max(initial=0), -rows.min(initial=0))) for rows in (a, b))
    if 0 < largest < SMALL:
        scale = 2.0 ** -float(np.frexp(largest)[1])  # a power of two is exact
        a, b = a.astype(np.float64) * scale, b.astype(np.float64) * scale
        found = find_nearest(a, b, distance, wants_second=wants_second, device=device, tile=tile)
        unit = scale if distance == "l1" else scale**2
        found.first, found.second = found.first / unit, found.second / unit
        return found
    starts, counts = _distinct(b)
    b = b if len(starts) == len(b) else b[starts]
    on_torch = str(device) != "cpu" or distance == "l1"
    rows, precisely = _on_torch(a, b, device) if on_torch else ((a, b), nullcontext())
    with precisely:
        found = _search(Distances(rows[0], rows[1], distance, "float32"), wants_second, tile, room)
    if on_torch:
        found.index, found.first, found.second = (x.cpu().numpy() for x in (found.index, found.first, found.second))
    found.second = np.where(counts[found.index] > 1, found.first, found.second)
    found.index = starts[found.index]
    return found


def _on_torch(a: np.ndarray, b: np.ndarray, device: "str | torch.device") -> tuple[tuple[Array, Array], Any]:
    """Rows as tensors of a device, and a context in which torch multiplies them without TF32."""
    import torch

    from matchkernel.model.precision import full_precision

    # A copy if necessary: torch accepts neither read-only arrays nor negative strides.
    left, right = (torch.from_numpy(np.require(rows, requirements=["C", "W"])).to(device) for rows in (a, b))
    return (left, right), full_precision()


def _search(distances: Distances, wants_second: bool, size: tuple[int, int], room: Array | None) -> Nearest:
    """Compare all rows of a with all rows of b, tile by tile."""
    xp, error, device = _library(distances.a), distances.error, distances.a.device
    rows, columns = len(distances.a), len(distances.b)
    best = Nearest(rows, xp, device)
    last = best.second if wants_second else best.first  # the largest distance that must be exact

    def offer(chosen: Array, partners: Array) -> None:
        best.offer(chosen, partners, distances.exact(chosen, partners))

    def offer_within(tile: Array, bound: Array, part: Array, start: int) -> None:
        """Offer the columns that may be as near as both the (q,) bound of this tile and the answers so far."""
        limit = xp.minimum(xp.asarray(bound, dtype=xp.float64) + 2 * error, last[part] + error)
        limit = xp.asarray(limit, dtype=tile.dtype)
        # Rounded up to float32, so that nothing within the limit is lost.
        chosen, partners = _at_most(tile, xp.nextafter(limit, xp.full_like(limit, xp.inf)))
        offer(part[chosen], partners + start)

    def offer_least(tile: Array, part: Array, start: int) -> None:
        """Offer the smallest of each row of the tile, and those that may be as near."""
        each, partners = xp.arange(len(tile), device=device), tile.argmin(1)
        least = xp.asarray(tile[each, partners], dtype=xp.float64)
        tile[each, partners] = xp.inf
        offer(part, partners + start)
        unsure = _where(xp.asarray(_minima(tile), dtype=xp.float64) <= least + 2 * error)
        if len(unsure):
            offer_within(tile[unsure], least[unsure], part[unsure], start)

    width = min(size[1], columns)
    height = max(1, size[0] // width)
    for top in range(0, rows, height):
        part = xp.arange(top, min(top + height, rows), device=device)
        for start in range(0, columns, width):
            tile = distances.tile(slice(top, top + height), slice(start, start + width), room)
            if wants_second:
                offer_within(tile, _second_bound(tile), part, start)
            else:
                offer_least(tile, part, start)
    return best


def _distinct(b: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The first index of each distinct row of (M, D), in that order, and how often the row occurs.

    Without this, many copies of a row, all within the error of each other, would be compared one by one.
    """
    if len(np.unique(b.sum(1, dtype=np.float64))) == len(b):  # copies have equal sums; usually there are none
        return np.arange(len(b)), np.ones(len(b), np.int64)
    # Adding zero turns -0 into 0, which is equal but does not have the same bytes.
    _, first, counts = np.unique(b + 0, axis=0, return_index=True, return_counts=True)
    order = np.argsort(first)
    return first[order], counts[order]


def _are_exact(a: Array, b: Array, longest: float, unit: float) -> bool:
    """Whether all products and sums of rows are exact: the values are small multiples of 1 or 1/256."""

    def are_whole(rows: Array) -> bool:
        return bool((rows == rows.round()).all())

    steps = [step for step in (1.0, 256.0) if 8 * step**2 * longest * unit < 1]
    likely = [step for step in steps if are_whole(a[:1] * step)]  # rarely true, and cheap to find out
    return any(are_whole(a * step) and are_whole(b * step) for step in likely)


def _largest(*values: Array) -> float:
    return max((float(abs(part).max()) if 0 not in part.shape else 0.0) for part in values)


def _second_bound(tile: Array) -> Array:
    """(q,) a bound that at least two values of a row do not exceed: the second least of the minima of its parts."""
    xp, width = _library(tile), max(1, -(-tile.shape[1] // PARTS))
    first = second = xp.full((len(tile),), xp.inf, dtype=tile.dtype, device=tile.device)
    for start in range(0, tile.shape[1], width):
        least = _minima(tile[:, start : start + width])
        second = xp.minimum(second, xp.maximum(first, least))
        first = xp.minimum(first, least)
    return second


def _library(array: Array) -> Any:
    """numpy or torch, whichever the array is of."""
    return np if isinstance(array, np.ndarray) else sys.modules["torch"]


# For tensors of a CPU the following functions take a fifth to a half of torch's time in numpy.


def _differences(a: Array, b: Array, rows: Array, columns: Array) -> Array:
    """(m, D) float64: a[rows] - b[columns]."""
    if isinstance(a, np.ndarray):
        return np.subtract(a[rows], b[columns], dtype=np.float64)
    if a.device.type != "cpu":
        return a[rows].double() - b[columns].double()
    return _library(a).from_numpy(_differences(*(values.numpy() for values in (a, b, rows, columns))))


def _squares(rows: Array) -> Array:
    """(m,) squared lengths of rows."""
    if isinstance(rows, np.ndarray):
        return np.einsum("ij,ij->i", rows, rows)
    return rows.square().sum(1) if rows.device.type != "cpu" else _library(rows).from_numpy(_squares(rows.numpy()))


def _minima(tile: Array) -> Array:
    """(q,) smallest value of each row."""
    return tile.min(1) if isinstance(tile, np.ndarray) else tile.amin(1)


def _where(mask: Array) -> Array:
    """Indices of the true values."""
    return np.flatnonzero(mask) if isinstance(mask, np.ndarray) else mask.nonzero()[:, 0]


def _at_most(tile: Array, limit: Array) -> tuple[Array, Array]:
    """Rows and columns of (q, m) where it is at most the (q,) limit, in order."""
    if not isinstance(tile, np.ndarray):
        rows, columns = (tile <= limit[:, None]).nonzero(as_tuple=True)
        return rows, columns
    flat = np.flatnonzero(tile <= limit[:, None])
    return flat // tile.shape[1], flat % tile.shape[1]
