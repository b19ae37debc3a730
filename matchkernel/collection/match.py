"""Match pairs of images whose features are on disk, into a matches.h5 of hloc or a match list of COLMAP; resumable.

Pairs are matched in blocks that share images. The matches of a block are written as one shard, named by its key, in
`<out>.parts`, until all blocks are done.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import islice, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from matchkernel import __version__
from matchkernel.collection.extract import LIBRARIES
from matchkernel.collection.pair_blocks import pair_blocks
from matchkernel.colmap.text_files import check_match_names, write_match_list
from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.context import matcher_digests
from matchkernel.photos.extract import open_place
from matchkernel.photos.feature_files import NPZ_SUFFIX, FeatureFiles, open_features, recorded_facts
from matchkernel.photos.features import IMAGE_HASH, Features, checksums, read_facts
from matchkernel.photos.hdf5 import is_h5
from matchkernel.photos.match_files import PairMatches, pair_key, read_matches_of, recorded_matches, write_matches
from matchkernel.photos.pair_lists import Pair, unique_pairs
from matchkernel.photos.pipeline import MatchSettings, match_features
from matchkernel.storage.arrays import read_npz
from matchkernel.storage.files import check_output, key_of, remove_leftovers_of, replacing
from matchkernel.storage.folders import shards_of
from matchkernel.storage.pool import Failure, Run, Work, Workers
from matchkernel.storage.settings import describe_differences
from matchkernel.storage.work import Progress, Say, stage

MATCH_SUFFIXES = (".h5", ".hdf5", ".txt")
LINES = 20  # about images without features; a list of pairs may be of another collection
FACTS_AT_A_TIME = 1000  # images whose settings are in memory
CACHE = 200_000_000  # bytes of features that a worker keeps: those of a block with 4,000 keypoints per image
MATCHING = 300_000_000  # bytes: tiles of distances, a model that is fitted
MEMORY = LIBRARIES + CACHE + MATCHING  # of a worker, unless an image has far more than 100,000 keypoints
CONTEXT = "context"  # key of the digests of a context matcher in what is recorded
ARRAYS = ("counts", "sizes", "indices", "scores", "facts")
FoundPair = tuple[PairMatches, int]  # and the number of keypoints of A; scores are (1 + the cosine of descriptors) / 2


@dataclass(frozen=True)
class MatchedPairs:
    """What became of the pairs."""

    pairs: int  # asked for
    done: int  # matched now
    kept: int  # that the .h5 had already, or that an interrupted run had matched
    matches: int  # of these
    # Images without usable features, and pairs ("a b") that could not be matched, with the reason.
    skipped: dict[str, str]


class PairTask(NamedTuple):
    """Two images to match, and the key of the result."""

    a: str
    b: str
    key: str


@dataclass(frozen=True)
class MatchedBlock:
    """A block of pairs whose matches are written."""

    path: Path  # the shard
    pairs: int
    matches: int
    is_new: bool  # matched in this run
    unreadable: dict[str, str]  # images whose features cannot be read, with the reason


def match_pairs(
    features: str | Path,
    pairs: Iterable[Pair],
    outs: Sequence[str | Path],
    settings: MatchSettings | None = None,
    *,
    device: str = "cpu",
    workers: Workers | None = None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> MatchedPairs:
    """Match pairs of images and write the matches; with a geometry, those that agree on it.

    Blocks of pairs are collected in `<out>.parts`, where an interrupted run resumes, and written to the files at the
    end. An .h5 that exists is added to: pairs that it has from the same features and settings are kept, and those of
    earlier features that cannot be matched any more are removed. The files are the same, byte for byte, whichever
    workers made them.

    Args:
        features: folder of .npz files or features.h5.
        pairs: names of two images each; a pair that is named twice is matched once.
        outs: files to write: .h5 in hloc's layout, .txt for COLMAP's matches_importer.
        settings: how to match (default: MatchSettings()); its detector is not used.
        device: where to compare descriptors: "cpu", "cuda", "auto".
        workers: processes that match (default: this process).
        say: called with a line for each image or pair that is skipped.
    """
    chosen, targets = settings or MatchSettings(geometry="none"), [Path(out) for out in outs]
    wanted, files = list(unique_pairs(pairs)), open_features(features)
    _check_targets(targets, files, wanted)
    h5 = next((path for path in targets if is_h5(path)), None)
    with shards_of(targets, "{}: another process is writing matches to it") as folder:
        for target in targets:
            remove_leftovers_of(target)
        before = _recorded_before(h5)
        tasks, skipped, how = _tasks(files, wanted, chosen, before, say)
        kept = _kept(h5, tasks, before, how)
        left = [task for task in tasks if task.key not in kept]
        progress(len(kept), len(tasks))
        matcher = Matcher(files.path, chosen, folder, device)
        blocks, failed = _match_blocks(
            matcher, left, workers, say, lambda done, _: progress(len(kept) + done, len(tasks))
        )
        skipped |= failed
        stale = _stale(h5, wanted, tasks, kept, skipped)
        if stale:
            say(f"{h5}: pairs of earlier features removed: {len(stale)}")
        with stage("write"):
            _write(blocks, targets, tasks, how, stale)
    new, old = (sum(one.pairs for one in blocks if one.is_new is is_new) for is_new in (True, False))
    matches = sum(one.matches for one in blocks) + sum(kept.values())
    return MatchedPairs(len(wanted), new, old + len(kept), matches, skipped)


def _check_targets(targets: Sequence[Path], files: FeatureFiles, pairs: Sequence[Pair]) -> None:
    """Refuse, before any work, what could not be written."""
    if not targets or len({is_h5(path) for path in targets}) < len(targets):
        raise ArgumentError("matches are written to one .h5, one .txt, or one of each")
    for target in targets:
        check_output(target, files.path, suffixes=MATCH_SUFFIXES)
        if not is_h5(target):
            check_match_names(name for pair in pairs for name in pair)
            continue
        names = {name for pair in pairs for name in pair}
        if len({name.replace("/", "-") for name in names}) == len(names):
            continue
        keys: dict[str, Pair] = {}
        for pair, ends in product(pairs, (slice(None), slice(None, None, -1))):  # a file has a pair in one direction
            same = keys.setdefault(pair_key(*pair[ends]), pair)
            if same != pair:
                raise ArgumentError(f"{target}: {same} and {pair} get the same key in hloc's file; rename an image")


def _recorded_before(h5: Path | None) -> dict[str, Any]:
    """The settings that an .h5 records; none if it is not there, or of another program."""
    try:
        return {} if h5 is None or not h5.exists() else dict(json.loads(recorded_matches(h5, [])[0] or "{}"))
    except ValueError:
        return {}


def _tasks(
    files: FeatureFiles, pairs: Sequence[Pair], settings: MatchSettings, before: Mapping[str, Any], say: Say
) -> tuple[list[PairTask], dict[str, str], dict[str, Any]]:
    """Pairs with the keys of their matches; the images without features, whose pairs are left out; and the settings
    that determine the matches, as JSON values, in the way of those that were recorded `before`.
    """
    digests, missing = _feature_digests(files, {name for pair in pairs for name in pair})
    usable = [(a, b) for a, b in pairs if a in digests and b in digests]
    if pairs and not usable:
        names = [name for name in files.names if name not in missing]  # the images may have other names there
        hint = f"; it has {', '.join(names[:2])}{', ...' * (len(names) > 2)}" if names else ""
        raise FileError(f"{files.path}: has the features of no pair: {next(iter(missing.values()))}{hint}")
    how = {name: value for name, value in asdict(settings).items() if name != "detector"}
    how["filter"] = str(settings.filter)
    if settings.filter.kind == "context" and CONTEXT in before:
        how[CONTEXT] = before[CONTEXT]
    if usable:
        first = _first_that_loads(files, usable)
        settings.filter.check_recorded(first.model, first.settings)
        if settings.filter.kind == "context":
            how[CONTEXT] = matcher_digests(settings.filter.weights, first.model, first.settings, before.get(CONTEXT))
    for reason in islice(missing.values(), LINES):
        say(f"skipped {reason}")
    if len(missing) > LINES:
        say(f"skipped {len(missing) - LINES:,} more images without usable features")
    return [PairTask(a, b, key_of(__version__, a, digests[a], b, digests[b], how)) for a, b in usable], missing, how


def _first_that_loads(files: FeatureFiles, pairs: Sequence[Pair]) -> Features:
    names = list(dict.fromkeys(name for pair in pairs for name in pair))
    for name in names:
        with suppress(FileError):  # said when its pairs are matched
            return files.load(name)
    return files.load(names[0])


def _feature_digests(files: FeatureFiles, names: Iterable[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Digests of the features of images; and the images without usable features, with the reason.

    Features of this package are identified by what they were made from, photo, model and settings, and by the
    checksums that their file records. Features of other programs are identified by their values.
    """
    found: dict[str, str] = {}
    missing: dict[str, str] = {}
    present, wanted = set(files.names), sorted(set(names))
    for start in range(0, len(wanted), FACTS_AT_A_TIME):
        some = wanted[start : start + FACTS_AT_A_TIME]
        known = recorded_facts(files.path, present.intersection(some)) if is_h5(files.path) else {}
        for name in some:
            try:
                if name not in present:
                    raise FileError(f"{files.path}: contains no features of {name}")
                if is_h5(files.path):
                    facts: Any = known[name]
                    is_ours, identity = IMAGE_HASH in facts.get("settings", {}), facts
                else:
                    (model, settings), sums = read_facts(path := files.path / f"{name}{NPZ_SUFFIX}"), checksums(path)
                    is_ours, identity = IMAGE_HASH in settings, [model, settings, sums]
                found[name] = key_of(__version__, identity) if is_ours else _digest(files.load(name))
            except FileError as error:
                missing[name] = str(error)
    return found, missing


