"""A pair of photos with 2,000 keypoints each: seconds by stage, seconds and memory as a command, and start-up times.

    python benchmarks/match.py [PHOTO PHOTO] [--models MODEL ...]

Without photos: the stereo pair of the demo. The methods take turns in one process; then each runs as a command. To
compare with another version of the package: before_after.py.
"""

import argparse
import statistics
import time
from functools import partial
from pathlib import Path
from typing import Any

from timing import interleaved_medians, processor, run_command, versions, write_result

from matchkernel.data.sample_pair import FOLDER
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import open_describer
from matchkernel.photos.match import parse_filter
from matchkernel.photos.pipeline import MatchSettings, match_images

KEYPOINTS, REPEATS = 2000, 9
METHODS = (
    ("rootsift", "auto", "ratio"),
    ("tiny", "auto", "ratio"),
    ("light-wide", "auto", "ratio"),
    ("light-wide", "auto", "context"),
    ("light-wide", "torch", "ratio"),
)
START_UP = {
    "python -c pass": ("-c", "pass"),
    'python -c "import torch"': ("-c", "import torch"),
    "matchkernel --help": ("-m", "matchkernel", "--help"),
    "matchkernel info": ("-m", "matchkernel", "info"),
    "matchkernel match --help": ("-m", "matchkernel", "match", "--help"),
}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--models", nargs="*", default=[], help="more models, with engine auto")
    options = parser.parse_args()
    photos = options.photos or [FOLDER / "left.png", FOLDER / "right.png"]
    print(f"{KEYPOINTS:,} keypoints, median of {REPEATS} turns; {processor()}; {versions()}", flush=True)
    rows = measured(photos, [*METHODS, *((model, "auto", "ratio") for model in options.models)])
    for row in rows:
        row["times_rootsift"] = round(row["seconds"] / rows[0]["seconds"], 2)
        stages = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in row["stages"].items())
        print(f"{row['method']:24} {row['seconds']:.3f} s, {row['times_rootsift']:.2f} x RootSIFT ({stages}); ", end="")
        print(f"as a command {row['command']:.2f} s, {row['megabytes']:.0f} MB", flush=True)
    jobs = {name: partial(run_command, command) for name, command in START_UP.items()}
    start_up = {name: round(seconds, 3) for name, seconds in interleaved_medians(jobs).items()}
    for name, seconds in start_up.items():
        print(f"{seconds:6.2f} s  {name}")
    write_result("photo_pair", {"keypoints": KEYPOINTS, "rows": rows, "start_up": start_up})


def measured(photos: list[Path], methods: list[tuple[str, str, str]]) -> list[dict[str, Any]]:
    """Seconds of each method, whole, by stage and as a command."""
    describers = [open_describer(model, engine=engine) for model, engine, _ in methods]
    settings = [MatchSettings(Detector(keypoints=KEYPOINTS), filter=parse_filter(keep)) for *_, keep in methods]
    runs: list[list[dict[str, float]]] = [[] for _ in methods]
    for turn in range(REPEATS + 1):
        for describer, chosen, own in zip(describers, settings, runs, strict=True):
            start = time.perf_counter()
            result = match_images(*photos, describer, chosen)
            if turn:  # the first is a warm-up
                own.append({**result.seconds, "whole": time.perf_counter() - start})
    rows = []
    for (model, engine, keep), describer, own in zip(methods, describers, runs, strict=True):
        medians = {stage: statistics.median(run[stage] for run in own) for stage in own[0]}
        words = ["-m", "matchkernel", "match", *photos, "--keypoints", KEYPOINTS, "--model", model, "--engine", engine]
        command = run_command([str(word) for word in [*words, "--filter", keep]])
        row = {
            "method": describer.label + (", context" if keep == "context" else ""),
            "seconds": medians.pop("whole"),
            "stages": medians,
        }
        rows.append({**row, "command": command["seconds"], "megabytes": command["megabytes"]})
    return rows


if __name__ == "__main__":
    main()
