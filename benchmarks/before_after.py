"""Two versions of the package in one run: describing, matching, a collection, a large photo, training, as users do.

    python benchmarks/before_after.py CHECKOUT [--only describe match collection page training] [--repeats 5]

CHECKOUT is a folder with the version before, such as one that `git worktree add` made. Every job runs in a process of
its own, the two versions in turns, so that a slow moment of the machine affects both. A ratio is now / before: below 1
is faster. Printed are medians over the turns, and the smallest and largest ratio of a turn.
"""

import argparse
import json
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from photo_parts import write_enlarged, write_photos
from timing import ROOT, processor, run_command, versions, write_result

from matchkernel.data.sample_pair import FOLDER

KEYPOINTS, PHOTOS, WORKERS = 2000, 12, 2
DESCRIBE = """
import json, time
import numpy, matchkernel
patches = numpy.random.default_rng(0).integers(0, 256, ({patches}, 32, 32), dtype=numpy.uint8)
model = matchkernel.load("{model}")
device, clock = ("cuda", time.perf_counter) if "{engine}" == "cuda-half" else ("cpu", time.process_time)
matchkernel.describe(patches[:256], model, engine="{engine}", device=device)
start = clock()
matchkernel.describe(patches, model, engine="{engine}", device=device)
print(json.dumps(clock() - start))
"""
LARGE_PHOTO = """
import io, json, time
from PIL import Image
from matchkernel.explore.photos import decode
from matchkernel.explore.settings import ExploreSettings
file = io.BytesIO()
Image.open("{photo}").resize((8064, 6048)).save(file, "JPEG", quality=90)
start = time.process_time()
decode(file.getvalue(), "photo", ExploreSettings())
print(json.dumps(time.process_time() - start))
"""

Job = Callable[[Path, Path], dict[str, float]]  # of a checkout, in an empty folder -> what was measured


def describe(model: str, engine: str, patches: int, checkout: Path, folder: Path) -> dict[str, float]:
    """Seconds to describe patches, without starting Python and loading weights."""
    code = DESCRIBE.format(model=model, engine=engine, patches=patches)
    return {"seconds": float(json.loads(run_command(["-c", code], checkout, folder)["output"]))}


def match(model: str, checkout: Path, folder: Path) -> dict[str, float]:
    """Seconds and memory of the whole command for two photos."""
    photos = [FOLDER / "left.png", FOLDER / "right.png"]
    return cli(checkout, folder, "match", *photos, "--model", model, "--keypoints", KEYPOINTS, "--json")


def large_photo(checkout: Path, folder: Path) -> dict[str, float]:
    """Processor seconds until the page has a JPEG of 48 megapixels, which it shrinks by 2."""
    code = LARGE_PHOTO.format(photo=FOLDER / "left.png")
    return {"seconds": float(json.loads(run_command(["-c", code], checkout, folder)["output"]))}


def match_large(model: str, checkout: Path, folder: Path) -> dict[str, float]:
    """Seconds and memory of the command for two photos of 12 megapixels, with all defaults but the model."""
    return cli(checkout, folder, "match", *write_enlarged(folder), "--model", model, "--json")


def collection(checkout: Path, folder: Path) -> dict[str, float]:
    """Seconds of the commands that extract and match a folder of photos."""
    write_photos(folder / "photos", PHOTOS)
    extract = ("extract", folder / "photos", "-o", folder / "features", "--workers", WORKERS, "--keypoints", KEYPOINTS)
    steps = {"extract": extract}
    steps["pairs"] = ("pairs", folder / "features", "-o", folder / "pairs.txt", "--exhaustive")
    matches = ("match-pairs", folder / "features", folder / "pairs.txt", "-o", folder / "matches.h5")
    steps["match-pairs"] = (*matches, "--geometry", "auto", "--workers", WORKERS)
    return {name: cli(checkout, folder, *step)["seconds"] for name, step in steps.items()}


def training(steps: int, pairs: int, device: str, checkout: Path, folder: Path) -> dict[str, float]:
    """Seconds of a training run, from the command to its weights."""
    settings = [f"sampling.steps={steps}", f"sampling.pairs={pairs}", f"loop.validate_every={steps}"]
    settings += [f"loop.save_every={steps}", "data.synthetic.points=600", "data.synthetic.validation_points=60"]
    options = [part for setting in settings for part in ("--set", setting)]
    return cli(
        checkout, folder, "train", ROOT / "configs/tiny.toml", "-o", folder / "run", "--device", device, *options
    )


def cli(checkout: Path, folder: Path, *words: object) -> dict[str, float]:
    """A command of `matchkernel`."""
    found = run_command(["-m", "matchkernel", *map(str, words)], checkout, folder)
    return {name: found[name] for name in ("seconds", "megabytes")}


def jobs_of(gpu: bool) -> dict[str, Job]:
    """What is measured, by name."""
    if gpu:
        found: dict[str, Job] = {
            f"describe, {model}, cuda-half": partial(describe, model, "cuda-half", 400_000)
            for model in ("light", "tiny")
        }
        return {**found, "training, 2,000 steps of 512 pairs": partial(training, 2000, 512, "cuda")}
    found = {
        f"describe, {model}, {engine}": partial(describe, model, engine, count)
        for model, engine, count in (
            ("light", "torch", 500),
            ("light", "onnx-int8", 2000),
            ("tiny", "onnx-int8", 10_000),
        )
    }
    found |= {f"match, {model}": partial(match, model) for model in ("light-wide", "tiny", "rootsift")}
    found |= {f"match 12 megapixels, {model}": partial(match_large, model) for model in ("light-wide", "tiny")}
    found |= {"collection": collection, "page, 48 megapixels": large_photo}
    return {**found, "training, 40 steps": partial(training, 40, 64, "cpu")}


def main() -> None:
    """Measure, print, write benchmarks/results/before_after.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="checkout of the version before")
    parser.add_argument("--only", nargs="+", default=[""], help="jobs whose name contains one of these")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--gpu", action="store_true", help="the jobs of a GPU instead")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve(), "now": ROOT}
    print(f"medians of {options.repeats} turns; {processor()}; {versions()}", flush=True)
    results: dict[str, dict[str, float]] = {}
    for name, job in jobs_of(options.gpu).items():
        if not any(part in name for part in options.only):
            continue
        turns: dict[str, list[dict[str, float]]] = {version: [] for version in checkouts}
        for turn in range(options.repeats + 1):  # the first fills the caches of the disk
            for version in list(checkouts)[:: 1 if turn % 2 else -1]:
                with tempfile.TemporaryDirectory() as folder:
                    found = job(checkouts[version], Path(folder))
                if turn:
                    turns[version].append(found)
        for key in turns["now"][0]:
            before, now = ([found[key] for found in turns[version]] for version in ("before", "now"))
            ratios = [ours / theirs for ours, theirs in zip(now, before, strict=True)]
            row = {"before": statistics.median(before), "now": statistics.median(now)}
            row |= {"ratio": row["now"] / row["before"], "smallest": min(ratios), "largest": max(ratios)}
            results[f"{name}: {key}"] = {label: round(value, 3) for label, value in row.items()}
            spread = f"{row['smallest']:.3f} to {row['largest']:.3f}"
            print(
                f"{name + ': ' + key:46} {row['before']:9.3f} {row['now']:9.3f}  {row['ratio']:.3f} ({spread})",
                flush=True,
            )
    write_result("before_after", {"repeats": options.repeats, "jobs": results})


if __name__ == "__main__":
    main()