def _digest(features: Features) -> str:
    digest = hashlib.sha256()
    for array in (features.keypoints, features.frames.shapes, features.descriptors):
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def _kept(
    h5: Path | None, tasks: Sequence[PairTask], before: Mapping[str, Any], now: Mapping[str, Any]
) -> dict[str, int]:
    """Keys of the pairs that an .h5 has from the same features, with their numbers of matches."""
    if h5 is None or not h5.exists():
        return {}
    found = recorded_matches(h5, [(task.a, task.b) for task in tasks])[1]
    if before and CONTEXT in now:  # not recorded if there were no pairs
        before = {CONTEXT: now[CONTEXT], **before}
    readable = ({name: value for name, value in facts.items() if name != CONTEXT} for facts in (before, now))
    differences = describe_differences(*readable) or describe_differences(before, now)
    if differences:
        how = differences if before else "made by another program"
        raise ArgumentError(f"{h5}: its matches were {how}; choose another place")
    keys = {task.key for task in tasks}
    return {key: count for key, count in found.values() if key in keys}


def _stale(
    h5: Path | None, pairs: Sequence[Pair], tasks: Sequence[PairTask], kept: Collection[str], skipped: Collection[str]
) -> list[Pair]:
    """The pairs that an .h5 has from earlier features and that could not be matched now."""
    if h5 is None or not h5.exists():
        return []
    valid = {(task.a, task.b) for task in tasks if task.key in kept}
    unmatched = [(a, b) for a, b in pairs if (a, b) not in valid and not {a, b, f"{a} {b}"}.isdisjoint(skipped)]
    return list(recorded_matches(h5, [*unmatched, *(pair[::-1] for pair in unmatched)])[1])


