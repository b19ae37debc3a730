"""A pair of photos with 2,000 keypoints each, end to end: seconds by stage, and as multiples of RootSIFT's.

    python benchmarks/photo_pair.py [PHOTO PHOTO] [--models MODEL ...]

Without photos: the stereo pair of the demo. The methods take turns in one process; then each runs once as a command.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
from describe_speed import processor, versions
from timing import write_result

import matchkernel
from matchkernel.data.sample_pair import load_motorcycle
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import open_describer
from matchkernel.photos.pipeline import STAGES, MatchSettings, match_images
from matchkernel.storage.images import write_png

KEYPOINTS, REPEATS = 2000, 9
DEFAULT, FIRST = "light-wide", "rootsift"


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--models", nargs="*", default=[name for name in ("tiny",) if name in matchkernel.available()])
    parser.add_argument("--engine", default="auto", help="of these models")
    options = parser.parse_args()
    methods = [
        (FIRST, "auto"),
        *((model, options.engine) for model in options.models),
        (DEFAULT, "auto"),
        (DEFAULT, "torch"),
    ]
    print(f"{KEYPOINTS:,} keypoints, median of {REPEATS} turns; {processor()}; {versions()}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        photos = options.photos or demo_pair(Path(folder))
        rows = measured(photos, methods)
        for (model, engine), row in zip(methods, rows, strict=True):
            row["command"] = command_seconds(photos, model, engine)
    for row in rows:
        row["times_rootsift"] = round(row["seconds"] / rows[0]["seconds"], 2)
        row["times_rootsift_as_a_command"] = round(row["command"] / rows[0]["command"], 2)
        stages = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in row["stages"].items())
        print(f"{row['method']:28} {row['seconds']:.3f} s, {row['times_rootsift']:.2f} x RootSIFT ({stages}); ", end="")
        print(f"as a command {row['command']:.2f} s, {row['times_rootsift_as_a_command']:.2f} x RootSIFT", flush=True)
    auto, exact = rows[-2:]
    print(f"{DEFAULT} with engine auto is {exact['seconds'] / auto['seconds']:.2f} times as fast as with torch")
    write_result("photo_pair", {"processor": processor(), "versions": versions(), "keypoints": KEYPOINTS, "rows": rows})


def demo_pair(folder: Path) -> list[Path]:
    """Files of the stereo pair of the demo."""
    paths = [folder / "left.png", folder / "right.png"]
    for path, pixels in zip(paths, load_motorcycle(), strict=False):
        write_png(path, pixels)
    return paths


def measured(photos: list[Path], methods: list[tuple[str, str]]) -> list[dict[str, Any]]:
    """Seconds of each method, whole and by stage."""
    describers = [open_describer(model, engine=engine) for model, engine in methods]
    settings = MatchSettings(Detector(keypoints=KEYPOINTS))
    found: list[list[dict[str, float]]] = [[] for _ in methods]
    for turn in range(REPEATS + 1):
        for describer, runs in zip(describers, found, strict=True):
            start = time.perf_counter()
            result = match_images(*photos, describer, settings)
            if turn:  # the first is a warm-up
                runs.append({**result.seconds, "whole": time.perf_counter() - start})
    return [
        {
            "method": describer.label,
            "seconds": statistics.median(run["whole"] for run in runs),
            "stages": {stage: float(np.median([run[stage] for run in runs])) for stage in STAGES},
        }
        for describer, runs in zip(describers, found, strict=True)
    ]


def command_seconds(photos: list[Path], model: str, engine: str) -> float:
    """Seconds of `matchkernel match`, with the start of Python and reading the weights."""
    command = [sys.executable, "-m", "matchkernel", "match", *map(str, photos), "--keypoints", str(KEYPOINTS)]
    start = time.perf_counter()
    subprocess.run([*command, "--model", model, "--engine", engine], check=True, capture_output=True)
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
