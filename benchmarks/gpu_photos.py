"""Photos on a GPU, with keypoints found by OpenCV on the CPU (before) and by torch on the GPU (after).

    python benchmarks/gpu_photos.py [--models tiny small-wide] [--repeats 5] [--copies 400 48] [--profile]

The photos are the stereo pair of the demo, with 2,000 keypoints, and the same enlarged to 12 megapixels, with 4,000, as
JPEGs. Measured are, for each size, before and after in turns: a photo and a pair by stage (a GPU works on while the
processor goes on: cutting is waited for in describing); detection alone, and how many of its keypoints both find; a
pair as a new process, also without the GPU, with the most memory that it takes; and a folder of copies of a photo, in
photos per second, beside decoding alone with as many threads. Results on a GPU: results/photos_gpu.json.
"""

import argparse
import json
import statistics
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch
from photo_parts import write_enlarged
from timing import interleaved_medians, print_kernels, processor, run_command, versions, write_result

from matchkernel.collection.extract import extract_images
from matchkernel.geometry import device_dog
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import Describer, open_describer
from matchkernel.photos.pipeline import MatchSettings, match_images
from matchkernel.storage.images import read_gray
from matchkernel.storage.work import in_threads, recording, spare_threads

MODELS = ("tiny", "small-wide", "light-wide", "dual", "rootsift")
FOLDER_MODELS = ("rootsift", "tiny", "small-wide")
DOGS = ("opencv", "torch")
SIZES = {370_500: 2000, 12_000_000: 4000}  # pixels: keypoints
OF_A_PHOTO = ("read", "detect", "cut", "describe")
COMMAND = """
import json, sys, matchkernel
left, right, model, device, keypoints, dog = sys.argv[1:]
matchkernel.match_images(left, right, model, device=device, keypoints=int(keypoints), dog=dog)
if device != "cpu":
    import torch
    print(json.dumps({"gpu_megabytes": torch.cuda.max_memory_reserved() / 2**20}))
"""


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--models", nargs="+", default=MODELS)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--copies", type=int, nargs=2, default=[400, 48], help="of the small and of the large photo")
    parser.add_argument(
        "--pixels", type=int, nargs="+", default=list(SIZES), choices=list(SIZES), help="only these sizes"
    )
    parser.add_argument("--profile", action="store_true", help="also print the kernels of a detection")
    parser.add_argument("--at-once", type=int, default=1, help="photos in detection on the GPU, of several threads")
    options = parser.parse_args()
    if options.at_once > 1:  # is one photo enough to keep the GPU busy?
        device_dog._one_photo = threading.BoundedSemaphore(options.at_once)
    name = torch.cuda.get_device_name() if options.device.startswith("cuda") else "no GPU"
    print(f"{name}, median of {options.repeats} turns; {processor()}; {versions()}", flush=True)
    result: dict[str, Any] = {
        "device": name,
        "at_once": options.at_once,
        "threads": spare_threads(),
        "opencv": cv2.__version__,
        "sizes": {},
    }
    with tempfile.TemporaryDirectory() as place:
        for pixels, copies in zip(SIZES, options.copies, strict=True):
            if pixels not in options.pixels:
                continue
            folder = Path(place) / str(pixels)
            folder.mkdir()
            photos = write_enlarged(folder, pixels)
            keypoints = SIZES[pixels]
            row: dict[str, Any] = {"keypoints": keypoints}
            row["commands"] = commands(
                photos, keypoints, options.device, options.repeats
            )  # while this process is small
            row["detect"] = detections(photos, keypoints, options)
            row["pairs"] = {model: pairs(photos, keypoints, model, options) for model in options.models}
            models = [model for model in FOLDER_MODELS if model in options.models]
            row["folder"] = folders(photos[0], keypoints, models, options.device, copies)
            result["sizes"][f"{pixels / 1e6:.1f} megapixels"] = row
    if options.device.startswith("cuda"):
        write_result("photos_gpu", rounded(result))


def commands(photos: list[Path], keypoints: int, device: str, repeats: int) -> dict[str, dict[str, float]]:
    """Seconds and megabytes of a pair with the default model in a new process, medians of at most three."""
    ways = {"no GPU": ("cpu", "opencv"), **{dog: (device, dog) for dog in DOGS}}
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for _ in range(min(repeats, 3)):
        for way, (place, dog) in ways.items():
            words = ["-c", COMMAND, *map(str, photos), "small-wide", place, str(keypoints), dog]
            run = run_command(words)
            found[way].append(run | json.loads(run.pop("output") or "{}"))
    rows = {way: {key: statistics.median(run[key] for run in runs) for key in runs[0]} for way, runs in found.items()}
    show("command", rows)
    return rows


