"""The three HPatches tasks on generated descriptors of the size of split `full`, compared with the official method.

The official method is a reimplementation of the benchmark's Python code: a Python loop over pairs, a distance matrix
and a ranking per image pair, seven rankings per query and noise level. It is timed on a stated part of the data, and
its values must equal ours to 1e-6. Both run in one thread, because only ours would gain from more.
"""

import resource
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from scipy.spatial.distance import cdist, euclidean
from timing import write_result

from matchkernel.data.hpatches import IMAGES, NOISES, HPatchesTasks, PatchList, VerificationLists
from matchkernel.evaluation.hpatches.descriptors import HPatchesDescriptors
from matchkernel.evaluation.hpatches.evaluate import score_split
from matchkernel.evaluation.hpatches.retrieval import POOLS, retrieval_counts
from matchkernel.evaluation.hpatches.verification import verification_distances
from matchkernel.evaluation.metrics import non_matches_before, precision_area
from matchkernel.photos.nearest import find_nearest

PATCHES, SEQUENCES, D = 156_967, 116, 128
PAIRS, QUERIES, DISTRACTORS = 1_000_000, 10_000, 20_000
NOISE = {"ref": 0.2, "e": 0.7, "h": 1.1, "t": 1.5}
TOLERANCE = 1e-6  # between our values and the official manner's; our distances are float32
PART = {"pairs": 5_000, "sequences": 2, "queries": 30}  # what the official manner is timed on


def make_descriptors() -> HPatchesDescriptors:
    """Unit rows: one vector per patch, with noise that grows with the level."""
    random = np.random.default_rng(0)
    shares = random.uniform(0.3, 1.7, SEQUENCES)
    sizes = np.floor(shares / shares.sum() * PATCHES).astype(int)
    sizes[: PATCHES - sizes.sum()] += 1
    counts = {f"{'iv'[k % 2]}_{k:03}": int(size) for k, size in enumerate(sizes)}
    descriptors = HPatchesDescriptors("generated", np.empty((16 * PATCHES, D), np.float32), counts)
    for name, size in counts.items():
        base = random.standard_normal((size, D), dtype=np.float32) + random.standard_normal(D, dtype=np.float32)
        for target, image in zip(descriptors.sequence(name), IMAGES, strict=True):
            sigma = np.float32(NOISE[image if image == "ref" else image[0]])
            target[:] = base + sigma * random.standard_normal((size, D), dtype=np.float32)
            target /= np.linalg.norm(target, axis=1, keepdims=True)
    return descriptors


def make_tasks(counts: dict[str, int]) -> HPatchesTasks:
    """Lists of the official lengths, drawn by the official rules but faster."""
    random = np.random.default_rng(1)
    names, sizes = np.array(list(counts)), np.array(list(counts.values()))
    s, other = random.integers(SEQUENCES, size=(2, PAIRS))
    one = random.integers(sizes[s])
    two = (one + random.integers(1, sizes[s])) % sizes[s]
    t = random.permuted(np.tile(np.arange(5), (PAIRS, 1)), axis=1)
    lists = VerificationLists(
        PatchList(names[s], t[:, 0], one),
        PatchList(names[s], t[:, 1], one),
        PatchList(names[s], t[:, 1], two),
        PatchList(names[other], t[:, 1], random.integers(sizes[other])),
    )
    chosen = random.permutation(PATCHES)[: QUERIES + DISTRACTORS]
    which = np.repeat(np.arange(SEQUENCES), sizes)[chosen]
    index = np.concatenate([np.arange(size) for size in sizes])[chosen]
    listed = PatchList(names[which], np.zeros_like(index), index)
    parts = [
        PatchList(listed.sequences[part], listed.images[part], listed.indices[part])
        for part in (slice(0, QUERIES), slice(QUERIES, None))
    ]
    return HPatchesTasks("full", list(counts), [], lists, parts[0], parts[1])


