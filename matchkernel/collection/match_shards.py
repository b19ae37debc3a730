"""The work of a worker that matches pairs: a block of pairs in, one file of their matches out."""

import json
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from matchkernel.collection.extract_shards import LIBRARIES
from matchkernel.collection.shards import check_visible, key_of
from matchkernel.errors import ArgumentError, FileError, short_message
from matchkernel.photos.describers import open_place
from matchkernel.photos.features import Features
from matchkernel.photos.files import FeatureFiles
from matchkernel.photos.pipeline import MatchSettings, match_features
from matchkernel.storage.arrays import read_npz
from matchkernel.storage.files import replacing
from matchkernel.storage.pool import Run
from matchkernel.storage.threads import use_threads

CACHE = 200_000_000  # bytes of features that a worker keeps: those of a block with 4,000 keypoints per image
MATCHING = 300_000_000  # bytes: tiles of distances, a model that is fitted
ARRAYS = ("counts", "sizes", "indices", "scores", "facts")


class PairTask(NamedTuple):
    """Two images to match, and the key of the result."""

    a: str
    b: str
    key: str


class FoundPair(NamedTuple):
    """The matches of two images.

    Attributes:
        a, b: names of the images.
        indices: (M, 2) row in A and row in B.
        scores: (M,) from 0 to 1: (1 + the cosine of the descriptors) / 2.
        size: number of keypoints of A.
    """

    a: str
    b: str
    indices: np.ndarray
    scores: np.ndarray
    size: int


@dataclass(frozen=True)
class MatchedBlock:
    """A block that is done: its file, how many pairs and matches that holds, and the images that cannot be read."""

    file: str
    pairs: int
    matches: int
    is_new: bool
    bad: dict[str, str]


def recorded_match_settings(settings: MatchSettings) -> dict[str, Any]:
    """What determines the matches of given features, JSON values."""
    chosen = {name: value for name, value in asdict(settings).items() if name != "detector"}
    return {**chosen, "filter": str(settings.filter)}


@dataclass(frozen=True)
class MatchWork:
    """Match blocks of pairs, in as many processes as there are; see pool.Work.

    Attributes:
        place: the features, see feature_files.
        settings: how pairs are matched; its detector is not used.
        folder: where the files are written.
        device: where descriptors are compared.
        mark: file that a worker must see, see shards.visible_mark.
    """

    place: Path
    settings: MatchSettings
    folder: Path
    device: str = "cpu"
    mark: Path | None = None

    @property
    def memory(self) -> int:
        """Bytes that a worker takes at most, unless an image has far more than 100,000 keypoints."""
        return LIBRARIES + CACHE + MATCHING

    @property
    def uses_gpu(self) -> bool:
        """Whether descriptors may be compared on a GPU."""
        return self.device == "auto" or self.device.startswith("cuda")

    def sent(self, mark: Path) -> "MatchWork":
        """The same for workers that may be in another directory; all of them must see the mark."""
        return replace(self, place=self.place.absolute(), folder=self.folder.absolute(), mark=mark.absolute())

    def open(self, threads: int, gpu: bool) -> tuple[dict[str, Any], Run]:
        """Make ready in a worker."""
        if self.mark is not None:
            check_visible(self.mark)
        use_threads(threads)
        matcher = Matcher(self, open_place(("cuda" if gpu else "cpu") if self.device == "auto" else self.device))
        return {}, matcher.do

    def here(self) -> "Matcher":
        """Make ready in this process."""
        return Matcher(self, open_place(self.device))


