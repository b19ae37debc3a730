"""One vector per image from its local descriptors, so that images of the same place are similar.

An aggregated selective match kernel (Tolias, Avrithis and Jégou, ICCV 2013): every descriptor is assigned to the
nearest of K centres; the differences from a centre are summed, and each sum, a cell, is scaled to length 1. Two images
are as similar as the cells they share: the cosines of their cells, negative ones dropped, squared, and summed. It was
chosen among several such vectors (experiments/reports/2026-11-16-collections.md).
"""

import json
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.photos.extract import SIFTS
from matchkernel.photos.feature_files import FeatureFiles
from matchkernel.photos.features import Features
from matchkernel.storage.arrays import digest, read_header, read_tensors, unit_rows
from matchkernel.storage.work import Progress

CENTRES = 256
SHIPPED = Path(__file__).with_name("vocabularies.safetensors")
WEIGHTS = "weights"  # metadata: the digest of the weights of each model
ROUNDS, SEED = 20, 0  # of k-means
LEARN_FROM = 50_000  # descriptors, of as many images as possible
LEAST_PER_CENTRE = 30  # descriptors; with fewer, a centre would be one of them
ROWS_AT_A_TIME = 2**14


@dataclass(frozen=True)
class Vocabulary:
    """Centres that descriptors are assigned to."""

    centres: np.ndarray  # (K, D) float32
    source: str  # where they come from, for messages