def official_ap(distances: np.ndarray, labels: np.ndarray, positives: int) -> float:
    """Trapezoid AP, one step per element."""
    ranked = labels[np.argsort(distances, kind="mergesort")]
    tp, fp = np.hstack((0, np.cumsum(ranked == 1))), np.hstack((0, np.cumsum(ranked == 0)))
    precision = np.maximum(tp, 1e-10) / np.maximum(tp + fp, 1e-10)
    return float(np.trapezoid(precision, tp / positives))


def official_pairs(images: dict[str, dict[str, np.ndarray]], rows: list[tuple[Any, ...]]) -> np.ndarray:
    """(M, 3) distances, pair by pair."""
    found = np.empty((len(rows), 3))
    for number, (s1, t1, i1, s2, t2, i2) in enumerate(rows):
        for level, noise in enumerate(NOISES):
            a = images[s1]["ref" if t1 == 0 else f"{noise}{t1}"][i1]
            b = images[s2]["ref" if t2 == 0 else f"{noise}{t2}"][i2]
            found[number, level] = euclidean(a, b)
    return found


def official_verification_scores() -> None:
    """The six ROC areas and six APs of lists of the full length."""
    random = np.random.default_rng(2)
    distances, labels = random.random(2 * PAIRS), np.repeat([0, 1], PAIRS)
    few = PAIRS + PAIRS // 5
    for _ in range(len(NOISES) * 2):
        ranked = labels[np.argsort(distances, kind="mergesort")]
        np.trapezoid(np.cumsum(ranked == 1) / PAIRS, np.cumsum(ranked == 0) / PAIRS)
        official_ap(distances[:few], labels[:few], few - PAIRS)


def official_matching(images: dict[str, dict[str, np.ndarray]], names: list[str]) -> list[float]:
    """AP of every image pair of some sequences."""
    found = []
    for name in names:
        truth = np.arange(len(images[name]["ref"]))
        for image in IMAGES[1:]:
            matrix = cdist(images[name]["ref"], images[name][image], "euclidean")
            index = np.argmin(matrix, axis=1)
            found.append(official_ap(matrix[truth, index], (index == truth).astype(int), len(truth)))
    return found


def official_retrieval(
    images: dict[str, dict[str, np.ndarray]], queries: list[tuple[str, int]], pool: np.ndarray, names: np.ndarray
) -> np.ndarray:
    """(Q, 3, 7) AP of every query, noise level and pool; the distractors' rows and sequences are given."""
    ours = np.array([images[name]["ref"][index] for name, index in queries])
    matrix = cdist(ours, pool, "euclidean")
    found = np.empty((len(queries), 3, len(POOLS)))
    for number, (name, index) in enumerate(queries):
        for level, noise in enumerate(NOISES):
            near = [cdist(ours[number][None], images[name][f"{noise}{k}"][index][None])[0, 0] for k in range(1, 6)]
            others = matrix[number][names != name]
            distances = np.hstack((near, others))
            labels = np.hstack((np.ones(5), np.zeros(len(others))))
            for at, K in enumerate(POOLS):
                found[number, level, at] = official_ap(distances[:K], labels[:K], 5)
    return found


def timed(job: Callable[[], Any]) -> tuple[float, Any]:
    """The time in seconds, and the result."""
    start = time.perf_counter()
    result = job()
    return time.perf_counter() - start, result


