"""Throughput of workers: processes of this machine against Ray actors, and what a shard costs on each.

    python benchmarks/collection_speed.py [--images 200] [--workers 2] [--rounds 2] [--parts PART ...] [PHOTOS ...]

Both extract the same images (parts of the given photos, by default those of the tests) into an .h5, in turns; the time
until the first worker is ready is given apart. A shard's own cost is measured with tasks that do nothing. How
throughput grows with the number of workers is simulated, as this machine has few cores: tasks that wait two seconds,
and actors that share processes as threads. The process that leads, its queue and Ray's messages are real.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from collection_photos import write_collection
from describe_speed import processor, versions
from sleeping import Sleep
from timing import read_result, write_result

from matchkernel.collection.batch_extract import extract_images, find_images
from matchkernel.collection.local_workers import LocalWorkers
from matchkernel.collection.match_pairs import match_pairs
from matchkernel.collection.ray_workers import RayWorkers
from matchkernel.collection.workers import Workers
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import open_recipe

PARTS = ("throughput", "shards", "simulated")
MODEL, KEYPOINTS, SIZE = "light-wide", 300, (400, 300)
EMPTY_TASKS = 400
SHARD_SECONDS, SHARDS_EACH, SHARING = 2.0, 5, 50
SIMULATED = (1, 10, 50, 100, 200)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
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
    if "simulated" in options.parts:
        result["simulated"] = [simulated(count) for count in SIMULATED]
    write_result("collection_speed", result)


def throughput(folder: Path, engines: dict[str, Workers], options: argparse.Namespace) -> dict[str, Any]:
    """Images and pairs per second of each engine, the seconds until it was ready, and whether bytes are the same."""
    names = write_collection(folder / "photos", options.images, options.photos, SIZE)
    images = find_images([folder / "photos"])
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 : i + 6]]
    recipe, detector = open_recipe(MODEL, device="cpu"), Detector(keypoints=KEYPOINTS)
    runs: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    matching: dict[str, list[tuple[float, float]]] = {name: [] for name in engines}
    for turn in range(options.rounds):
        for name, workers in engines.items():
            clock = Clock()
            features = folder / f"{name}{turn}.h5"
            extract_images(images, features, recipe, detector, workers=workers, progress=clock)
            runs[name].append(clock.seconds())
            clock = Clock()
            match_pairs(features, pairs, [folder / f"{name}{turn}.m.h5"], workers=workers, progress=clock)
            matching[name].append(clock.seconds())
            print(name, runs[name][-1], matching[name][-1], flush=True)
    same = all(len({path.read_bytes() for path in folder.glob(pattern)}) == 1 for pattern in ("*[0-9].h5", "*.m.h5"))
    rates = {name: len(images) / sum(run for _, run in times) * len(times) for name, times in runs.items()}
    pair_rates = {name: len(pairs) / sum(run for _, run in times) * len(times) for name, times in matching.items()}
    print(f"images/s {rates}, ray / local {rates['ray'] / rates['local']:.3f}; the same bytes: {same}", flush=True)
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
        "seconds_to_start": {name: round(statistics.median(start for start, _ in runs[name]), 2) for name in runs},
        "same_bytes": same,
    }


class Clock:
    """A progress callback: when work could begin, and when it was done."""

    def __init__(self) -> None:
        self.times = [time.monotonic()]

    def __call__(self, done: int, total: int) -> None:
        """Note the time."""
        self.times.append(time.monotonic())

    def seconds(self) -> tuple[float, float]:
        """Until the first item was done, and of the rest: its share of the items is what the rate counts."""
        return round(self.times[1] - self.times[0], 2), round(self.times[-1] - self.times[1], 2)


def shard_cost(workers: Workers) -> float:
    """Seconds per task that does nothing."""
    with workers.opened(Sleep(), EMPTY_TASKS) as crew:
        list(crew.run([0.0] * 20))  # all are ready
        start = time.perf_counter()
        list(crew.run([0.0] * EMPTY_TASKS))
        return (time.perf_counter() - start) / EMPTY_TASKS


def simulated(count: int) -> dict[str, float]:
    """Tasks per second of so many workers that wait, and its share of the ideal."""
    with RayWorkers(None, count, sharing=SHARING).opened(Sleep(), SHARDS_EACH * count) as crew:
        list(crew.run([0.01] * 20 * count))
        start = time.perf_counter()
        list(crew.run([SHARD_SECONDS] * SHARDS_EACH * count))
        seconds = time.perf_counter() - start
    rate = SHARDS_EACH * count / seconds
    row = {"workers": count, "shards_per_second": round(rate, 3), "share": round(rate * SHARD_SECONDS / count, 3)}
    print(row, flush=True)
    return row


if __name__ == "__main__":
    main()
