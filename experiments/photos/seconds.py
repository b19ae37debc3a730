"""Seconds per photo: detection for every way to fill the budget, detection and description for every method.

    python experiments/photos/seconds.py DATA --weights BASELINES

The median over photos of the validation scenes, in processor time of one thread, which other work on the machine hardly
changes. Rows that are there are not measured again. Methods are measured at the keypoints that step 1 took, once it is
there.
"""

import argparse
import platform
import statistics
import time
from pathlib import Path

import torch
from candidates import (
    BEFORE,
    DESDIS,
    FRAMES,
    MAGNIFICATIONS,
    OURS,
    PEERS,
    SCENES,
    SMALLER_DESDIS,
    Candidate,
    keypoint_settings,
)
from choose import spec_of
from measured import RESULTS, read
from rules import taken_keypoints

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError
from matchkernel.evaluation.photos.work import threads
from matchkernel.storage.images import read_colour, read_gray

THREADS, EVERY, DETECT = 1, 3, "detect"


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights", type=Path, default=Path(), help="folder of weights")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results, read and written")
    parser.add_argument("--only", nargs="+", default=[""], help="only candidates whose name contains one of these")
    parser.add_argument("--no-peers", action="store_true", help="the extra `peers` is not installed")
    options = parser.parse_args()
    options.device = "cpu"
    photos = [path for scene in SCENES["validation"] for path in photos_of(options.data / "scenes" / scene)]
    target = read("seconds", options.results)
    wanted = [Candidate(DETECT, changes) for changes in keypoint_settings().values()]
    wanted += [Candidate(name, BEFORE) for name in ("dual", "sift", "rootsift", DESDIS)]
    if all(Candidate(DETECT, c).key in target.rows for c in keypoint_settings().values()):
        now = taken_keypoints(options.results)
        wanted += [Candidate(name, now) for name in ("sift", "rootsift", DESDIS, *SMALLER_DESDIS, *OURS)]
        wanted += [
            Candidate("light-wide", {**now, "magnification": MAGNIFICATIONS[0], **changes})
            for changes in FRAMES.values()
        ]
        wanted += [] if options.no_peers else [Candidate(name) for name in PEERS]
    target.about = {"threads": THREADS, "photos": len(photos), "machine": platform.machine()}
    target.about["torch"] = torch.__version__
    for candidate in wanted:
        if candidate.key not in target.rows and any(part in candidate.key for part in options.only):
            with threads(THREADS):
                target.rows[candidate.key] = {"seconds": round(seconds_of(candidate, photos, options), 4)}
            target.write()
            print(f"{candidate.key}: {target.rows[candidate.key]['seconds']:.2f} s", flush=True)


def photos_of(scene: Path) -> list[Path]:
    """Some of the photos of a scene."""
    folder = scene / "images"
    if not folder.is_dir():
        raise FileError(f"{folder}: no such folder")
    return sorted(path for path in folder.iterdir() if path.is_file())[::EVERY]


def seconds_of(candidate: Candidate, photos: list[Path], options: argparse.Namespace) -> float:
    """The median over photos, without reading them; the first is seen twice, as a first run also loads and plans."""
    found = []
    method = None if candidate.method == DETECT else spec_of(candidate, options).open()
    for path in (photos[0], *photos):
        gray, colour = read_gray(path), read_colour(path)
        start = time.process_time()
        if method is None:
            candidate.detector.detect(gray)
        else:
            method.extract(colour, path.name)
        found.append(time.process_time() - start)
    return statistics.median(found[1:])


if __name__ == "__main__":
    run_script(main)
