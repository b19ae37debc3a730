"""Memory while a collection grows: the process that leads, and its largest worker, by the number of images done.

    python benchmarks/collection_memory.py [--images 2000] [--workers 2] [--model light-wide] [PHOTOS ...]

The images are parts of the given photos (default: those of the tests). Features go into one .h5; then each image is
matched with the next one and with one drawn at random, so that every worker meets more features than it keeps. Peaks
are what Linux records (VmHWM); the leader's is reset before each stage.
"""

import argparse
import itertools
import os
import random
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from collection_photos import PHOTOS, write_collection
from describe_speed import processor, versions
from timing import write_result

from matchkernel.collection.extract import extract_images, find_images
from matchkernel.collection.match import CACHE, match_pairs
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import open_recipe
from matchkernel.storage.pool import LocalWorkers

KEYPOINTS, POINTS, LARGE = 500, 10, (5000, 3200)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--model", default="light-wide")
    options = parser.parse_args()
    places = options.photos or [PHOTOS]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        names = write_collection(folder / "photos", options.images, places)
        shuffled = random.Random(0).sample(names, len(names))
        pairs = [*itertools.pairwise(names), *itertools.pairwise(shuffled)]
        workers = LocalWorkers(options.workers)
        watch = Watch("extract", "images")
        recipe = open_recipe(options.model, device="cpu")
        images, detector = find_images([folder / "photos"]), Detector(keypoints=KEYPOINTS)
        extract_images(images, folder / "features.h5", recipe, detector, workers=workers, progress=watch)
        watch.sample(len(images), "written")
        matching = Watch("match-pairs", "pairs")
        match_pairs(folder / "features.h5", pairs, [folder / "matches.h5"], workers=workers, progress=matching)
        matching.sample(len(pairs), "written")
        result = {
            "photos_of": ["/".join(place.absolute().parts[-2:]) for place in places],
            "largest_photo": largest_photo(folder, places, options.model),
            "processor": processor(), "versions": versions(), "images": options.images, "pairs": len(pairs),
            "workers": options.workers, "model": options.model, "keypoints": KEYPOINTS,
            "features_mb": round((folder / "features.h5").stat().st_size / 1e6), "kept_mb": round(CACHE / 1e6),
            "rows": watch.rows + matching.rows,
        }  # fmt: skip
    write_result("collection_memory", result)


def largest_photo(folder: Path, places: list[Path], model: str) -> dict[str, Any]:
    """The peak of a worker that extracts a photo of as many pixels as OpenCV's SIFT is given at most."""
    (name,) = write_collection(folder / "large", 1, places, LARGE)
    watch = Watch("extract", "images")
    images = {name: folder / "large" / name}
    recipe = open_recipe(model, device="cpu")
    extract_images(images, folder / "large.h5", recipe, workers=LocalWorkers(1), progress=watch)
    return {"pixels": LARGE[0] * LARGE[1], "worker_mb": watch.rows[-1]["worker_mb"]}


class Watch:
    """A progress callback that notes the memory of this process and of its largest worker, ten times."""

    def __init__(self, stage: str, unit: str) -> None:
        self.stage, self.unit, self.start = stage, unit, time.monotonic()
        self.rows: list[dict[str, Any]] = []
        with suppress(OSError):
            Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew

    def __call__(self, done: int, total: int) -> None:
        """Note it if another tenth is done."""
        if done and done * POINTS // total > len(self.rows):
            self.sample(done)

    def sample(self, done: int, note: str = "") -> None:
        """Note it now."""
        children = [child for path in Path("/proc/self/task").glob("*/children") for child in path.read_text().split()]
        row = {
            "stage": self.stage, self.unit: done, "leader_mb": peak(os.getpid()),
            "worker_mb": max((peak(int(child)) for child in children), default=0),
            "seconds": round(time.monotonic() - self.start, 1), **({"note": note} if note else {}),
        }  # fmt: skip
        self.rows.append(row)
        print(row, flush=True)


def peak(process: int) -> int:
    """The most memory that a process has had, in MB."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return round(int(line.split()[1]) * 1024 / 1e6)
    return 0


if __name__ == "__main__":
    main()
