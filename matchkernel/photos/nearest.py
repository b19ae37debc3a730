"""The two nearest rows of each row: exact, in tiles, in bounded memory.

A float32 matrix product gives all distances of a tile with a known error. Only what is within that error of the second
nearest is computed again, in float64 from differences, and decides. So the answer is that of brute force in float64:
the nearest, the one with the lowest index among equals, whatever the tiles.

Memory: beside a few copies of the rows a tile of 1024 x 8192 float32 and its mask, and at most 2^22 numbers of float64
rows at a time. 100,000 x 100,000 rows of 128 float32 took 450 MB beyond the 100 MB given.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import MissingExtraError
from matchkernel.model.precision import full_precision
from matchkernel.storage.extras import need

ROWS, COLUMNS = 1024, 8192  # of a tile
NUMBERS_AT_A_TIME = 2**22  # float64, of pairs that are computed again
FAISS_NEIGHBOURS = 8  # asked of FAISS; where its 8th could still be the second, the row is done again in tiles
UNIT = 2.0**-24  # rounding of float32


@dataclass(frozen=True)
class Nearest:
    """For each of Q rows: the index of its nearest, (Q,) int64, and squared distances to it and to the next."""

    index: np.ndarray
    first: np.ndarray  # (Q,) float64
    second: np.ndarray  # (Q,) float64, infinite where there is no other


def two_nearest(
    a: np.ndarray,
    b: np.ndarray,
    *,
    faiss: bool = False,
    device: str | torch.device = "cpu",
    tile: tuple[int, int] = (ROWS, COLUMNS),
) -> Nearest:
    """Find the two rows of b nearest to each row of a.

    Args:
        a: (Q, D) finite floats.
        b: (M, D) finite floats, M at least 1.
        faiss: let FAISS propose (IndexFlatL2, float32); the answer is the same.
        device: where the tiles are computed.
        tile: rows of a and of b at a time.
    """
    # Equal rows of b are all within the error of each other: many of them would be compared one by one.
    _, starts, counts = np.unique(b, axis=0, return_index=True, return_counts=True)
    order = np.argsort(starts)
    starts, counts = starts[order], counts[order]
    search = _Search(a, np.ascontiguousarray(b[starts]), torch.device(device), tile)
    with full_precision():
        rest = search.with_faiss() if faiss else np.arange(len(a))
        search.in_tiles(rest)
    index, first, second = (found.cpu().numpy() for found in (search.index, search.first, search.second))
    second = np.where(counts[index] > 1, first, second)
    return Nearest(starts[index], first, second)


class _Search:
    """Running answers for all rows of a; `offer` betters them by candidates."""

    def __init__(self, a: np.ndarray, b: np.ndarray, device: torch.device, tile: tuple[int, int]) -> None:
        self.a, self.b = (torch.from_numpy(np.array(rows, order="C")).to(device) for rows in (a, b))
        self.tile = tile
        self.device = device
        Q = len(a)
        self.index = torch.zeros(Q, dtype=torch.int64, device=device)
        self.first = torch.full((Q,), torch.inf, dtype=torch.float64, device=device)
        self.second = self.first.clone()
        self.squares_a, self.squares_b = (rows.double().square().sum(1) for rows in (self.a, self.b))

    def error(self, rows: Tensor) -> Tensor:
        """(q,) bound on |approximate - exact| squared distance: D roundings of products, a few of sums and casts."""
        D = self.a.shape[1]
        longest = self.squares_b.max().sqrt()
        lengths = self.squares_a[rows].sqrt()
        products = 2 * 1.01 * D * UNIT * lengths * longest
        sums = 8 * UNIT * (lengths + longest).square()
        return products + sums + D * 4e-38  # the last: products below float32's normal numbers

    def in_tiles(self, rest: np.ndarray) -> None:
        """Compare the rows of a with these indices to all rows of b."""
        if not len(rest):
            return
        b = self.b.float()
        offsets = self.squares_b.float()
        height, width = self.tile
        for part in torch.from_numpy(rest).to(self.device).split(height):
            a, error = self.a[part].float(), self.error(part)
            for start in range(0, len(b), width):
                columns = slice(start, start + width)
                tile = torch.addmm(offsets[None, columns], a, b[columns].T, alpha=-2)
                tile += self.squares_a[part].float()[:, None]
                limit = torch.minimum(_second_bound(tile).double() + 2 * error, self.second[part] + error)
                # Rounded up to float32, so that nothing within the limit is lost.
                limit = torch.nextafter(limit.float(), torch.tensor(torch.inf, device=self.device))
                rows, found = (tile <= limit[:, None]).nonzero(as_tuple=True)
                self.offer(part[rows], found + start)

    def with_faiss(self) -> np.ndarray:
        """Let FAISS propose candidates; returns the rows for which they may not hold the two nearest."""
        index = need("faiss", "faiss", "this engine").IndexFlatL2(self.b.shape[1])
        index.add(self.b.float().cpu().numpy())
        count = min(FAISS_NEIGHBOURS, len(self.b))
        near, found = index.search(self.a.float().cpu().numpy(), count)
        rows = torch.arange(len(self.a)).repeat_interleave(count).to(self.device)
        self.offer(rows, torch.from_numpy(found).reshape(-1).to(self.device))
        if count == len(self.b):
            return np.arange(0)
        last = torch.from_numpy(near[:, -1]).double().to(self.device)
        unsure = last <= self.second + self.error(torch.arange(len(self.a), device=self.device))
        rest = unsure.nonzero()[:, 0]
        self.first[rest] = self.second[rest] = torch.inf
        return rest.cpu().numpy()

    def offer(self, rows: Tensor, columns: Tensor) -> None:
        """Take candidates, ordered by row, into the running answers."""
        if not len(rows):
            return
        exact = self._distances(rows, columns)
        order = torch.argsort(columns, stable=True)
        order = order[torch.argsort(exact[order], stable=True)]
        order = order[torch.argsort(rows[order], stable=True)]  # by row, then distance, then index
        rows, columns, exact = rows[order], columns[order], exact[order]
        starts = torch.ones(len(rows), dtype=torch.bool, device=self.device)
        starts[1:] = rows[1:] != rows[:-1]
        at = starts.nonzero()[:, 0]
        owner, best, nearest = rows[at], exact[at], columns[at]
        following = torch.clamp(at + 1, max=len(rows) - 1)
        has_second = (at + 1 < len(rows)) & (rows[following] == owner)
        runner_up = torch.where(has_second, exact[following], torch.inf)
        first, second = self.first[owner], self.second[owner]
        better = best < first  # an equal one of an earlier tile has the lower index
        self.index[owner] = torch.where(better, nearest, self.index[owner])
        self.first[owner] = torch.where(better, best, first)
        self.second[owner] = torch.where(better, torch.minimum(first, runner_up), torch.minimum(second, best))

    def _distances(self, rows: Tensor, columns: Tensor) -> Tensor:
        found = torch.empty(len(rows), dtype=torch.float64, device=self.device)
        step = max(1, NUMBERS_AT_A_TIME // max(1, self.a.shape[1]))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            found[part] = (self.a[rows[part]].double() - self.b[columns[part]].double()).square().sum(1)
        return found


def _second_bound(tile: Tensor) -> Tensor:
    """(q,) a value that at least two of a row reach: the larger of the minima of its two halves."""
    half = tile.shape[1] // 2
    if not half:
        return torch.full((len(tile),), torch.inf, device=tile.device)
    return torch.maximum(tile[:, :half].amin(1), tile[:, half:].amin(1))


def has_faiss() -> bool:
    """Whether FAISS can be used."""
    try:
        need("faiss", "faiss", "this engine")
    except MissingExtraError:
        return False
    return True
