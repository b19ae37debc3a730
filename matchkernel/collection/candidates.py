"""Partners in a large collection: candidates by short codes in a FAISS index, rescored by the exact measure.

Codes are the vectors in a few principal directions, learned from a sample. The index is an inverted file whose centres
are a sample of the codes themselves, found through a graph (HNSW); its lists have the same length in every collection.
So each image costs as much in a large collection as in a small one, but for a logarithm.
"""

from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.extras import need
from matchkernel.storage.work import in_threads, spare_threads

DIMENSIONS, LEARN_FROM = 256, 1024  # of a code; vectors that its directions are learned from
PER_LIST, PROBES = 32, 128  # images to a centre; lists that are looked through for an image
CANDIDATES, PER_PARTNER = 200, 20  # rescored, at least; for each partner wanted
NEIGHBOURS, LOOKED_AT = 32, (32, 256)  # of the graph; when an image is added, when it asks
ROWS_AT_A_TIME, SEED = 1024, 0

Similar = Callable[[np.ndarray, np.ndarray], np.ndarray]


def need_faiss() -> Any:
    """The module faiss."""
    return need("faiss", "faiss", "finding candidates in a large collection")


def has_faiss() -> bool:
    """True if it is installed."""
    return find_spec("faiss") is not None


class Candidates:
    """The images of a collection that may be most similar to one of them.

    There is one vector per image, of any shape, perhaps in a file; `count` partners will be asked for.
    """

    def __init__(self, vectors: np.ndarray, count: int) -> None:
        self.vectors, self.wanted = vectors, min(len(vectors), max(CANDIDATES, PER_PARTNER * count) + 1)
        self.codes = short_codes(vectors)
        self.index = build_index(self.codes)

    def most_similar(self, start: int, stop: int, count: int, similar: Similar) -> list[list[int]]:
        """The most similar of the candidates of each of these images, best first, of equals the first of the names."""
        _, found = self.index.search(self.codes[start:stop].astype(np.float32), self.wanted)

        def rescore(image: int) -> list[int]:
            row = found[image - start]
            others = np.sort(row[(row >= 0) & (row != image)])  # in the order of a file
            scores = similar(self.vectors[image : image + 1], self.vectors[others])[0]
            return others[np.argsort(-scores, kind="stable")[:count]].tolist()

        # numpy computes, and waits for the disk, without Python's lock
        return list(in_threads(rescore, range(start, stop), spare_threads()))


def short_codes(vectors: np.ndarray) -> np.ndarray:
    """(n, DIMENSIONS) float16 codes of length 1; zeros for a vector of zeros."""
    sample = np.random.default_rng(SEED).permutation(len(vectors))[:LEARN_FROM]
    known = _flat(vectors, np.sort(sample))
    values, directions = np.linalg.eigh(known @ known.T)
    used = np.flatnonzero(values >= 1e-6 * values[-1])[-DIMENSIONS:]
    basis = known.T @ (directions[:, used] / np.sqrt(np.maximum(values[used], 1e-12)))
    codes = np.zeros((len(vectors), len(used)), np.float16)
    for first in range(0, len(vectors), ROWS_AT_A_TIME):
        rows = np.arange(first, min(first + ROWS_AT_A_TIME, len(vectors)))
        codes[rows] = unit_rows(_flat(vectors, rows) @ basis)
    return codes


def build_index(codes: np.ndarray) -> Any:
    """A FAISS index of inner products."""
    faiss = need_faiss()
    count, width = codes.shape
    centres = np.random.default_rng(SEED).permutation(count)[: max(1, count // PER_LIST)]
    graph = faiss.IndexHNSWFlat(width, NEIGHBOURS, faiss.METRIC_INNER_PRODUCT)
    graph.hnsw.efSearch = LOOKED_AT[0]
    graph.add(codes[np.sort(centres)].astype(np.float32))
    index = faiss.IndexIVFScalarQuantizer(
        graph, width, len(centres), faiss.ScalarQuantizer.QT_8bit, faiss.METRIC_INNER_PRODUCT
    )
    index.train(codes[: max(LEARN_FROM, 1)].astype(np.float32))  # the bytes; the centres are given
    for first in range(0, count, ROWS_AT_A_TIME):
        index.add(codes[first : first + ROWS_AT_A_TIME].astype(np.float32))
    graph.hnsw.efSearch, index.nprobe = LOOKED_AT[1], PROBES
    return index


def _flat(vectors: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Rows as one float32 vector each, of length 1."""
    return unit_rows(np.asarray(vectors[rows], np.float32).reshape(len(rows), -1))
