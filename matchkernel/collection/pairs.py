"""Choose which images of a collection to match: all pairs, neighbours in name order, or each with the most similar."""

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.collection.candidates import Candidates, has_faiss, need_faiss
from matchkernel.collection.choice import PairChoice
from matchkernel.collection.vectors import image_vectors, image_vectors_on_disk, similarities, vocabulary_for
from matchkernel.colmap.model import Reconstruction, covisible_images, read_reconstruction
from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.feature_files import NPZ_SUFFIX, FeatureFiles, npz_names, open_features, read_global_descriptors
from matchkernel.photos.features import read_facts
from matchkernel.photos.hdf5 import is_h5
from matchkernel.photos.pair_lists import Pair, read_pairs, unique_pairs
from matchkernel.storage.photo_folders import photos_in
from matchkernel.storage.work import Progress, Say

ROWS_AT_A_TIME, COLUMNS_AT_A_TIME = 1024, 8192  # similarities computed at once: 32 MiB
EXACT_UP_TO = 20_000  # images; in more, "auto" looks for candidates if FAISS is installed
SEARCHES = ("auto", "exact", "faiss")

Similar = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Sources:
    """Where similar images are looked for besides our own vectors."""

    colmap: Path | None = None  # folder of a COLMAP model: images that share points
    retrieval: Path | None = None  # hloc's file of global descriptors


def all_pairs(names: Sequence[str]) -> Iterable[Pair]:
    """Every pair once, in name order.

    Example:
        >>> list(all_pairs(["b", "a", "c"]))
        [('a', 'b'), ('a', 'c'), ('b', 'c')]
    """
    ordered = sorted(names)
    return ((first, second) for i, first in enumerate(ordered) for second in ordered[i + 1 :])


def sequential_pairs(names: Sequence[str], count: int) -> Iterable[Pair]:
    """Each image with the `count` that follow it in name order, in which 9.jpg comes before 10.jpg.

    Example:
        >>> list(sequential_pairs(["10.jpg", "8.jpg", "9.jpg"], 1))
        [('8.jpg', '9.jpg'), ('9.jpg', '10.jpg')]
    """
    ordered = sorted(names, key=_natural)
    return ((first, second) for i, first in enumerate(ordered) for second in ordered[i + 1 : i + 1 + count])


