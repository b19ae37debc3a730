"""Lists of pairs for a folder of photos or of features, as `matchkernel pairs` writes them."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from matchkernel.collection.choose_pairs import (
    PairChoice,
    covisible_pairs,
    top_pairs,
)
from matchkernel.collection.global_vectors import image_vectors, similarities, vocabulary_for
from matchkernel.colmap.model import read_reconstruction
from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.files import (
    SUFFIX,
    FeatureFiles,
    Pair,
    is_h5,
    open_features,
    read_global_descriptors,
    unique_pairs,
)
from matchkernel.storage.photo_folders import photos_in
from matchkernel.storage.progress import Progress, Say


@dataclass(frozen=True)
class Sources:
    """Where similar images are looked for besides our own vectors.

    Attributes:
        colmap: folder of a COLMAP model: images that share points.
        retrieval: hloc's file of global descriptors.
    """

    colmap: Path | None = None
    retrieval: Path | None = None


def has_features(place: Path) -> bool:
    """Whether a place holds features rather than photos."""
    return is_h5(place) or (place.is_dir() and any(place.rglob(f"*{SUFFIX}")))


def names_at(place: Path, say: Say = lambda line: None) -> list[str]:
    """Names of the images of a folder of photos, or of features; what else the folder holds is said."""
    if has_features(place):
        return open_features(place).names
    photos = photos_in(place)
    if not photos.paths:
        raise FileError(f"{place}: contains neither photos nor features")
    if photos.ignored:
        say(photos.what_was_ignored())
    return list(photos.paths)


def make_pairs(
    names: list[str],
    choice: PairChoice,
    features: FeatureFiles | None = None,
    sources: Sources | None = None,
    *,
    unusable: Collection[str] = (),
    say: Say = lambda line: None,
    progress: Progress | None = None,
) -> list[Pair]:
    """The union of all that was asked for.

    Args:
        names: of all images.
        choice: which pairs; its `top` is also the number of partners from the sources, which take the place of our
            vectors if there are any.
        features: of the images; only our vectors need them.
        sources: other places to look for similar images.
        unusable: further images, which files of pairs may name: their pairs are left out.
        say: called with a line about each source.
        progress: called with the number of images done and the total.
    """
    sources = sources or Sources()
    parts: list[Iterable[Pair]] = []
    if sources.retrieval is not None:
        parts.append(_from_retrieval(names, sources.retrieval, choice.top, progress))
    if sources.colmap is not None:
        parts.append(_from_colmap(names, sources.colmap, choice.top, say))
    if parts:
        choice = PairChoice(choice.exhaustive, 0, choice.sequential, choice.files)

    def most_similar(count: int) -> list[Pair]:
        if features is None:
            raise ArgumentError("the most similar images cannot be found without features")
        missing = set(names) - set(features.names)
        if missing:
            raise FileError(f"{features.place}: has no features of {min(missing)} ({len(missing)} images have none)")
        files = FeatureFiles(features.place, names)
        vocabulary = vocabulary_for(files)
        say(f"global vectors of {len(names)} images; vocabulary: {vocabulary.source}")
        vectors = image_vectors(files, vocabulary, progress)
        return top_pairs(names, vectors, count, similarities, progress=progress)

    return list(unique_pairs(*parts, choice.pairs(names, most_similar, unusable)))


def _from_retrieval(names: list[str], path: Path, count: int, progress: Progress | None) -> list[Pair]:
    listed, rows = read_global_descriptors(path)
    index = {name: number for number, name in enumerate(listed)}
    missing = [name for name in names if name not in index]
    if missing:
        raise FileError(f"{path}: contains no global descriptor of {missing[0]} ({len(missing)} images have none)")
    return top_pairs(names, rows[[index[name] for name in names]], count, progress=progress)


def _from_colmap(names: list[str], path: Path, count: int, say: Say) -> list[Pair]:
    known = set(names)
    pairs = covisible_pairs(read_reconstruction(path), count)
    kept = [pair for pair in pairs if known.issuperset(pair)]
    if not kept:
        raise FileError(f"{path}: no two of the {len(names)} images share a point there")
    if len(kept) < len(pairs):
        say(f"{path}: {len(pairs) - len(kept)} pairs of other images left out")
    return kept