def vocabulary_for(files: FeatureFiles) -> Vocabulary:
    """The vocabulary of the package for the model of these features; for any other model one learned from them."""
    first = files.load(files.names[0])
    shipped = shipped_vocabulary(first.model, first.settings)
    if shipped is not None:
        return shipped
    share = max(1, LEARN_FROM // len(files.names))
    step = max(1, len(files.names) * CENTRES // LEARN_FROM)  # at least as many rows per image as there are centres
    rows = []
    for name in files.names[::step]:
        features = files.load(name)
        _check_same_kind(files, first, name, features, first.descriptors.shape[1])
        own = _with_content(features.descriptors)
        rows.append(own[np.linspace(0, len(own) - 1, min(share, len(own))).astype(int)])  # evenly spaced
    learned = np.concatenate(rows)
    if not len(learned):
        raise ArgumentError(f"{files.path}: no image has a descriptor, so no two can be compared")
    count = max(1, min(CENTRES, len(learned) // LEAST_PER_CENTRE))
    return Vocabulary(learn_centres(learned, count), f"learned from {len(learned):,} descriptors of these images")


def shipped_vocabulary(model: str, settings: Mapping[str, Any]) -> Vocabulary | None:
    """The vocabulary of the package for a model, if it was learned with the same weights."""
    centres, weights = _shipped()
    if model not in centres or (model not in SIFTS and weights.get(model) != settings.get(WEIGHTS)):
        return None
    return Vocabulary(centres[model], f"shipped for {model}")


def image_vectors(files: FeatureFiles, vocabulary: Vocabulary, progress: Progress | None = None) -> np.ndarray:
    """(n, K, D) float16 cells of images in the order of files.names; zeros for an image without descriptors.

    Features of several models are refused. Memory: 2 K D bytes per image, 64 kB for 256 centres of 128 dimensions, and
    the features of two images.
    """
    vectors = np.zeros((len(files.names), *vocabulary.centres.shape), np.float16)
    for number, vector in enumerate(_each_vector(files, vocabulary, progress)):
        vectors[number] = vector
    return vectors


@contextmanager
def image_vectors_on_disk(
    files: FeatureFiles, vocabulary: Vocabulary, progress: Progress | None = None
) -> Iterator[np.ndarray]:
    """As image_vectors, in a temporary file (TMPDIR says where) that is gone with the block or the process."""
    with tempfile.TemporaryFile() as file:
        for vector in _each_vector(files, vocabulary, progress):
            file.write(vector.astype(np.float16).tobytes())
        file.flush()
        yield np.memmap(file, np.float16, "r", shape=(len(files.names), *vocabulary.centres.shape))


def _each_vector(files: FeatureFiles, vocabulary: Vocabulary, progress: Progress | None) -> Iterator[np.ndarray]:
    first: Features | None = None
    for number, name in enumerate(files.names, 1):
        features = files.load(name)
        first = features if first is None else first
        _check_same_kind(files, first, name, features, vocabulary.centres.shape[1])
        yield global_vector(features.descriptors, vocabulary.centres)
        if progress is not None:
            progress(number, len(files.names))


def global_vector(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(K, D) float32 cells of (M, D) descriptors; zeros without any. Rows of zeros, without content, are left out.

    The cells of an image have one length, such that the image's similarity with itself is 1.
    """
    rows = _with_content(rows)
    nearest = assign(rows, centres)
    sums = sum_by_centre(rows - centres[nearest], nearest, len(centres))
    cells = unit_rows(sums)
    return np.asarray(cells * max(1, cells.any(1).sum()) ** -0.25, np.float32)


def similarities(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, m) similarities, from 0 to 1, of (n, K, D) and (m, K, D) cells."""
    total = np.zeros((len(a), len(b)), np.float32)
    for cell in range(a.shape[1]):
        cosines = a[:, cell].astype(np.float32) @ b[:, cell].astype(np.float32).T
        total += np.square(np.maximum(cosines, 0, out=cosines), out=cosines)
    return total


def assign(rows: np.ndarray, centres: np.ndarray) -> np.ndarray:
    """(M,) index of the centre nearest to each row."""
    right = np.ascontiguousarray(centres, np.float32)
    offset = np.square(right).sum(1)
    found = np.empty(len(rows), np.int64)
    for start in range(0, len(rows), ROWS_AT_A_TIME):
        part = slice(start, start + ROWS_AT_A_TIME)
        found[part] = (offset - 2 * (np.asarray(rows[part], np.float32) @ right.T)).argmin(1)
    return found


def sum_by_centre(rows: np.ndarray, nearest: np.ndarray, count: int) -> np.ndarray:
    """(K, D) float64 sums of the rows of each centre."""
    order = np.argsort(nearest, kind="stable")
    used, starts = np.unique(nearest[order], return_index=True)
    sums = np.zeros((count, rows.shape[1]))
    if len(used):
        sums[used] = np.add.reduceat(rows[order], starts, axis=0, dtype=np.float64)
    return sums


def learn_centres(rows: np.ndarray, count: int = CENTRES) -> np.ndarray:
    """(K, D) centres of descriptors by k-means, the same every time; fewer than `count` if there are fewer rows."""
    random = np.random.default_rng(SEED)
    rows = np.ascontiguousarray(rows, np.float32)
    centres = rows[np.sort(random.choice(len(rows), min(count, len(rows)), replace=False))]
    for _ in range(ROUNDS):
        nearest = assign(rows, centres)
        counts = np.bincount(nearest, minlength=len(centres))
        sums = sum_by_centre(rows, nearest, len(centres))
        centres = (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)
        empty = np.flatnonzero(counts == 0)
        centres[empty] = rows[random.choice(len(rows), len(empty))]
    return centres


def read_vocabularies(path: str | Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """(K, D) float32 centres by model, and the digests of the weights they belong to; none for SIFT."""
    path = Path(path)
    (metadata, _), tensors = read_header(path), read_tensors(path)
    if metadata.get("sha256") != digest(metadata, tensors):
        raise WeightsError(f"{path}: damaged; its contents do not have the digest recorded in it")
    return {name: tensor.array().astype(np.float32) for name, tensor in tensors.items()}, json.loads(metadata[WEIGHTS])


@cache
def _shipped() -> tuple[dict[str, np.ndarray], dict[str, str]]:
    return read_vocabularies(SHIPPED)


def _with_content(rows: np.ndarray) -> np.ndarray:
    return rows[rows.any(1)]


def _check_same_kind(files: FeatureFiles, first: Features, name: str, features: Features, width: int) -> None:
    """Refuse features that cannot be compared with those of the first image: of another model, or of another width."""
    kinds = [(one.model, one.settings.get(WEIGHTS)) for one in (first, features)]
    if kinds[0] != kinds[1]:
        raise ArgumentError(
            f"{files.path}: features of {files.names[0]} are from {first.model!r}, those of {name} from "
            f"{features.model!r} (or from other weights): extract all photos with one model"
        )
    if features.descriptors.shape[1] != width:
        raise ArgumentError(
            f"{files.path}: features of {name} have {features.descriptors.shape[1]} dimensions, others {width}"
        )
