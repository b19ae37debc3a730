"""Match pairs of images whose features are on disk, into a matches.h5 of hloc or a match list of COLMAP; resumable."""

import json
import shutil
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from matchkernel.collection.feature_files import feature_digests
from matchkernel.collection.match_shards import (
    FoundPair,
    MatchedBlock,
    MatchWork,
    PairTask,
    matched_pairs,
    recorded_match_settings,
)
from matchkernel.collection.pair_blocks import pair_blocks
from matchkernel.collection.shards import key_of, visible_mark
from matchkernel.colmap.text_files import check_match_names, write_match_list
from matchkernel.errors import ArgumentError, FileError
from matchkernel.photos.files import (
    FeatureFiles,
    Pair,
    PairMatches,
    is_h5,
    open_features,
    pair_key,
    read_matches,
    recorded_matches,
    unique_pairs,
    write_matches,
)
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.storage.files import check_output, leftovers_of
from matchkernel.storage.folders import exclusive
from matchkernel.storage.pool import Failure, Work, Workers
from matchkernel.storage.progress import Progress, Say, stage
from matchkernel.storage.settings import first_difference

MATCH_SUFFIXES = (".h5", ".hdf5", ".txt")


@dataclass(frozen=True)
class MatchedPairs:
    """What became of the pairs.

    Attributes:
        pairs: number asked for.
        done: number matched now.
        kept: number that the .h5 had already, or an interrupted run had left.
        matches: number of matches of these.
        skipped: images without usable features, and pairs ("a b") that could not be matched, each with the reason.
    """

    pairs: int
    done: int
    kept: int
    matches: int
    skipped: dict[str, str]


