"""A collection on processes of this machine and on Ray: images and pairs per second, and the memory of every process.

    python benchmarks/collection.py [PHOTO FOLDER ...] [--images 200] [--workers 2] [--on local ray] [--model MODEL]

The images are parts of the given photos (default: those of the tests). Each image is matched with the next five, so
that a worker meets more features than it keeps. Commands of the two ways take turns. Memory is the largest that Linux
records (VmHWM) of the command and of its largest child.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from photo_parts import write_photos
from timing import processor, versions, write_result

from matchkernel.runtime.config import PHOTO_MODEL

KEYPOINTS, SIZE, NEXT = 500, (400, 300), 5


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", nargs="*", type=Path)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--on", nargs="+", default=["local", "ray"])
    parser.add_argument("--model", default=PHOTO_MODEL)
    options = parser.parse_args()
    print(f"{options.images} images, {options.workers} workers; {processor()}; {versions()}", flush=True)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_photos(folder / "photos", options.images, options.photos, SIZE)
        shared = ["--workers", options.workers, "--json"]
        rows: dict[str, Any] = {on: {} for on in options.on}
        for on in options.on:
            words = [
                "extract",
                folder / "photos",
                "-o",
                folder / on,
                "--keypoints",
                KEYPOINTS,
                "--model",
                options.model,
            ]
            rows[on]["extract"] = watched([*words, "--on", on, *shared])
        watched(["pairs", folder / options.on[0], "-o", folder / "pairs.txt", "--sequential", NEXT])
        for on in options.on:
            words = ["match-pairs", folder / on, folder / "pairs.txt", "-o", folder / f"{on}.h5", "--geometry", "auto"]
            rows[on]["match-pairs"] = watched([*words, "--on", on, *shared])
        files = [{path.name: path.read_bytes() for path in (folder / on).rglob("*.npz")} for on in options.on]
    same = all(found == files[0] for found in files)
    for on, stages in rows.items():
        for stage, row in stages.items():
            print(f"{on:6} {stage:12} {row}", flush=True)
    print(f"the same features: {same}")
    facts = {"images": options.images, "workers": options.workers, "model": options.model, "keypoints": KEYPOINTS}
    write_result("collection", {**facts, "same_bytes": same, "rows": rows})


def watched(words: list[Any]) -> dict[str, float]:
    """Seconds of a command, what it says of its speed, and the memory of it and of its largest child."""
    start = time.monotonic()
    command = [sys.executable, "-m", "matchkernel", *map(str, words)]
    with tempfile.TemporaryFile("w+") as out, subprocess.Popen(command, stdout=out) as process:
        leader = worker = 0
        while process.poll() is None:
            leader = max(leader, peak(process.pid))
            with suppress(OSError):
                lists = [path.read_text() for path in Path(f"/proc/{process.pid}/task").glob("*/children")]
                worker = max([worker, *(peak(int(child)) for child in " ".join(lists).split())])
            time.sleep(0.05)
        if process.returncode:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
        out.seek(0)
        text = out.read()
    said = json.loads(text) if text.startswith("{") else {}
    rates = {name: round(said[name], 3) for name in ("images_per_second", "pairs_per_second") if name in said}
    return {**rates, "seconds": round(time.monotonic() - start, 1), "leader_mb": leader, "worker_mb": worker}


def peak(process: int) -> int:
    """The largest memory that a process has had, in MB."""
    with suppress(OSError):
        for line in Path(f"/proc/{process}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return round(int(line.split()[1]) * 1024 / 1e6)
    return 0


if __name__ == "__main__":
    main()
