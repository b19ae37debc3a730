"""What one photo and one pair cost: seconds of one core and bytes, for docs/scale.md.

    python benchmarks/collection_costs.py [PHOTOS ...]

In one process with one thread; seconds are those of the processor. They still depend on what else the machine does, so
the costs of the run before are kept beside those of this one. Photos are those of the tests unless given; consecutive
ones are matched, as those of a scene.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from collection_photos import PHOTOS
from describe_speed import processor, versions
from timing import read_result, write_result

from matchkernel.collection.choose_pairs import top_pairs
from matchkernel.collection.extract import ExtractJob, Extractor, Photo, extract_images, find_images
from matchkernel.collection.global_vectors import image_vectors, similarities, vocabulary_for
from matchkernel.collection.match import Matcher, MatchJob, PairTask, match_pairs
from matchkernel.geometry.detect import Detector
from matchkernel.photos.describers import open_recipe
from matchkernel.photos.features import load_features
from matchkernel.photos.files import open_features, read_matches, write_features, write_matches
from matchkernel.photos.pipeline import MatchSettings
from matchkernel.storage.images import read_gray, write_png
from matchkernel.storage.threads import use_threads

MODEL, SEARCHED, LARGE = "light-wide", 3000, (4000, 3000)


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("photos", nargs="*", type=Path)
    places = parser.parse_args().photos or [PHOTOS]
    use_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        costs = measured(Path(folder), places)
    for name, value in costs.items():
        print(f"{name:24} {value:,.6g}", flush=True)
    facts = {
        "processor": processor(),
        "versions": versions(),
        "model": MODEL,
        "keypoints_at_most": Detector().keypoints,
    }
    write_result(
        "collection_costs", {**facts, "costs": costs, "run_before": read_result("collection_costs").get("costs")}
    )


def measured(folder: Path, places: list[Path]) -> dict[str, float]:
    """All unit costs, by name."""
    images = find_images(places)
    rows, out = folder / "rows", folder / "features.h5"
    extractor = Extractor(open_recipe(MODEL, device="cpu").open(), ExtractJob(Detector(), rows))
    photos = [Photo(name, path) for name, path in images.items()]
    list(extractor.each(photos[:1]))  # warm-up
    for path in rows.rglob("*.npz"):
        path.unlink()
    found, extract = timed(lambda: list(extractor.each(photos)))
    _, kept = timed(lambda: extract_images(images, rows, open_recipe(MODEL, device="cpu")))
    each = ((name, load_features(rows / f"{name}.npz")) for name in images)
    _, gather = timed(lambda: write_features(out, each))
    count, files = len(images), open_features(rows)
    vocabulary = vocabulary_for(files)
    vectors, vector = timed(lambda: image_vectors(files, vocabulary))
    random = np.random.default_rng(0)
    many = random.standard_normal((SEARCHED, *vectors.shape[1:]), np.float32).astype(np.float16)
    _, search = timed(lambda: top_pairs([str(number) for number in range(SEARCHED)], many, 20, similarities))
    pairs = list(itertools.pairwise(images))
    tasks = [PairTask(a, b, f"{a} {b}") for a, b in pairs]
    seconds = {}
    for geometry in ("none", "auto"):
        parts = folder / geometry
        parts.mkdir()
        matcher = Matcher(MatchJob(rows, MatchSettings(geometry=geometry), parts), "cpu")
        matcher.match_block(tasks[:1])
        _, seconds[geometry] = timed(lambda matcher=matcher: matcher.match_block(tasks))
    matches = folder / "matches.h5"
    match_pairs(rows, pairs, [matches], MatchSettings(geometry="none"))
    whole = [(read_matches(matches, *pair), len(files.load(pair[0]))) for pair in pairs]
    copies = (
        (replace(found, names=(f"{n}{found.names[0]}", found.names[1])), size)
        for n in range(20)
        for found, size in whole
    )
    _, merge = timed(lambda: write_matches(folder / "many.h5", copies))
    gray = [read_gray(path).size for path in images.values()]
    large = enlarged(next(iter(images.values())), folder / "large.png")
    _, extract_large = timed(lambda: list(extractor.each([Photo("large.png", large)])))
    return {
        "photos": count,
        "photo_pixels": float(np.mean(gray)),
        "photo_bytes": float(np.mean([path.stat().st_size for path in images.values()])),
        "keypoints": float(np.mean([one.keypoints for one in found])),
        "extract_seconds": extract / count,
        "extract_large_seconds": extract_large,
        "gather_seconds": gather / count,
        "check_seconds": kept / count,
        "feature_bytes": out.stat().st_size / count,
        "vector_seconds": vector / count,
        "vector_bytes": float(vectors[0].nbytes),
        "compare_seconds": search / SEARCHED**2,
        "match_seconds": seconds["none"] / len(pairs),
        "verify_seconds": max(0.0, seconds["auto"] - seconds["none"]) / len(pairs),
        "merge_seconds": merge / (20 * len(pairs)),
        "match_bytes": matches.stat().st_size / len(pairs),
    }


def enlarged(photo: Path, path: Path) -> Path:
    """The photo in the size that cameras have: time depends on pixels more than on what they show."""
    write_png(path, cv2.resize(read_gray(photo), LARGE, interpolation=cv2.INTER_CUBIC))
    return path


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """The result, and the seconds of the processor that it took."""
    start = time.process_time()
    return work(), time.process_time() - start


if __name__ == "__main__":
    main()
