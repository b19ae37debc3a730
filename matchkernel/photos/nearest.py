"""Exact distances and nearest neighbours at the speed of matrix products.

A matrix product gives all distances of a tile at once, but its rounding error could change the order of similar
distances. The error has a known bound, so the product only decides the clear cases; distances that differ by less than
the bound are computed again in float64 from the differences of the rows. The result is therefore that of brute force
in float64, however the work is divided into tiles.

L2 distances are kept as squares, which have the same order. Hamming distances are squared L2 distances of bits.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import MissingExtraError
from matchkernel.model.precision import full_precision
from matchkernel.storage.extras import need

Distance = Literal["l2", "l1", "hamming"]  # bits are compared as numbers 0 and 1

LARGEST = 1e15  # maximum of a descriptor's values, so that sums of squares stay far from overflow in float32
TILE, COLUMNS = 2**23, 8192  # distances per tile (32 MiB of float32), and maximum number of columns
PAIRS_AT_A_TIME = 2**15
SMALL = 1e-9  # of all values; the squares of smaller ones might underflow in float32
FAISS_NEIGHBOURS = (
    8  # requested from FAISS; if the 8th could still be the second nearest, the row is computed again in tiles
)


@dataclass(frozen=True)
class Nearest:
    """The nearest of M rows to each of Q rows.

    Attributes:
        index: (Q,) int64, the lowest index among ties.
        first: (Q,) float64 distance to it, squared for L2.
        second: (Q,) float64 distance to the second nearest; infinite if there is none, or if it was not requested and
            is certainly larger than `first`.
    """

    index: np.ndarray
    first: np.ndarray
    second: np.ndarray

    @property
    def is_only(self) -> np.ndarray:
        """(Q,) whether the nearest is unique, up to a relative rounding error of 10^-12."""
        return np.asarray(self.second > self.first * (1 + 1e-12))


class Distances:
    """Distances between rows of a and rows of b: in tiles, with an error of at most `error`, and exactly, one by one.

    Args:
        a: (Q, D) finite numbers.
        b: (M, D) on the same device.
        distance: "l2" and "hamming" are squared L2 distances.
        dtype: of the tiles; those of L1 are always float64.
    """

    def __init__(self, a: Tensor, b: Tensor, distance: Distance = "l2", dtype: torch.dtype = torch.float64) -> None:
        self.a, self.b, self.distance = a, b, distance
        D = a.shape[1]
        if distance == "l1":
            self.error = 4 * (D + 4) * D * torch.finfo(torch.float64).eps * _largest(a, b)
            return
        a, b = a.to(dtype), b.to(dtype)
        squares_a, squares_b = (_squares(rows)[:, None] for rows in (a, b))
        # One product gives |a|^2 - 2 a.b + |b|^2.
        self._left = torch.cat([a, squares_a, torch.ones_like(squares_a)], 1)
        self._right = torch.cat([-2 * b, torch.ones_like(squares_b), squares_b], 1).T
        longest, unit = _largest(squares_a, squares_b), torch.finfo(dtype).eps
        # At most D + 4 roundings of each of the terms, and as many of the direct sum in float64.
        roundings = 3 * unit + 5 * torch.finfo(torch.float64).eps
        self.error = 0.0 if _are_exact(self.a, self.b, longest, unit) else (D + 4) * roundings * longest

    def tile(self, rows: slice | Tensor, columns: slice = slice(None), out: Tensor | None = None) -> Tensor:
        """(q, m) distances of a[rows] and b[columns].

        Args:
            rows: of a.
            columns: of b.
            out: flat buffer to compute in; allocating memory costs half as much as a product.
        """
        if self.distance == "l1":
            return torch.cdist(self.a[rows].double(), self.b[columns].double(), p=1)
        left, right = self._left[rows], self._right[:, columns]
        target = None if out is None else out[: len(left) * right.shape[1]].view(len(left), -1)
        return torch.mm(left, right, out=target)

    def exact(self, rows: Tensor, columns: Tensor) -> Tensor:
        """(m,) float64 distances of a[rows] and b[columns], each from its own differences."""
        return exact_distances(self.a, self.b, rows, columns, self.distance)


def exact_distances(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor, distance: Distance) -> Tensor:
    """(m,) float64 distances of a[rows] and b[columns], each from its own differences; squared for L2."""
    found = torch.empty(len(rows), dtype=torch.float64, device=a.device)
    for start in range(0, len(rows), PAIRS_AT_A_TIME):
        part = slice(start, start + PAIRS_AT_A_TIME)
        difference = _differences(a, b, rows[part], columns[part])
        found[part] = difference.abs().sum(1) if distance == "l1" else _squares(difference)
    return found


def find_nearest(
    a: np.ndarray,
    b: np.ndarray,
    distance: Distance = "l2",
    *,
    wants_second: bool = True,
    faiss: bool = False,
    device: str | torch.device = "cpu",
    tile: tuple[int, int] = (TILE, COLUMNS),
    room: Tensor | None = None,
) -> Nearest:
    """Find the nearest row of b to each row of a, and the distance to the second nearest.

    Memory: a few copies of the rows, a tile of 32 MiB and its mask. 100,000 x 100,000 rows of 128 float32 took 450 MB
    in addition to the 100 MB of input.

    Args:
        a: (Q, D) finite floats.
        b: (M, D) finite floats, M at least 1.
        distance: which.
        wants_second: if False, the second distance is computed only where it may be as small, which is faster.
        faiss: let FAISS propose neighbours (IndexFlatL2, float32); the answer is the same.
        device: where the tiles are computed.
        tile: number of distances per tile, and maximum number of its columns.
        room: (tile[0],) float32 buffer on the device, to be reused in many calls.
    """
    largest = max(float(max(rows.max(initial=0), -rows.min(initial=0))) for rows in (a, b))
    if 0 < largest < SMALL:
        scale = 2.0 ** -float(np.frexp(largest)[1])  # a power of two is exact
        a, b = a.astype(np.float64) * scale, b.astype(np.float64) * scale
        found = find_nearest(a, b, distance, wants_second=wants_second, faiss=faiss, device=device, tile=tile)
        power = 1 if distance == "l1" else 2
        return Nearest(found.index, found.first / scale**power, found.second / scale**power)
    starts, counts = _distinct(b)
    search = _Search(a, b if len(starts) == len(b) else b[starts], distance, wants_second, torch.device(device))
    with full_precision():
        rest = search.with_faiss() if faiss else np.arange(len(a))
        search.in_tiles(rest, tile, room)
    index, first, second = (values.cpu().numpy() for values in (search.index, search.first, search.second))
    return Nearest(starts[index], first, np.where(counts[index] > 1, first, second))


class _Search:
    """Running answers for all rows of a, improved by each `offer` of candidates."""

    def __init__(
        self, a: np.ndarray, b: np.ndarray, distance: Distance, wants_second: bool, device: torch.device
    ) -> None:
        # A copy if necessary: torch accepts neither read-only arrays nor negative strides.
        rows = [torch.from_numpy(np.require(rows, requirements=["C", "W"])).to(device) for rows in (a, b)]
        self.distances = Distances(rows[0], rows[1], distance, torch.float32)
        self.index = torch.zeros(len(a), dtype=torch.int64, device=device)
        self.first = torch.full((len(a),), torch.inf, dtype=torch.float64, device=device)
        self.second = self.first.clone()
        self.last = self.second if wants_second else self.first  # the largest distance that must be exact

    def in_tiles(self, rest: np.ndarray, size: tuple[int, int], room: Tensor | None) -> None:
        """Compare the rows of a with these indices to all rows of b."""
        width = min(size[1], len(self.distances.b))
        for part in torch.from_numpy(rest).to(self.index.device).split(max(1, size[0] // width)) if len(rest) else ():
            for start in range(0, len(self.distances.b), width):
                every = slice(None) if len(part) == len(self.index) else part
                tile = self.distances.tile(every, slice(start, start + width), room)
                if self.last is self.second:
                    self._offer_within(tile, _second_bound(tile), part, start)
                else:
                    self._offer_least(tile, part, start)

    def _offer_within(self, tile: Tensor, bound: Tensor, part: Tensor, start: int) -> None:
        """Offer the columns that may be as near as both the (q,) bound of this tile and the answers so far."""
        error = self.distances.error
        limit = torch.minimum(bound.double() + 2 * error, self.last[part] + error)
        # Rounded up to float32, so that nothing within the limit is lost.
        limit = torch.nextafter(limit.to(tile.dtype), torch.tensor(torch.inf, device=tile.device))
        rows, columns = _at_most(tile, limit)
        self.offer(part[rows], columns + start)

    def _offer_least(self, tile: Tensor, part: Tensor, start: int) -> None:
        """Offer the smallest of each row of the tile, and those that may be as near."""
        each, columns = torch.arange(len(tile), device=tile.device), _least(tile)
        least = tile[each, columns]
        tile[each, columns] = torch.inf
        self.offer(part, columns + start)
        unsure = (_minima(tile).double() <= least.double() + 2 * self.distances.error).nonzero()[:, 0]
        if len(unsure):
            self._offer_within(tile[unsure], least[unsure], part[unsure], start)

    def with_faiss(self) -> np.ndarray:
        """Let FAISS propose candidates; returns the rows whose candidates may not include the two nearest."""
        a, b = (rows.float().cpu().numpy() for rows in (self.distances.a, self.distances.b))
        index = need("faiss", "faiss", "this engine").IndexFlatL2(b.shape[1])
        index.add(b)
        count = min(FAISS_NEIGHBOURS, len(b))
        near, found = index.search(a, count)
        rows = torch.arange(len(a)).repeat_interleave(count).to(self.index.device)
        self.offer(rows, torch.from_numpy(np.sort(found, axis=1)).reshape(-1).to(self.index.device))
        if count == len(b):
            return np.arange(0)
        last = torch.from_numpy(near[:, -1]).double().to(self.index.device)
        rest = (last <= self.last + self.distances.error).nonzero()[:, 0]
        self.first[rest] = self.second[rest] = torch.inf
        return rest.cpu().numpy()

    def offer(self, rows: Tensor, columns: Tensor) -> None:
        """Merge candidates, ordered by row and column, into the running answers."""
        if not len(rows):
            return
        exact = self.distances.exact(rows, columns)
        starts = torch.ones(len(rows), dtype=torch.bool, device=rows.device)
        starts[1:] = rows[1:] != rows[:-1]
        at = starts.nonzero()[:, 0]
        if len(at) < len(rows):
            order = torch.argsort(exact, stable=True)
            order = order[torch.argsort(rows[order], stable=True)]  # by row, then distance, then column
            rows, columns, exact = rows[order], columns[order], exact[order]
        owner, best, nearest = rows[at], exact[at], columns[at]
        following = torch.clamp(at + 1, max=len(rows) - 1)
        has_second = (at + 1 < len(rows)) & (rows[following] == owner)
        runner_up = torch.where(has_second, exact[following], torch.inf)
        first, second = self.first[owner], self.second[owner]
        is_better = (best < first) | ((best == first) & (nearest < self.index[owner]))
        self.index[owner] = torch.where(is_better, nearest, self.index[owner])
        self.first[owner] = torch.where(is_better, best, first)
        self.second[owner] = torch.where(is_better, torch.minimum(first, runner_up), torch.minimum(second, best))


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


def _are_exact(a: Tensor, b: Tensor, longest: float, unit: float) -> bool:
    """Whether all products and sums of rows are exact: the values are small multiples of 1 or 1/256."""

    def are_whole(rows: Tensor) -> bool:
        return bool((rows == rows.round()).all())

    steps = [step for step in (1.0, 256.0) if 8 * step**2 * longest * unit < 1]
    likely = [step for step in steps if are_whole(a[:1] * step)]  # rarely true, and cheap to find out
    return any(are_whole(a * step) and are_whole(b * step) for step in likely)


def _largest(*values: Tensor) -> float:
    return max((float(part.abs().max()) if part.numel() else 0.0) for part in values)


def _second_bound(tile: Tensor) -> Tensor:
    """(q,) a bound that at least two values of a row do not exceed: the larger of the minima of its two halves."""
    half = tile.shape[1] // 2
    if not half:
        return torch.full((len(tile),), torch.inf, device=tile.device)
    return torch.maximum(_minima(tile[:, :half]), _minima(tile[:, half:]))


# On a CPU the following five functions take a fifth to a half of torch's time in NumPy.


def _differences(a: Tensor, b: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """(m, D) float64: a[rows] - b[columns]."""
    if a.device.type != "cpu":
        return a[rows].double() - b[columns].double()
    chosen = a.numpy()[rows.numpy()], b.numpy()[columns.numpy()]
    return torch.from_numpy(np.subtract(*chosen, dtype=np.float64))


def _squares(rows: Tensor) -> Tensor:
    """(m,) squared lengths of rows."""
    if rows.device.type != "cpu":
        return rows.square().sum(1)
    return torch.from_numpy(np.einsum("ij,ij->i", rows.numpy(), rows.numpy()))


def _minima(tile: Tensor) -> Tensor:
    """(q,) smallest value of each row."""
    return tile.amin(1) if tile.device.type != "cpu" else torch.from_numpy(tile.numpy().min(1))


def _least(tile: Tensor) -> Tensor:
    """(q,) column of the smallest value of each row."""
    return tile.argmin(1) if tile.device.type != "cpu" else torch.from_numpy(tile.numpy().argmin(1))


def _at_most(tile: Tensor, limit: Tensor) -> tuple[Tensor, Tensor]:
    """Rows and columns of (q, m) where it is at most the (q,) limit, in order."""
    if tile.device.type != "cpu":
        rows, columns = (tile <= limit[:, None]).nonzero(as_tuple=True)
        return rows, columns
    flat = torch.from_numpy(np.flatnonzero(tile.numpy() <= limit.numpy()[:, None]))
    return flat // tile.shape[1], flat % tile.shape[1]


def has_faiss() -> bool:
    """Whether FAISS can be used."""
    try:
        need("faiss", "faiss", "this engine")
    except MissingExtraError:
        return False
    return True