def _match_blocks(
    matcher: "Matcher", tasks: Sequence[PairTask], workers: Workers | None, say: Say, progress: Progress
) -> tuple[list[MatchedBlock], dict[str, str]]:
    """Match pairs block by block into shards, unless they exist; and what was skipped, with the reason."""
    by_names = {(task.a, task.b): task for task in tasks}
    blocks = [[by_names[pair] for pair in block] for block in pair_blocks(list(by_names))]
    found: dict[PairTask, MatchedBlock] = {}  # by first pair
    skipped: dict[str, str] = {}
    done = 0
    for items, result in _results(matcher, blocks, workers):
        done += len(items)
        if isinstance(result, Failure):
            news = {f"{pair.a} {pair.b}": f"{pair.a} {pair.b}: not matched: {result.reason}" for pair in items}
        else:
            found[items[0]] = result
            news = {name: reason for name, reason in result.unreadable.items() if name not in skipped}
        skipped |= news
        for reason in news.values():
            say(f"skipped {reason}")
        progress(done, len(tasks))
    return [found[pair] for block in blocks for pair in block if pair in found], dict(sorted(skipped.items()))


def _results(
    matcher: "Matcher", blocks: list[list[PairTask]], workers: Workers | None
) -> Iterator[tuple[list[PairTask], MatchedBlock | Failure]]:
    if workers is None or not blocks:
        matcher = replace(matcher, device=open_place(matcher.device))
        yield from ((block, matcher.match_block(block)) for block in blocks)
        return
    uses_gpu = matcher.device == "auto" or matcher.device.startswith("cuda")
    with workers.pool(Work(matcher.open_in_worker, MEMORY, uses_gpu, matcher.folder), len(blocks)) as pool:
        yield from pool.run(blocks)