@dataclass(frozen=True)
class BlockRun:
    """Blocks of pairs that are done, as files of a folder."""

    folder: Path
    blocks: list[MatchedBlock]
    skipped: dict[str, str]

    def each(self) -> Iterator[FoundPair]:
        """The matches of every pair, in the order of the blocks; one block at a time is in memory."""
        return matched_pairs(self.folder, self.blocks)


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
    end. An .h5 that exists is added to: pairs that it has from the same features and settings are kept. The files are
    the same, byte for byte, whoever made them.

    Args:
        features: folder of .npz files or features.h5.
        pairs: names of two images each; a pair that is named twice is matched once.
        outs: files to write: .h5 in hloc's layout, .txt for COLMAP's matches_importer.
        settings: how to match (default: MatchSettings()); its detector is not used.
        device: where to compare descriptors: "cpu", "cuda", "auto".
        workers: who does it (default: this process).
        say: called with a line for each image or pair that is skipped.
        progress: called with the number of pairs done and their total.
    """
    chosen, targets = settings or MatchSettings(geometry="none"), [Path(out) for out in outs]
    wanted = list(unique_pairs(pairs))
    files = open_features(features)
    _check_targets(targets, files, wanted)
    h5 = next((path for path in targets if is_h5(path)), None)
    folder = targets[0].with_name(targets[0].name + ".parts")
    with exclusive(folder, f"{targets[0]}: another process is writing matches to it"):
        for path in (left for target in targets for left in leftovers_of(target)):
            path.unlink(missing_ok=True)
        tasks, skipped = pair_tasks(files, wanted, chosen, say)
        if wanted and not tasks:
            raise FileError(f"{files.place}: has the features of no pair{_other_names(files, skipped)}")
        there = _kept(h5, tasks, chosen)
        left = [task for task in tasks if task.key not in there]
        work = MatchWork(files.place, chosen, folder, device)
        progress(len(there), len(tasks))
        run = run_blocks(work, left, workers, say, lambda done, _: progress(len(there) + done, len(tasks)))
        with stage("write"):
            _write(run, targets, tasks, there, chosen)
        shutil.rmtree(folder, ignore_errors=True)
    new, old = (sum(one.pairs for one in run.blocks if one.is_new is is_new) for is_new in (True, False))
    matches = sum(one.matches for one in run.blocks) + sum(there.values())
    return MatchedPairs(len(wanted), new, old + len(there), matches, {**skipped, **run.skipped})


def pair_tasks(
    files: FeatureFiles, pairs: Sequence[Pair], settings: MatchSettings, say: Say
) -> tuple[list[PairTask], dict[str, str]]:
    """Pairs with the keys of their matches; and the images without features, whose pairs are left out."""
    digests, skipped = feature_digests(files, {name for pair in pairs for name in pair})
    for reason in skipped.values():
        say(f"skipped {reason}")
    how = recorded_match_settings(settings)
    tasks = [
        PairTask(a, b, key_of(a, digests[a], b, digests[b], how)) for a, b in pairs if a in digests and b in digests
    ]
    if tasks:
        settings.filter.check_recorded(files.load(tasks[0].a).settings)
    return tasks, skipped


def _other_names(files: FeatureFiles, missing: Iterable[str]) -> str:
    """A hint where images are called otherwise: `; it has images/a.jpg, ...`."""
    others = [name for name in files.names if name not in missing]
    return f"; it has {', '.join(others[:2])}{', ...' * (len(others) > 2)}" if others else ""


def run_blocks(
    work: MatchWork,
    tasks: Sequence[PairTask],
    workers: Workers | None,
    say: Say = lambda line: None,
    progress: Progress = lambda done, total: None,
) -> BlockRun:
    """Match pairs block by block into files of `work.folder`; blocks that are there already are not matched again."""
    by_names = {(task.a, task.b): task for task in tasks}
    blocks = [[by_names[pair] for pair in block] for block in pair_blocks(list(by_names))]
    found: dict[PairTask, MatchedBlock] = {}  # by first pair
    skipped: dict[str, str] = {}
    done = 0
    for task, result in _results(work, blocks, workers):
        done += len(task)
        if isinstance(result, Failure):
            news = {f"{pair.a} {pair.b}": f"{pair.a} {pair.b}: not matched: {result.reason}" for pair in task}
        else:
            found[task[0]] = result
            news = {name: reason for name, reason in result.bad.items() if name not in skipped}
        skipped |= news
        for reason in news.values():
            say(f"skipped {reason}")
        progress(done, len(tasks))
    in_order = [found[pair] for block in blocks for pair in block if pair in found]
    return BlockRun(work.folder, in_order, dict(sorted(skipped.items())))


def _results(
    work: MatchWork, blocks: list[list[PairTask]], workers: Workers | None
) -> Iterator[tuple[list[PairTask], MatchedBlock | Failure]]:
    if not blocks:
        return
    if workers is None:
        matcher = work.here()
        yield from ((block, matcher.do(block)) for block in blocks)
        return
    with (
        visible_mark(work.folder) as mark,
        workers.pool(Work(work.sent(mark).open, work.memory, work.uses_gpu), len(blocks)) as pool,
    ):
        yield from pool.run(blocks)


def _check_targets(targets: Sequence[Path], files: FeatureFiles, pairs: Sequence[Pair]) -> None:
    """Refuse, before any work, what could not be written."""
    if not targets or len({path.suffix.lower() for path in targets}) < len(targets):
        raise ArgumentError("matches are written to one .h5, one .txt, or one of each")
    for target in targets:
        check_output(target, files.place, suffixes=MATCH_SUFFIXES)
        if not is_h5(target):
            check_match_names(name for pair in pairs for name in pair)
            continue
        keys: dict[str, Pair] = {}
        for pair in pairs:
            same = keys.setdefault(pair_key(*pair), pair)
            if same != pair:
                raise ArgumentError(f"{target}: hloc has one name for the pairs {same} and {pair}; rename an image")


def _kept(h5: Path | None, tasks: Sequence[PairTask], settings: MatchSettings) -> dict[str, int]:
    """Keys of the pairs that an .h5 has from the same features, with their numbers of matches."""
    if h5 is None or not h5.exists():
        return {}
    text, there = recorded_matches(h5, [(task.a, task.b) for task in tasks])
    try:
        before = dict(json.loads(text or "{}"))
    except ValueError:
        before = {}
    differs = first_difference(before, recorded_match_settings(settings))
    if differs is not None:
        name, then, now = differs
        told = f"were made with {name} {then!r}, now {now!r}" if name in before else "were made by another program"
        raise ArgumentError(f"{h5}: its matches {told}; choose another place")
    keys = {task.key for task in tasks}
    return {key: count for key, count in there.values() if key in keys}


def _write(
    run: BlockRun, targets: Sequence[Path], tasks: Sequence[PairTask], there: dict[str, int], settings: MatchSettings
) -> None:
    keys = {(task.a, task.b): task.key for task in tasks}
    h5 = next((path for path in targets if is_h5(path)), None)
    if h5 is not None and (run.blocks or not h5.exists()):
        found = (
            (PairMatches((one.a, one.b), one.indices, one.scores, keys[one.a, one.b]), one.size) for one in run.each()
        )
        write_matches(h5, found, json.dumps(recorded_match_settings(settings), sort_keys=True))
    for target in targets:
        if not is_h5(target):
            write_match_list(target, _lines(run, h5, tasks))


def _lines(run: BlockRun, h5: Path | None, tasks: Sequence[PairTask]) -> Iterator[tuple[str, str, np.ndarray]]:
    """Names and indices of every pair: of the .h5 if there is one, which may have had pairs before."""
    if h5 is None:
        yield from ((one.a, one.b, one.indices) for one in run.each())
        return
    for task in tasks:
        try:
            yield task.a, task.b, read_matches(h5, task.a, task.b).indices
        except FileError:
            continue  # skipped, and said