class Matcher:
    """Matches pairs of images whose features are on disk."""

    def __init__(self, work: MatchWork, device: str) -> None:
        self.work, self.device = work, device
        self._files = FeatureFiles(work.place, [])
        self._cache: OrderedDict[str, Features] = OrderedDict()
        self._cached = 0  # bytes

    def do(self, task: Sequence[PairTask]) -> MatchedBlock:
        """Match the pairs of a block and write their matches, unless they are there."""
        key = key_of([pair.key for pair in task])
        target = self.work.folder / f"{key}.npz"
        try:
            return self._told(target, key, is_new=False)
        except FileError:
            pass  # not there, or damaged
        bad: dict[str, str] = {}
        found = [one for pair in task if (one := self._matched(pair, bad)) is not None]
        save_block(found, target, key, bad)
        return self._told(target, key, is_new=True)

    def _told(self, target: Path, key: str, *, is_new: bool) -> MatchedBlock:
        found, bad = load_block(target, key)
        return MatchedBlock(target.name, len(found), sum(len(one.indices) for one in found), is_new, bad)

    def _matched(self, pair: PairTask, bad: dict[str, str]) -> FoundPair | None:
        ends = [self._features(name, bad) for name in (pair.a, pair.b)]
        if ends[0] is None or ends[1] is None:
            return None
        try:
            found = match_features(ends[0], ends[1], self.work.settings, device=self.device)
        except ArgumentError as error:
            raise ArgumentError(f"{pair.a} and {pair.b}: {error}") from None
        matches = found.matches[found.inliers]
        return FoundPair(pair.a, pair.b, matches.indices, 1 - matches.distances**2 / 4, len(ends[0]))

    def _features(self, name: str, bad: dict[str, str]) -> Features | None:
        """Features of an image, kept for its other pairs; None, with a reason, if they cannot be read."""
        if name in bad:
            return None
        if name in self._cache:
            self._cache.move_to_end(name)
            return self._cache[name]
        try:
            self._cache[name] = features = self._files.load(name)
        except FileError as error:
            bad[name] = str(error)
            return None
        self._cached += _bytes_of(features)
        while self._cached > CACHE and len(self._cache) > 2:
            self._cached -= _bytes_of(self._cache.popitem(last=False)[1])
        return features


def _bytes_of(features: Features) -> int:
    arrays = (features.descriptors, features.scores, features.frames.centers, features.frames.shapes)
    return sum(array.nbytes for array in arrays)


def save_block(found: Sequence[FoundPair], path: Path, key: str, bad: dict[str, str]) -> None:
    """Write the matches of a block, atomically; the same matches give the same bytes."""
    facts = {"key": key, "pairs": [[one.a, one.b] for one in found], "bad": bad}
    with replacing(path) as part, part.open("wb") as file:
        np.savez(
            file,
            counts=np.array([len(one.indices) for one in found], np.int64),
            sizes=np.array([one.size for one in found], np.int64),
            indices=np.concatenate([np.empty((0, 2), np.int32), *(one.indices.astype(np.int32) for one in found)]),
            scores=np.concatenate([np.empty(0, np.float32), *(one.scores.astype(np.float32) for one in found)]),
            facts=np.array(json.dumps(facts, sort_keys=True)),
        )


def load_block(path: Path, key: str) -> tuple[list[FoundPair], dict[str, str]]:
    """The matches of a block, and images that cannot be read; a file that is damaged or of another key is refused."""
    arrays = read_npz(path, ARRAYS, "a file of matches")
    counts, sizes, indices, scores = (arrays[name] for name in ARRAYS[:4])
    try:
        facts = json.loads(str(arrays["facts"]))
        names = [(str(a), str(b)) for a, b in facts["pairs"]]
        bad = {str(name): str(reason) for name, reason in facts["bad"].items()}
        whole = (
            facts["key"] == key
            and all(array.dtype.kind in "iu" for array in (counts, sizes, indices))
            and counts.shape == sizes.shape == (len(names),)
            and (counts >= 0).all()
            and indices.shape == (counts.sum(), 2)
            and scores.shape == (counts.sum(),)
            and scores.dtype.kind == "f"
        )
    except (LookupError, ValueError, TypeError, AttributeError, RecursionError) as error:
        raise FileError(f"{path}: not a file of matches ({short_message(error)})") from None
    if not whole:
        raise FileError(f"{path}: not the file of matches that its name says")
    starts = [0, *np.cumsum(counts).tolist()]
    parts = zip(names, starts, starts[1:], sizes.tolist(), strict=False)
    found = [FoundPair(a, b, indices[start:end], scores[start:end], size) for (a, b), start, end, size in parts]
    return found, bad


def matched_pairs(folder: Path, blocks: Sequence[MatchedBlock]) -> Iterator[FoundPair]:
    """The matches of blocks, in their order; one block at a time is in memory."""
    for block in blocks:
        yield from load_block(folder / block.file, Path(block.file).stem)[0]
