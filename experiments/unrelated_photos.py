"""Does `match` tell photos of one scene from photos of two, and which geometry does it find?

Related are two photos of one scene that share 15 or more points of its COLMAP model; unrelated are any two photos of
different scenes. Each pair is matched with the defaults of `matchkernel match`. A related pair is told right if a model
is found, an unrelated one if none is.

    python experiments/unrelated_photos.py SCENES/castle SCENES/fox --model rootsift light --cache CACHE --out told.json

Features are kept in the cache, one file per photo, and a run that was interrupted uses them again.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import combinations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import torch

import matchkernel
from matchkernel.cli.console import run_script
from matchkernel.collection.extract import extract_images
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.scenes import EvaluationScene, read_scene
from matchkernel.photos.extract import open_describer
from matchkernel.photos.features import Features, load_features
from matchkernel.photos.match import parse_filter
from matchkernel.photos.pipeline import MatchSettings, match_features
from matchkernel.storage.files import check_output, replacing
from matchkernel.storage.settings import to_dict

ONE_PLACE = ({"castle", "fountain"},)  # scenes that show the same buildings, and are not compared with each other


@dataclass(frozen=True)
class PhotoPair:
    """Two photos, named "<scene>/<image>"."""

    a: str
    b: str
    related: bool


def main() -> None:
    """Match all pairs and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="+", help="folders with images/ and sparse/")
    parser.add_argument("--model", nargs="+", default=["rootsift"], help="names or files of weights, or sift")
    parser.add_argument("--cache", type=Path, required=True, help="folder for the features")
    parser.add_argument("--images", type=int, default=6, help="maximum number of photos per scene, spread evenly")
    parser.add_argument("--keypoints", type=int, default=MatchSettings().detector.keypoints)
    parser.add_argument("--filter", default=str(MatchSettings().filter))
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON file to write, with all pairs")
    chosen = parser.parse_args()
    if chosen.images < 2 or chosen.processes < 1:
        parser.error("--images must be 2 or more, and --processes 1 or more")
    if chosen.out:
        check_output(chosen.out, *chosen.scenes)
    start = time.perf_counter()
    plain = MatchSettings(filter=parse_filter(chosen.filter))
    settings = replace(plain, detector=replace(plain.detector, keypoints=chosen.keypoints))
    scenes = [read_scene(folder) for folder in chosen.scenes]
    photos = {f"{scene.name}/{name}": path for scene in scenes for name, path in some_images(scene, chosen.images)}
    pairs = list(pairs_of(scenes, set(photos)))
    if not pairs:
        raise ArgumentError("no two of these photos can be compared: give more scenes or more --images")
    rows = []
    for model in chosen.model:
        describer = open_describer(model)
        folder = chosen.cache / describer.name / f"{chosen.keypoints} keypoints"
        skipped = extract_images(photos, folder, describer, settings.detector, say=print).skipped
        asked = [pair for pair in pairs if not {pair.a, pair.b} & set(skipped)]
        ask = partial(told, settings=settings, folder=folder)
        if chosen.processes == 1:
            found = [ask(pair) for pair in asked]
        else:
            fresh = get_context("spawn")  # a copy of a process whose torch has threads would hang
            with ProcessPoolExecutor(chosen.processes, fresh, _use_one_thread) as pool:
                found = list(pool.map(ask, asked, chunksize=16))
        rows += [{"model": describer.name, **row} for row in found]
        print(f"{describer.name}: {len(asked)} pairs", flush=True)
    summary = summarised(rows, chosen.filter)
    print(*summary, sep="\n")
    if chosen.out:
        facts = {
            "settings": {**to_dict(settings.detector), "filter": chosen.filter, "geometry": settings.geometry},
            "scenes": [scene.name for scene in scenes],
            "summary": summary,
            "versions": {"matchkernel": matchkernel.__version__, "opencv": cv2.__version__, "numpy": np.__version__},
            "machine": platform.machine(),
            "seconds": round(time.perf_counter() - start),
        }
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        with replacing(chosen.out) as part:
            part.write_text(json.dumps(facts, indent=1)[:-2] + f',\n "pairs": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def some_images(scene: EvaluationScene, most: int) -> Iterator[tuple[str, Path]]:
    """At most this many images of a scene, spread evenly over their names."""
    names = sorted(scene.images)
    chosen = sorted(set(np.linspace(0, len(names) - 1, min(most, len(names))).round().astype(int).tolist()))
    return ((names[number], scene.images[names[number]]) for number in chosen)


def pairs_of(scenes: list[EvaluationScene], photos: set[str]) -> Iterator[PhotoPair]:
    """Related pairs of every scene, then every pair of photos across two scenes."""
    for scene in scenes:
        named = [(f"{scene.name}/{a}", f"{scene.name}/{b}") for a, b in scene.pairs]
        yield from (PhotoPair(a, b, related=True) for a, b in named if {a, b} <= photos)
    for a, b in combinations(sorted(photos), 2):
        places = {a.partition("/")[0], b.partition("/")[0]}
        if len(places) == 2 and not any(places <= same for same in ONE_PLACE):
            yield PhotoPair(a, b, related=False)


def told(pair: PhotoPair, settings: MatchSettings, folder: Path) -> dict[str, Any]:
    """What `match` says about a pair."""
    found = match_features(_features(folder, pair.a), _features(folder, pair.b), settings)
    assert found.verification is not None
    significance = found.verification.significance
    return {
        "a": pair.a,
        "b": pair.b,
        "related": pair.related,
        "matches": len(found.matches),
        "inliers": int(found.inliers.sum()),
        "geometry": found.geometry,
        "significance": None if significance is None else round(significance, 1),
    }


def summarised(rows: list[dict[str, Any]], filter_: str) -> list[dict[str, str]]:
    """By model: how many related and unrelated pairs, the share of each told right, and which geometries were found."""
    found = []
    for model in dict.fromkeys(row["model"] for row in rows):
        related, unrelated = (
            [row["geometry"] for row in rows if (row["model"], row["related"]) == (model, kind)]
            for kind in (True, False)
        )
        found.append(
            {
                "model": model,
                "filter": filter_,
                "related": str(len(related)),
                "related told": f"{100 * np.mean([geometry is not None for geometry in related]):.1f}",
                "unrelated": str(len(unrelated)),
                "unrelated told": f"{100 * np.mean([geometry is None for geometry in unrelated]):.1f}",
                "geometries": f"{related.count('homography')} / {related.count('fundamental')}",
            }
        )
    return found


@lru_cache(maxsize=64)
def _features(folder: Path, name: str) -> Features:
    return load_features(folder / f"{name}.npz")


def _use_one_thread() -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)


if __name__ == "__main__":
    run_script(main)