def dot_products(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """(n, m) of (n, V) and (m, V)."""
    return np.asarray(a, np.float32) @ np.asarray(b, np.float32).T


def top_pairs(
    names: Sequence[str],
    vectors: np.ndarray,
    count: int,
    similar: Similar = dot_products,
    *,
    search: str = "exact",
    progress: Progress | None = None,
) -> list[Pair]:
    """Each image with the `count` most similar ones, the most similar first.

    The search is exact, in blocks, or among candidates that FAISS finds; of equally similar images the one that comes
    first in `names` is taken. An image with a vector of zeros, in which nothing was found, gets no partners of its own.

    Args:
        names: names of the images.
        vectors: one row per image, of any shape.
        count: number of partners per image.
        similar: gives (n, m) similarities of n and m rows.
        search: exact, faiss, or auto: exact up to EXACT_UP_TO images or without FAISS.
    """
    rows = np.asarray(vectors)
    if rows.ndim < 2 or len(rows) != len(names):
        raise ArgumentError(f"{len(names)} images need as many vectors, got shape {tuple(rows.shape)}")
    for name, row in zip(names, rows, strict=True):
        if not np.isfinite(row).all():
            raise ArgumentError(f"the global vector of {name} contains values that are not finite")
    chosen: list[Pair] = []
    count = min(count, len(rows) - 1)
    uses_faiss = count > 0 and chosen_search(search, len(rows)) == "faiss"
    candidates = Candidates(rows, count) if uses_faiss else None
    for start in range(0, len(rows) if count > 0 else 0, ROWS_AT_A_TIME):
        block = rows[start : start + ROWS_AT_A_TIME]
        if candidates is None:
            nearest = _most_similar(block, rows, start, count, similar).tolist()
        else:
            nearest = candidates.most_similar(start, start + len(block), count, similar)
        for i, others in enumerate(nearest, start):
            if bool(rows[i].any()):
                chosen += [(names[i], names[j]) for j in others]
        if progress is not None:
            progress(min(start + ROWS_AT_A_TIME, len(rows)), len(rows))
    return list(unique_pairs(chosen))


def chosen_search(search: str, images: int) -> str:
    """Which of exact and faiss a search is; refuses faiss where it is not installed."""
    if search not in SEARCHES:
        raise ArgumentError(f"search must be one of {', '.join(SEARCHES)}, got {search!r}")
    if search == "auto":
        return "faiss" if images > EXACT_UP_TO and has_faiss() else "exact"
    if search == "faiss":
        need_faiss()
    return search


def _most_similar(block: np.ndarray, rows: np.ndarray, start: int, count: int, measure: Similar) -> np.ndarray:
    """(b, count) indices of the rows most similar to each row of a block that begins at `start`, itself left out."""
    best = np.full((len(block), count), -np.inf, np.float32)
    index = np.full((len(block), count), -1)
    for first in range(0, len(rows), COLUMNS_AT_A_TIME):
        some = rows[first : first + COLUMNS_AT_A_TIME]
        similar = measure(block, some)
        own = np.arange(start, start + len(block)) - first
        inside = np.flatnonzero((own >= 0) & (own < len(some)))
        similar[inside, own[inside]] = -np.inf
        last = len(some) - min(count, len(some))
        least = np.partition(similar, last, axis=1)[:, last]
        # Among equals the first must win, which a partition does not promise: take all that reach its last.
        at, column = np.nonzero(similar >= np.maximum(least, best[:, -1])[:, None])
        values = np.concatenate([best.reshape(-1), similar[at, column]])
        owner = np.concatenate([np.repeat(np.arange(len(block)), count), at])
        where = np.concatenate([index.reshape(-1), column + first])
        order = np.lexsort((where, -values, owner))
        place = np.searchsorted(owner[order], np.arange(len(block)))[:, None] + np.arange(count)
        best, index = values[order][place], where[order][place]
    return index


def covisible_pairs(model: Reconstruction, count: int) -> list[Pair]:
    """Each image of a COLMAP model with the `count` it shares the most points with, most first; of equals by name."""
    ranked = ((name, other) for name, others in covisible_images(model) for other, _ in others[:count])
    return list(unique_pairs(ranked))


def _natural(name: str) -> list[tuple[int, int | str]]:
    """Sort key in which runs of digits count as numbers."""
    parts = [(0, int(part)) if part.isdecimal() else (1, part) for part in re.split(r"(\d+)", name) if part]
    return [*parts, (2, name)]


def has_features(path: Path) -> bool:
    """True if the path holds features rather than photos: other .npz files, such as calibrations, are none.

    If it has a folder of features among its photos, the photos are meant.
    """
    if is_h5(path) or not path.is_dir():
        return is_h5(path)
    names = sorted(npz_names(path), key=lambda name: "/" in name)
    found = next((name for name in names if _is_of_features(path / f"{name}{NPZ_SUFFIX}")), None)
    if found is None or "/" not in found:
        return found is not None
    photos = photos_in(path).paths
    return not photos or any(name in photos and _is_of_features(path / f"{name}{NPZ_SUFFIX}") for name in names)


def _is_of_features(path: Path) -> bool:
    try:
        read_facts(path)
    except FileError:
        return False
    return True


def names_at(path: Path, say: Say = lambda line: None) -> list[str]:
    """Names of the images, at least two, of a folder of photos, or of features; `say` gets a line about other files."""
    if has_features(path):
        names = open_features(path).names
    else:
        photos = photos_in(path)
        if not photos.paths:
            raise FileError(f"{path}: contains neither photos nor features")
        if photos.ignored:
            say(photos.what_was_ignored())
        names = list(photos.paths)
    if len(names) < 2:
        raise FileError(f"{path}: a pair needs two images, this has only {names[0]}")
    return names


def make_pairs(
    names: Sequence[str],
    choice: PairChoice,
    features: FeatureFiles | None = None,
    sources: Sources | None = None,
    *,
    unusable: Collection[str] = (),
    search: str = "auto",
    say: Say = lambda line: None,
    progress: Progress | None = None,
) -> list[Pair]:
    """The pairs of images to match, each once.

    Args:
        names: names of all images.
        choice: which pairs; its `top` is also the number of partners from the sources, which take the place of our
            vectors if there are any.
        features: features of the images; only our vectors need them.
        sources: other places to look for similar images.
        unusable: further images, which files of pairs may name: their pairs are left out.
        search: how similar images are found, see top_pairs.
        say: called with a line about each source.
        progress: called with the number of images done and the total.

    Example:
        >>> from matchkernel.collection.choice import PairChoice
        >>> from matchkernel.collection.pairs import make_pairs
        >>> make_pairs(["1.jpg", "2.jpg", "10.jpg"], PairChoice(sequential=1))
        [('1.jpg', '2.jpg'), ('2.jpg', '10.jpg')]
    """
    sources, left_out = sources or Sources(), set(unusable)
    parts: list[Iterable[Pair]] = []
    if sources.retrieval is not None:
        parts.append(_from_retrieval(names, sources.retrieval, choice.top, search, progress))
    if sources.colmap is not None:
        parts.append(_from_colmap(names, sources.colmap, choice.top, say))
    needs_vectors = choice.top and not choice.exhaustive and not parts
    for path in choice.files:
        parts.append(pair for pair in read_pairs(path, [*names, *unusable]) if left_out.isdisjoint(pair))
    if choice.exhaustive:
        parts.append(all_pairs(names))
    if choice.sequential:
        parts.append(sequential_pairs(names, choice.sequential))
    if needs_vectors:
        parts.append(_from_features(names, features, choice.top, search, say, progress))
    return list(unique_pairs(*parts))


def _from_features(
    names: Sequence[str], features: FeatureFiles | None, count: int, search: str, say: Say, progress: Progress | None
) -> list[Pair]:
    if features is None:
        raise ArgumentError("the most similar images cannot be found without features")
    missing = set(names) - set(features.names)
    if missing:
        raise FileError(f"{features.path}: has no features of {min(missing)} ({len(missing)} images have none)")
    files, search = FeatureFiles(features.path, list(names)), chosen_search(search, len(names))
    vocabulary = vocabulary_for(files)
    say(f"global vectors of {len(names)} images; vocabulary: {vocabulary.source}; search: {search}")
    if search == "exact":
        return top_pairs(names, image_vectors(files, vocabulary, progress), count, similarities, progress=progress)
    with image_vectors_on_disk(files, vocabulary, progress) as vectors:
        return top_pairs(names, vectors, count, similarities, search=search, progress=progress)


def _from_retrieval(names: Sequence[str], path: Path, count: int, search: str, progress: Progress | None) -> list[Pair]:
    listed, rows = read_global_descriptors(path)
    index = {name: number for number, name in enumerate(listed)}
    missing = [name for name in names if name not in index]
    if missing:
        raise FileError(f"{path}: contains no global descriptor of {missing[0]} ({len(missing)} images have none)")
    vectors = rows[[index[name] for name in names]]
    return top_pairs(names, vectors, count, search=search, progress=progress)


def _from_colmap(names: Sequence[str], path: Path, count: int, say: Say) -> list[Pair]:
    known = set(names)
    pairs = covisible_pairs(read_reconstruction(path), count)
    kept = [pair for pair in pairs if known.issuperset(pair)]
    if not kept:
        raise FileError(f"{path}: no two of the {len(names)} images share a point there")
    if len(kept) < len(pairs):
        say(f"{path}: {len(pairs) - len(kept)} pairs of other images left out")
    return kept