def detections(photos: list[Path], keypoints: int, options: argparse.Namespace) -> dict[str, Any]:
    """Seconds of finding the keypoints of one photo, all and those of the budget, and the share that both find."""
    gray, row = read_gray(photos[0]), {}
    for name, number in (("budget", keypoints), ("all", 0)):
        jobs: dict[str, Callable[[], object]] = {
            dog: partial(Detector(number, dog=dog).detect, gray, device=options.device) for dog in DOGS
        }
        row[name] = {"seconds": interleaved_medians(jobs, options.repeats)}
        before, after = (rows_of(Detector(number, dog=dog), gray, options.device) for dog in DOGS)
        again = rows_of(Detector(number, dog="torch"), gray, options.device)
        row[name] |= {"keypoints": [len(before), len(after)], "same_again": np.array_equal(after, again)}
        row[name]["shared"] = [shared(before, after), shared(after, before)]
        if options.device.startswith("cuda"):
            torch.cuda.reset_peak_memory_stats()
            jobs["torch"]()
            row[name]["gpu_megabytes"] = torch.cuda.max_memory_allocated() / 2**20
            if options.profile:
                print_kernels(jobs["torch"])
    show("detect", row)
    return row


def rows_of(detector: Detector, gray: np.ndarray, device: str) -> np.ndarray:
    """(K, 5) x, y, size, angle, response of all keypoints."""
    points = detector.detect_points(gray, device=device)
    return np.array([(*point.pt, point.size, point.angle, point.response) for point in points]).reshape(-1, 5)


def shared(rows: np.ndarray, others: np.ndarray) -> float:
    """Share of the rows that others have: to 0.01 px, 0.1 % of size and response, 0.1 degrees."""
    others, found = others[np.argsort(others[:, 0])], 0
    starts, ends = (np.searchsorted(others[:, 0], rows[:, 0] + step) for step in (-0.01, 0.01))
    for (_, y, size, angle, response), start, end in zip(rows, starts, ends, strict=True):
        near = others[start:end]
        turn = np.abs((near[:, 3] - angle + 180) % 360 - 180)
        is_alike = (np.abs(near[:, 2] / size - 1) < 1e-3) & (np.abs(near[:, 4] / response - 1) < 1e-3)
        found += bool(((np.abs(near[:, 1] - y) < 0.01) & is_alike & (turn < 0.1)).any())
    return found / max(1, len(rows))


def pairs(photos: list[Path], keypoints: int, model: str, options: argparse.Namespace) -> dict[str, Any]:
    """Medians of the seconds of a pair and of a photo, and by stage; the most memory of the GPU."""
    describer = open_describer(model, device=options.device)
    settings = {dog: MatchSettings(Detector(keypoints, dog=dog)) for dog in DOGS}
    runs: dict[str, list[dict[str, float]]] = {dog: [] for dog in DOGS}
    for turn in range(options.repeats + 1):
        for dog, chosen in settings.items():
            if options.device.startswith("cuda"):
                torch.cuda.reset_peak_memory_stats()
            found = match_images(*photos, describer, chosen)
            if turn:  # the first is a warm-up
                run = {**found.seconds, "pair": sum(found.seconds.values()), "inliers": float(found.inliers.sum())}
                run["photo"] = sum(found.seconds[stage] for stage in OF_A_PHOTO) / 2
                if options.device.startswith("cuda"):
                    run["gpu_megabytes"] = torch.cuda.max_memory_allocated() / 2**20
                runs[dog].append(run)
    rows = {dog: {key: statistics.median(run[key] for run in own) for key in own[0]} for dog, own in runs.items()}
    show(describer.label, rows)
    return {"label": describer.label, **rows}


def folders(photo: Path, keypoints: int, models: list[str], device: str, copies: int) -> dict[str, Any]:
    """Photos per second: of decoding alone, and of extracting, in the second of two runs, with its seconds by stage."""
    with tempfile.TemporaryDirectory() as place:
        paths = {f"{number:05}.jpg": Path(place) / "photos" / f"{number:05}.jpg" for number in range(copies)}
        (Path(place) / "photos").mkdir()
        for path in paths.values():
            path.write_bytes(photo.read_bytes())
        row: dict[str, Any] = {"copies": copies}
        decode = lambda: sum(1 for _ in in_threads(read_gray, paths.values(), spare_threads()))  # noqa: E731
        row["decode"] = copies / interleaved_medians({"decode": decode}, 1)["decode"]
        for model in models:
            describer = open_describer(model, device=device)
            jobs = {
                dog: partial(extracted, paths, Path(place), describer, Detector(keypoints, dog=dog)) for dog in DOGS
            }
            row[model] = {dog: {"photos_per_second": copies / s} for dog, s in interleaved_medians(jobs, 1).items()}
            for dog, job in jobs.items():
                row[model][dog]["stages"] = job()
    show("folder, photos per second", row)
    return row


def extracted(paths: dict[str, Path], place: Path, describer: Describer, detector: Detector) -> dict[str, float]:
    """Extract the features of a folder into a new one; seconds by stage, divided between those that run together."""
    with tempfile.TemporaryDirectory(dir=place) as out, recording() as stages:
        extract_images(paths, out, describer, detector)
    return stages.rounded()


def show(title: str, rows: dict[str, Any]) -> None:
    """Print a row as it is measured."""
    print(f"{title}: {json.dumps(rounded(rows))}", flush=True)


def rounded(value: Any) -> Any:
    """Numbers with four digits after the point."""
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
