"""The opened matcher: memory over 10,000 pairs, and processor seconds per pair beside the functions it is made of."""

import gc
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from timing import interleaved_medians, write_result

from matchkernel import Matcher
from matchkernel.data.sample_pair import FOLDER
from matchkernel.photos.extract import extract_with, open_describer
from matchkernel.photos.pipeline import MatchSettings, match_features
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.pixels import as_gray
from matchkernel.storage.settings import with_options

PAIRS, EVERY = 10_000, 500
SMALL, FEW = (64, 48), 12  # images and keypoints for memory: as many pairs as possible in little time
LARGER, MORE = (240, 180), 200  # for speed
AT_A_TIME, REPEATS = 5, 5  # pairs that are timed together (more images than a matcher keeps), and how often


def frames(size: tuple[int, int]) -> list[np.ndarray]:
    """Windows of a photo, all different, each overlapping the next."""
    gray, (width, height) = as_gray(FOLDER / "left.png"), size
    rows, columns = range(0, gray.shape[0] - height, 16), range(gray.shape[1] - width)
    return [np.ascontiguousarray(gray[y : y + height, x : x + width]) for y in rows for x in columns]


def resident() -> float:
    """MB of this process in memory."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 2**20, 1)


def memory() -> list[float]:
    """MB after every 500 pairs of one matcher."""
    images, sizes = frames(SMALL), []
    assert len(images) > PAIRS
    with Matcher(keypoints=FEW) as matcher:
        for number in range(PAIRS):
            matcher(images[number], images[number + 1])
            if (number + 1) % EVERY == 0:
                sizes.append(resident())
                print(number + 1, "pairs:", sizes[-1], "MB", flush=True)
    return sizes


def speed(threads: int) -> dict[str, float]:
    """Processor seconds per pair of different images, with a describer that is opened once and with a matcher."""
    images, settings = frames(LARGER), with_options(MatchSettings(), {"keypoints": MORE})
    describer, matcher = open_describer(PHOTO_MODEL), Matcher(settings=settings)
    pairs = [(images[i], images[i + 10]) for i in range(0, 20 * AT_A_TIME, 20)]

    def with_functions(pair: tuple[np.ndarray, np.ndarray]) -> object:
        a, b = (extract_with(image, describer, settings.detector) for image in pair)
        return match_features(a, b, settings)

    def with_matcher(pair: tuple[np.ndarray, np.ndarray]) -> object:
        return matcher(*pair)

    with ThreadPoolExecutor(threads) as pool:
        jobs = {
            "functions": lambda: list(pool.map(with_functions, pairs)),
            "matcher": lambda: list(pool.map(with_matcher, pairs)),
        }
        seconds = interleaved_medians(jobs, REPEATS, time.process_time)
    found = {name: round(value / AT_A_TIME, 4) for name, value in seconds.items()}
    return {**found, "share": round(seconds["matcher"] / seconds["functions"], 3)}


def main() -> None:
    """Measure, print, write."""
    sizes = memory()
    seconds = {}
    for threads in (1, 2):
        seconds[f"{threads} threads"] = speed(threads)
        print(threads, "threads:", seconds[f"{threads} threads"], flush=True)
    speeds = {"images": LARGER, "keypoints": MORE, "processor_seconds_per_pair": seconds}
    memories = {"images": SMALL, "keypoints": FEW, "pairs": PAIRS, f"megabytes_every_{EVERY}": sizes}
    write_result("matcher", {"speed": speeds, "memory": memories})


if __name__ == "__main__":
    main()
