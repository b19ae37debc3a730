"""A pair of photos with 2,000 keypoints each: seconds by stage, seconds and memory as a command, and start-up times.

    python benchmarks/match.py [PHOTO PHOTO] [--models MODEL ...] [--one-thread]

Without photos: the stereo pair of the demo, and the same enlarged to 12 megapixels, with 4,000 keypoints, as a command.
The methods take turns in one process; then each runs as a command. With --one-thread, one thread computes and seconds
are those of the processor, so that other programs matter little; stages are not told apart then. To compare with
another version of the package: before_after.py.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from photo_parts import write_enlarged
from timing import interleaved_medians, processor, run_command, versions, write_result

import matchkernel
from matchkernel.data.sample_pair import FOLDER
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import open_describer
from matchkernel.photos.match import parse_filter
from matchkernel.photos.pipeline import MatchSettings, match_images
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.work import use_threads

KEYPOINTS, REPEATS, LARGE_REPEATS = 2000, 7, 3
LARGE_MODELS = ("rootsift", "tiny", PHOTO_MODEL, "light-wide")
METHODS = (
    ("rootsift", "auto", "ratio"),
    *((name, "auto", "ratio") for name in matchkernel.available()),
    (PHOTO_MODEL, "auto", "context"),
    ("light-wide", "auto", "context"),
    (PHOTO_MODEL, "torch", "ratio"),
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
    parser.add_argument("--one-thread", action="store_true")
    options = parser.parse_args()
    if options.one_thread and os.environ.get("OMP_NUM_THREADS") != "1":  # numpy reads it when it is imported
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "OMP_NUM_THREADS": "1"})
    photos = options.photos or [FOLDER / "left.png", FOLDER / "right.png"]
    print(f"{KEYPOINTS:,} keypoints, median of {REPEATS} turns; {processor()}; {versions()}", flush=True)
    methods = [*METHODS, *((model, "auto", "ratio") for model in options.models)]
    result: dict[str, Any] = {"keypoints": KEYPOINTS}
    commands: list[dict[str, float]] = [{} for _ in methods]
    if not options.one_thread:  # before this process grows: Linux counts its memory as that of its children
        jobs = {name: partial(run_command, words) for name, words in START_UP.items()}
        result["start_up"] = {name: round(seconds, 3) for name, seconds in interleaved_medians(jobs).items()}
        for name, seconds in result["start_up"].items():
            print(f"{seconds:6.2f} s  {name}", flush=True)
        result["large"] = {} if options.photos else large_commands()
        commands = [command(photos, *method) for method in methods]
    rows = measured(photos, methods, options.one_thread)
    for row, found in zip(rows, commands, strict=True):
        row |= {"times_rootsift": round(row["seconds"] / rows[0]["seconds"], 2), **found}
        stages = ", ".join(f"{stage} {seconds:.3f}" for stage, seconds in row.get("stages", {}).items())
        print(f"{row['method']:28} {row['seconds']:.3f} s, {row['times_rootsift']:.2f} x RootSIFT  {stages}")
        print("".join(f"{'':28} {name} {value:.2f}\n" for name, value in found.items()), end="", flush=True)
    result["rows"] = rows
    machine = "" if platform.machine() == "x86_64" else f"_{platform.machine()}"
    write_result(f"photo_pair{'_one_thread' if options.one_thread else ''}{machine}", result)


def measured(photos: list[Path], methods: list[tuple[str, str, str]], one_thread: bool) -> list[dict[str, Any]]:
    """Seconds of each method, and by stage."""
    clock = time.process_time if one_thread else time.perf_counter
    if one_thread:
        use_threads(1)
    describers = [open_describer(model, engine=engine) for model, engine, _ in methods]
    settings = [MatchSettings(Detector(keypoints=KEYPOINTS), filter=parse_filter(keep)) for *_, keep in methods]
    runs: list[list[dict[str, float]]] = [[] for _ in methods]
    for turn in range(REPEATS + 1):
        for describer, chosen, own in zip(describers, settings, runs, strict=True):
            start = clock()
            result = match_images(*photos, describer, chosen)
            if turn:  # the first is a warm-up
                own.append({**result.seconds, "whole": clock() - start})
    rows = []
    for (_, _, keep), describer, own in zip(methods, describers, runs, strict=True):
        medians = {stage: statistics.median(run[stage] for run in own) for stage in own[0]}
        label = describer.label + (", context" if keep == "context" else "")
        row: dict[str, Any] = {"method": label, "seconds": medians.pop("whole")}
        rows.append(row if one_thread else {**row, "stages": medians})
    return rows


def command(photos: list[Path], model: str, engine: str, keep: str) -> dict[str, float]:
    """Seconds and megabytes of a method as a command."""
    words = ["-m", "matchkernel", "match", *photos, "--keypoints", KEYPOINTS]
    words += ["--model", model, "--engine", engine, "--filter", keep]
    found = run_command([str(word) for word in words])
    return {"command": found["seconds"], "megabytes": found["megabytes"]}


def large_commands() -> dict[str, dict[str, float]]:
    """Medians of the command for the pair of 12 megapixels, with all defaults but the model."""
    found: dict[str, list[dict[str, float]]] = {model: [] for model in LARGE_MODELS}
    with tempfile.TemporaryDirectory() as folder:
        photos = [str(path) for path in write_enlarged(Path(folder))]
        for _ in range(LARGE_REPEATS):
            for model, own in found.items():
                own.append(run_command(["-m", "matchkernel", "match", *photos, "--model", model]))
    keys = ("seconds", "megabytes")
    medians = {model: {key: statistics.median(run[key] for run in own) for key in keys} for model, own in found.items()}
    for model, row in medians.items():
        print(f"{model:28} 12 megapixels, as a command {row['seconds']:.2f} s, {row['megabytes']:.0f} MB", flush=True)
    return medians


if __name__ == "__main__":
    main()
