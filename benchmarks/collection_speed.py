"""Throughput of workers: processes of this machine against Ray actors, and what a shard costs on each.

    python benchmarks/collection_speed.py [--images 200] [--workers 2] [--parts PART ...] [PHOTOS ...]

Both extract and match the same images (parts of the given photos, by default those of the tests), a tenth of them at a
time, in turns, so that a slow moment of the machine affects both; the time until the first worker is ready is separate.
A shard's own cost is measured with tasks that do nothing. The rows `simulated` of the stored result, up to 200 workers
that wait in shared Ray processes, were measured by an earlier version of this script and are kept.
"""

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from collection_photos import write_collection
from describe_speed import processor, versions
from timing import read_result, write_result

from matchkernel.collection.extract import ExtractJob, Photo, extract_work
from matchkernel.collection.match import MatchJob, PairTask, match_work
from matchkernel.collection.ray_pool import RayWorkers
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import open_recipe
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.storage.pool import LocalWorkers, Run, Work, Workers

AT_ONCE, PAIRS_AT_ONCE, TURNS = 2, 15, 10  # images of a task, pairs of a task, turns of each engine
PARTS = ("throughput", "shards")
MODEL, KEYPOINTS, SIZE = "light-wide", 300, (400, 300)
EMPTY_TASKS = 400


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--parts", nargs="*", default=PARTS, choices=PARTS, help="the others are kept as they are")
    options = parser.parse_args()
    engines: dict[str, Workers] = {"local": LocalWorkers(options.workers), "ray": RayWorkers(None, options.workers)}
    result = read_result("collection_speed")
    result |= {"processor": processor(), "versions": versions()}
    if "throughput" in options.parts:
        with tempfile.TemporaryDirectory() as place:
            result |= throughput(Path(place), engines, options)
    if "shards" in options.parts:
        result["shard_ms"] = {name: round(shard_cost(workers) * 1000, 2) for name, workers in engines.items()}
        print(f"cost of a shard: {result['shard_ms']} ms", flush=True)
    write_result("collection_speed", result)


def throughput(folder: Path, engines: dict[str, Workers], options: argparse.Namespace) -> dict[str, Any]:
    """Images and pairs per second of each engine, the seconds until it was ready, and whether bytes are the same."""
    names = write_collection(folder / "photos", options.images, options.photos, SIZE)
    photos = [Photo(name, folder / "photos" / name) for name in names]
    recipe, detector = open_recipe(MODEL, device="cpu"), Detector(keypoints=KEYPOINTS)
    works = {}
    for name in engines:
        (folder / name / "matches").mkdir(parents=True)
        (folder / name / "mark").touch()
        works[name] = extract_work(ExtractJob(detector, folder / name), recipe, folder / name / "mark")
    tasks = [photos[start : start + AT_ONCE] for start in range(0, len(photos), AT_ONCE)]
    started, seconds = in_turns(engines, works, tasks, {name: folder / name for name in engines})
    rates = {name: len(photos) / value for name, value in seconds.items()}
    pairs = [PairTask(a, b, f"{a} {b}") for i, a in enumerate(names) for b in names[i + 1 : i + 6]]
    blocks = [pairs[start : start + PAIRS_AT_ONCE] for start in range(0, len(pairs), PAIRS_AT_ONCE)]
    settings = MatchSettings(geometry="auto")
    jobs = {name: MatchJob(folder / name, settings, folder / name / "matches") for name in engines}
    matching = {name: match_work(job, folder / name / "mark") for name, job in jobs.items()}
    _, seconds = in_turns(engines, matching, blocks, {name: job.folder for name, job in jobs.items()})
    pair_rates = {name: len(pairs) / value for name, value in seconds.items()}
    files = [
        {path.relative_to(folder / name): path.read_bytes() for path in (folder / name).rglob("*.npz")}
        for name in engines
    ]
    same = all(found == files[0] for found in files) and len(files[0]) == len(photos) + len(blocks)
    print(f"images/s {rates}, ray / local {rates['ray'] / rates['local']:.3f}; the same bytes: {same}", flush=True)
    print(f"pairs/s {pair_rates}, ray / local {pair_rates['ray'] / pair_rates['local']:.3f}", flush=True)
    return {
        "images": options.images,
        "workers": options.workers,
        "model": MODEL,
        "keypoints": KEYPOINTS,
        "size": SIZE,
        "images_per_second": {name: round(rate, 3) for name, rate in rates.items()},
        "ray_over_local": round(rates["ray"] / rates["local"], 3),
        "pairs": len(pairs),
        "pairs_per_second": {name: round(rate, 3) for name, rate in pair_rates.items()},
        "pairs_ray_over_local": round(pair_rates["ray"] / pair_rates["local"], 3),
        "seconds_to_start": {name: round(value, 2) for name, value in started.items()},
        "same_bytes": same,
    }


def in_turns(
    engines: dict[str, Workers], works: dict[str, Work], tasks: list[Any], folders: dict[str, Path]
) -> tuple[dict[str, float], dict[str, float]]:
    """Seconds until each engine was ready, and of all its tasks. Both are open, and take turns of a tenth each.

    What they write while they become ready is removed from the folders.
    """
    started, seconds = {}, dict.fromkeys(engines, 0.0)
    size = max(1, len(tasks) // TURNS)
    with ExitStack() as stack:
        pools = {}
        for name, workers in engines.items():
            start = time.perf_counter()
            pools[name] = stack.enter_context(workers.pool(works[name], len(tasks)))
            pools[name].facts  # noqa: B018 - the first is ready
            started[name] = time.perf_counter() - start
            list(pools[name].run(tasks[: 2 * pools[name].size]))  # all are
            for path in folders[name].glob("*.npz"):
                path.unlink()
        for turn, first in enumerate(range(0, len(tasks), size)):
            for name in list(pools)[:: 1 if turn % 2 else -1]:
                start = time.perf_counter()
                list(pools[name].run(tasks[first : first + size]))
                seconds[name] += time.perf_counter() - start
    print(f"ready after {started}, done after {seconds} s", flush=True)
    return started, seconds


def open_nothing(threads: int, gpu: bool) -> tuple[dict[str, Any], Run]:
    """Work whose tasks do nothing."""
    return {}, len


def shard_cost(workers: Workers) -> float:
    """Seconds per task that does nothing."""
    with workers.pool(Work(open_nothing, 10**8), EMPTY_TASKS) as pool:
        list(pool.run([[0.0]] * 20))  # all are ready
        start = time.perf_counter()
        list(pool.run([[0.0]] * EMPTY_TASKS))
        return (time.perf_counter() - start) / EMPTY_TASKS


if __name__ == "__main__":
    main()