@dataclass(frozen=True)
class Matcher:
    """Matches pairs of images in one process, and keeps the features of the last images in memory."""

    features: Path  # folder of .npz files or features.h5
    settings: MatchSettings
    folder: Path  # of the shards
    device: str = "cpu"
    _cache: OrderedDict[str, Features] = field(default_factory=OrderedDict, init=False, repr=False)

    def open_in_worker(self, gpu: bool) -> tuple[dict[str, Any], Run]:
        """What a pool asks of work."""
        device = ("cuda" if gpu else "cpu") if self.device == "auto" else self.device
        return {}, replace(self, device=open_place(device)).match_block

    def match_block(self, tasks: Sequence[PairTask]) -> MatchedBlock:
        """Match the pairs of a block and write their matches, unless they are written already."""
        key = key_of(__version__, [pair.key for pair in tasks])
        path = self.folder / f"{key}{NPZ_SUFFIX}"
        with suppress(FileError):  # not there, or damaged
            known = _summary(path, is_new=False)
            if not known.unreadable:  # else the features may be repaired by now
                return known
        unreadable: dict[str, str] = {}
        found = [one for pair in tasks if (one := self._match(pair, unreadable)) is not None]
        save_block(found, path, unreadable)
        return _summary(path, is_new=True)

    def _match(self, pair: PairTask, unreadable: dict[str, str]) -> FoundPair | None:
        a, b = (self._features(name, unreadable) for name in (pair.a, pair.b))
        if a is None or b is None:
            return None
        try:
            found = match_features(a, b, self.settings, device=self.device)
        except ArgumentError as error:
            raise ArgumentError(f"{pair.a} and {pair.b}: {error}") from None
        matches = found.matches[found.inliers]
        return PairMatches((pair.a, pair.b), matches.indices, 1 - matches.distances**2 / 4, pair.key), len(a)

    def _features(self, name: str, unreadable: dict[str, str]) -> Features | None:
        """Features of an image, kept for its other pairs; None, with a reason, if they cannot be read."""
        if name in unreadable:
            return None
        if name not in self._cache:
            try:
                self._cache[name] = FeatureFiles(self.features, []).load(name)
            except FileError as error:
                unreadable[name] = str(error)
                return None
        self._cache.move_to_end(name)
        while len(self._cache) > 2 and sum(map(_bytes_of, self._cache.values())) > CACHE:
            self._cache.popitem(last=False)
        return self._cache[name]


def _bytes_of(features: Features) -> int:
    arrays = (features.descriptors, features.scores, features.frames.centers, features.frames.shapes)
    return sum(array.nbytes for array in arrays)


def _summary(path: Path, *, is_new: bool) -> MatchedBlock:
    found, unreadable = load_block(path)
    return MatchedBlock(path, len(found), sum(len(one.indices) for one, _ in found), is_new, unreadable)


def save_block(found: Sequence[FoundPair], path: Path, unreadable: dict[str, str]) -> None:
    """Write the matches of a block, atomically; the same matches give the same bytes."""
    facts = {"key": path.stem, "pairs": [one.names for one, _ in found], "bad": unreadable}
    with replacing(path) as part, part.open("wb") as file:
        np.savez(
            file,
            counts=np.array([len(one.indices) for one, _ in found], np.int64),
            sizes=np.array([size for _, size in found], np.int64),
            indices=np.concatenate([np.empty((0, 2), np.int32), *(one.indices.astype(np.int32) for one, _ in found)]),
            scores=np.concatenate([np.empty(0, np.float32), *(one.scores.astype(np.float32) for one, _ in found)]),
            facts=np.array(json.dumps(facts, sort_keys=True)),
        )


def load_block(path: Path) -> tuple[list[FoundPair], dict[str, str]]:
    """The matches of a block, and images that cannot be read; a file that is damaged or of another key is refused."""
    arrays = read_npz(path, ARRAYS, "a file of matches")  # whose checksums detect damage
    counts, sizes, indices, scores = (arrays[name] for name in ARRAYS[:4])
    facts = json.loads(str(arrays["facts"]))
    if facts["key"] != path.stem:
        raise FileError(f"{path}: not the file of matches that its name says")
    ends = np.cumsum(counts)[:-1]
    parts = zip(facts["pairs"], np.split(indices, ends), np.split(scores, ends), sizes.tolist(), strict=False)
    return [(PairMatches((a, b), rows, values), size) for (a, b), rows, values, size in parts], facts["bad"]


def _write(
    blocks: Sequence[MatchedBlock],
    targets: Sequence[Path],
    tasks: Sequence[PairTask],
    how: Mapping[str, Any],
    stale: Sequence[Pair],
) -> None:
    """Write the matches of all pairs, without those that are stale; one block at a time is in memory."""
    found = (one for block in blocks for one in load_block(block.path)[0])
    keys = {(task.a, task.b): task.key for task in tasks}
    h5 = next((path for path in targets if is_h5(path)), None)
    text = next((path for path in targets if not is_h5(path)), None)
    if h5 is not None and (blocks or stale or not h5.exists()):
        pairs = ((replace(one, key=keys[one.names]), size) for one, size in found)
        write_matches(h5, pairs, json.dumps(how, sort_keys=True), removed=stale)
    if text is not None and h5 is None:
        write_match_list(text, ((*one.names, one.indices) for one, _ in found))
    elif text is not None and h5 is not None:  # which may have had pairs before
        matched = recorded_matches(h5, keys)[1]
        write_match_list(text, ((*one.names, one.indices) for one in read_matches_of(h5, matched)))