def measure(descriptors: HPatchesDescriptors, tasks: HPatchesTasks) -> dict[str, dict[str, float]]:
    """Each task of ours as a whole, between two runs of the official manner on its part."""
    images = {name: dict(zip(IMAGES, descriptors.sequence(name), strict=True)) for name in tasks.test}
    lists, names = tasks.verification, tasks.test[: PART["sequences"]]
    few = slice(0, PART["pairs"])
    rows = [
        (*row, *other)
        for part in (lists.positives, lists.intra, lists.inter)
        for row, other in zip(listed(lists.first, few), listed(part, few), strict=True)
    ]
    queries = [(s, i) for s, _, i in listed(tasks.queries, slice(0, PART["queries"]))]
    pool = np.array([images[s]["ref"][i] for s, _, i in listed(tasks.distractors, slice(None))])
    sources = np.array(tasks.distractors.sequences)  # both once for all queries, so not in the part's time
    squares = {name: descriptors.counts[name] ** 2 for name in tasks.test}
    official: dict[str, tuple[Callable[[], Any], float]] = {
        "verification": (lambda: official_pairs(images, rows), PART["pairs"] / PAIRS),
        "matching": (lambda: official_matching(images, names), sum(squares[n] for n in names) / sum(squares.values())),
        "retrieval": (lambda: official_retrieval(images, queries, pool, sources), PART["queries"] / QUERIES),
    }
    results = {}
    for task, (job, share) in official.items():
        before, values = timed(job)
        seconds, _ = timed(lambda task=task: score_split(descriptors, tasks, only=[task]))  # type: ignore[misc]
        after, _ = timed(job)
        whole = (before + after) / 2 / share
        if task == "verification":
            whole += timed(official_verification_scores)[0]
        difference = float(np.abs(np.ravel(values) - np.ravel(OURS[task](descriptors, tasks))).max())
        if not difference <= TOLERANCE:
            raise RuntimeError(f"{task}: ours and the official manner differ by {difference:g}, allowed {TOLERANCE:g}")
        results[task] = {
            "seconds": round(seconds, 2),
            "official_seconds": round(whole, 1),
            "official_share_measured": round(share, 5),
            "ratio": round(whole / seconds, 1),
            "largest_difference": difference,
        }
        print(task, results[task])
    return results


def listed(patches: PatchList, part: slice) -> list[tuple[str, int, int]]:
    """Rows of a list as the official code has them."""
    columns = (patches.sequences[part].tolist(), patches.images[part].tolist(), patches.indices[part].tolist())
    return list(zip(*columns, strict=True))


def our_pairs(descriptors: HPatchesDescriptors, tasks: HPatchesTasks) -> np.ndarray:
    """As official_pairs."""
    found = [verification_distances(descriptors, tasks.verification, noise) for noise in NOISES]
    kinds = ("positives", "intra", "inter")
    return np.concatenate([np.stack([part[kind][: PART["pairs"]] for part in found], 1) for kind in kinds])


def our_matching(descriptors: HPatchesDescriptors, tasks: HPatchesTasks) -> list[float]:
    """As official_matching."""
    found = []
    for name in tasks.test[: PART["sequences"]]:
        images = descriptors.sequence(name)
        for image in images[1:]:
            near = find_nearest(images[0], image, wants_second=False)
            before = non_matches_before(near.first, near.index == np.arange(len(image)))
            found.append(float(precision_area(before, len(image))))
    return found


def our_retrieval(descriptors: HPatchesDescriptors, tasks: HPatchesTasks) -> np.ndarray:
    """As official_retrieval."""
    q = tasks.queries
    few = PatchList(*(column[: PART["queries"]] for column in (q.sequences, q.images, q.indices)))
    return retrieval_counts(descriptors, few, tasks.distractors).average_precisions("trapezoid")[:, :, : len(POOLS)]


OURS: dict[str, Callable[[HPatchesDescriptors, HPatchesTasks], Any]] = {
    "verification": our_pairs,
    "matching": our_matching,
    "retrieval": our_retrieval,
}


def main() -> None:
    """Measure, print, write."""
    torch.set_num_threads(1)  # the official manner has no threads either
    descriptors = make_descriptors()
    tasks = make_tasks(descriptors.counts)
    results = measure(descriptors, tasks)
    ours = sum(part["seconds"] for part in results.values())
    official = sum(part["official_seconds"] for part in results.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(
        f"three tasks: {ours:.1f} s, official manner {official:.0f} s, {official / ours:.1f} times; peak {peak:.2f} GB"
    )
    summary = {"seconds": round(ours, 1), "official_seconds": round(official), "ratio": round(official / ours, 1)}
    shape = {"patches": PATCHES, "images": 16, "sequences": SEQUENCES, "dimension": D, "pairs": PAIRS}
    write_result(
        "hpatches_tasks",
        {**shape, **summary, "tolerance": TOLERANCE, "peak_memory_gb": round(peak, 2), "tasks": results},
    )


if __name__ == "__main__":
    main()
