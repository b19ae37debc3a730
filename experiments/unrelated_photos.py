"""Does `match` tell photos of one scene from others, look-alikes among them, and which geometry does it find?

"same scene" are two photos that share 15 or more points of its COLMAP model, "other scene" any two photos of different
scenes. `--look-alikes` adds pairs of one scene that show different things, and crops (see look_alikes.py). Each pair is
matched with the defaults of `matchkernel match`. A pair that shows the same is told right if a model is found, another
one if none is.

    python experiments/unrelated_photos.py SCENES/castle SCENES/fox --look-alikes 40 --filter ratio context \
        --cache CACHE --out told.json --sheet SHEETS

Features are kept in the cache, one file per photo, and a run that was interrupted uses them again. SHEETS gets a
contact sheet of each kind of pair, and one of all errors.
"""

import argparse
import json
import platform
import time
from collections import Counter
from collections.abc import Iterator, Sequence
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
from look_alikes import SceneGeometry, spread

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
from matchkernel.storage.images import read_gray
from matchkernel.storage.settings import to_dict

ONE_PLACE = ({"castle", "fountain"},)  # scenes that show the same buildings, and are not compared with each other
SAME = ("same scene", "same crop")  # kinds of pairs that show the same thing
VALIDATION = ("sceaux", "british_museum")
ALIGNED = ", aligned"  # after the name of a filter
Way = tuple[str, MatchSettings, dict[str, Path] | None]  # name of a filter, settings, photos if points are aligned
TILE, ACROSS = 200, 6  # pixels of a photo on a contact sheet, and pairs in a row of it


@dataclass(frozen=True)
class PhotoPair:
    """Two photos or crops, named "<scene>/<image>"."""

    a: str
    b: str
    kind: str


def main() -> None:
    """Match all pairs and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", type=Path, nargs="*", help="folders with images/ and sparse/")
    parser.add_argument("--model", nargs="+", default=["light-wide"], help="names or files of weights, or sift")
    parser.add_argument("--cache", type=Path, default=Path("cache"), help="folder for the features")
    parser.add_argument("--stored", type=Path, help="only print the tables of a file that --out wrote")
    parser.add_argument("--images", type=int, default=6, help="maximum number of photos per scene, spread evenly")
    parser.add_argument("--most", type=int, default=10**6, help="maximum number of pairs of different scenes")
    parser.add_argument("--look-alikes", type=int, default=0, help="maximum number of a kind per scene")
    parser.add_argument("--keypoints", type=int, default=MatchSettings().detector.keypoints)
    parser.add_argument("--filter", nargs="+", default=[str(MatchSettings().filter)])
    parser.add_argument("--align", action="store_true", help="match once more with each filter and aligned points")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--out", type=Path, help="JSON file to write, with all pairs")
    parser.add_argument("--sheet", type=Path, help="folder for contact sheets")
    chosen = parser.parse_args()
    if chosen.stored:
        print_tables(json.loads(chosen.stored.read_text(encoding="utf-8"))["pairs"])
        return
    if chosen.images < 2 or chosen.processes < 1:
        parser.error("--images must be 2 or more, and --processes 1 or more")
    if chosen.out:
        check_output(chosen.out, *chosen.scenes)
    start = time.perf_counter()
    detector = replace(MatchSettings().detector, keypoints=chosen.keypoints)
    settings = {text: MatchSettings(detector=detector, filter=parse_filter(text)) for text in chosen.filter}
    scenes = [read_scene(folder) for folder in chosen.scenes]
    photos = {f"{scene.name}/{name}": path for scene in scenes for name, path in some_images(scene, chosen.images)}
    pairs = list(pairs_of(scenes, set(photos), chosen.most))
    if chosen.look_alikes:
        found = [look_alikes(folder, chosen.look_alikes, chosen.cache / "crops") for folder in chosen.scenes]
        for files, more in found:
            photos |= files
            pairs += more
    if not pairs:
        raise ArgumentError("no two of these photos can be compared: give more scenes or more --images")
    print(*Counter(pair.kind for pair in pairs).items(), flush=True)
    ways = [(text, how, None) for text, how in settings.items()]
    ways += [(f"{text}{ALIGNED}", how, photos) for text, how in settings.items() if chosen.align]
    rows: list[dict[str, Any]] = []
    for model in chosen.model:
        rows += ask_all(model, ways, pairs, photos, chosen.cache, chosen.processes)
    print_tables(rows)
    if chosen.sheet:
        write_sheets(chosen.sheet, rows, photos)
    if chosen.out:
        facts = {
            "settings": {**to_dict(detector), "geometry": MatchSettings().geometry},
            "scenes": [scene.name for scene in scenes],
            "summary": summarised(rows),
            "versions": {"matchkernel": matchkernel.__version__, "opencv": cv2.__version__, "numpy": np.__version__},
            "machine": platform.machine(),
            "seconds": round(time.perf_counter() - start),
        }
        lines = ",\n  ".join(json.dumps(row) for row in rows)
        with replacing(chosen.out) as part:
            part.write_text(json.dumps(facts, indent=1)[:-2] + f',\n "pairs": [\n  {lines}\n ]\n}}\n', encoding="utf-8")


def ask_all(
    model: str,
    ways: list[Way],
    pairs: list[PhotoPair],
    photos: dict[str, Path],
    cache: Path,
    processes: int,
) -> Iterator[dict[str, Any]]:
    """What `match` says about all pairs with a model, for each filter."""
    describer, detector = open_describer(model), ways[0][1].detector
    folder = cache / describer.name / f"{detector.keypoints} keypoints"
    skipped = extract_images(photos, folder, describer, detector, say=print).skipped
    asked = [pair for pair in pairs if not {pair.a, pair.b} & set(skipped)]
    for text, how, to_align in ways:
        ask = partial(told, settings=how, folder=folder, to_align=to_align)
        if processes == 1:
            answers = [ask(pair) for pair in asked]
        else:
            fresh = get_context("spawn")  # a copy of a process whose torch has threads would hang
            with ProcessPoolExecutor(processes, fresh, _use_one_thread) as pool:
                answers = list(pool.map(ask, asked, chunksize=16))
        yield from ({"model": describer.name, "filter": text, **row} for row in answers)
        print(f"{describer.name}, {text}: {len(asked)} pairs", flush=True)


def some_images(scene: EvaluationScene, most: int) -> Iterator[tuple[str, Path]]:
    """At most this many images of a scene, spread evenly over their names."""
    names = sorted(scene.images)
    return ((names[number], scene.images[names[number]]) for number in spread(len(names), most))


def pairs_of(scenes: list[EvaluationScene], photos: set[str], most: int) -> Iterator[PhotoPair]:
    """Related pairs of every scene, then pairs of photos across two scenes, spread evenly if there are too many."""
    for scene in scenes:
        named = [(f"{scene.name}/{a}", f"{scene.name}/{b}") for a, b in scene.pairs]
        yield from (PhotoPair(a, b, "same scene") for a, b in named if {a, b} <= photos)
    others = []
    for a, b in combinations(sorted(photos), 2):
        places = {a.partition("/")[0], b.partition("/")[0]}
        if len(places) == 2 and not any(places <= same for same in ONE_PLACE):
            others.append(PhotoPair(a, b, "other scene"))
    yield from (others[number] for number in spread(len(others), most))


def look_alikes(folder: Path, most: int, crops: Path) -> tuple[dict[str, Path], list[PhotoPair]]:
    """Files by name, and pairs, of the look-alikes of a scene; crops are written."""
    scene, files, pairs = SceneGeometry(folder), {}, []
    for kind, *both in (*scene.other_sides(most), *scene.crops(most)):
        for piece in both:
            path = folder / "images" / piece.photo if piece.box is None else crops / scene.name / piece.name
            files[f"{scene.name}/{piece.name}"] = path
            if piece.box is not None and not path.is_file():
                path.parent.mkdir(parents=True, exist_ok=True)
                cv2.imwrite(str(path), scene.read(piece))
        pairs.append(PhotoPair(*(f"{scene.name}/{piece.name}" for piece in both), kind))
    return files, pairs


def told(
    pair: PhotoPair, settings: MatchSettings, folder: Path, to_align: dict[str, Path] | None = None
) -> dict[str, Any]:
    """What `match` says about a pair; its points are aligned if the photos are given."""
    images = None if to_align is None else (read_gray(to_align[pair.a]), read_gray(to_align[pair.b]))
    found = match_features(_features(folder, pair.a), _features(folder, pair.b), settings, align=images)
    assert found.verification is not None
    significance = found.verification.significance
    return {
        "a": pair.a,
        "b": pair.b,
        "kind": pair.kind,
        "matches": len(found.matches),
        "inliers": int(found.inliers.sum()),
        "geometry": found.geometry,
        "significance": None if significance is None else round(significance, 1),
    }


def is_right(row: dict[str, Any]) -> bool:
    """Whether a pair was told right."""
    return (row["geometry"] is not None) == (row["kind"] in SAME)


def summarised(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """By model, filter and kind of pair: how many were told right, overall and where a validation scene takes part."""
    found = []
    for model, filter_, kind in dict.fromkeys((row["model"], row["filter"], row["kind"]) for row in rows):
        own = [row for row in rows if (row["model"], row["filter"], row["kind"]) == (model, filter_, kind)]
        seen = [row for row in own if {name.partition("/")[0] for name in (row["a"], row["b"])} & set(VALIDATION)]
        wrong = [row for row in own if not is_right(row)]
        found.append(
            {
                "model": model,
                "filter": filter_,
                "kind": kind,
                "pairs": len(own),
                "right": len(own) - len(wrong),
                "validation pairs": len(seen),
                "validation right": sum(map(is_right, seen)),
                "inliers of errors": sorted(row["inliers"] for row in wrong),
                "geometries": dict(Counter(row["geometry"] for row in own if row["geometry"])),
            }
        )
    return found


def print_tables(rows: list[dict[str, Any]]) -> None:
    """Print the summary, errors by scene, and what a limit chosen on training scenes would do."""
    print(table(summarised(rows)))
    for model, filter_ in dict.fromkeys((row["model"], row["filter"]) for row in rows):
        own = [row for row in rows if (row["model"], row["filter"]) == (model, filter_)]
        crops = [row for row in own if row["kind"] == "other crop"]
        wrong = Counter(_scenes(row)[0] for row in crops if not is_right(row))
        counts = Counter(_scenes(row)[0] for row in crops)
        print(f"{model}, {filter_}, other crop, wrong:", {name: f"{wrong[name]} of {counts[name]}" for name in counts})
        for measure in ("significance", "inliers"):
            print(f"{model}, {filter_}:", limit_of(own, measure))


def limit_of(rows: list[dict[str, Any]], measure: str, wanted: float = 0.99) -> str:
    """The lowest limit above which models must be to tell this share of training pairs right, and what it tells."""
    kinds = {True: [row for row in rows if row["kind"] in SAME], False: [r for r in rows if r["kind"] not in SAME]}
    seen = [row for row in kinds[False] if set(_scenes(row)) & set(VALIDATION)]
    training = [row for row in kinds[False] if row not in seen]
    if not training:
        return "no pairs of training scenes that show different things"
    values = sorted(_value(row, measure) for row in training)
    limit = values[int(np.ceil(wanted * len(values))) - 1]
    groups = {"training": training, "validation": seen, "the same": kinds[True]}
    told_right = {
        name: f"{sum((_value(row, measure) > limit) == (name == 'the same') for row in part)} of {len(part)}"
        for name, part in groups.items()
    }
    return f"{measure} above {limit}: {told_right}"


def _value(row: dict[str, Any], measure: str) -> float:
    return float(row[measure]) if row["geometry"] else -np.inf


def _scenes(row: dict[str, Any]) -> tuple[str, str]:
    return row["a"].partition("/")[0], row["b"].partition("/")[0]


def table(summary: list[dict[str, Any]]) -> str:
    """For the terminal and for reports."""
    lines = [
        "| model | filter | kind | pairs | told right | with validation scenes | inliers of errors |",
        "|---" * 7 + "|",
    ]
    for row in summary:
        share = f"{row['right']} ({100 * row['right'] / row['pairs']:.1f} %)"
        seen = f"{row['validation right']} of {row['validation pairs']}"
        errors = ", ".join(map(str, row["inliers of errors"])) or "–"
        lines.append(
            f"| {row['model']} | {row['filter']} | {row['kind']} | {row['pairs']} | {share} | {seen} | {errors} |"
        )
    return "\n".join(lines)


def write_sheets(folder: Path, rows: Sequence[dict[str, Any]], photos: dict[str, Path]) -> None:
    """A contact sheet of some pairs of each kind, and one of the errors of each filter."""
    folder.mkdir(parents=True, exist_ok=True)
    groups = {kind: [row for row in rows if row["kind"] == kind] for kind in {row["kind"] for row in rows}}
    groups = {kind: [own[k] for k in spread(len(own), 10 * ACROSS)] for kind, own in groups.items()}
    for filter_ in {row["filter"] for row in rows}:
        groups[f"errors {filter_}"] = [row for row in rows if row["filter"] == filter_ and not is_right(row)]
    for title, own in groups.items():
        tiles = [np.hstack([_tile(photos[row[side]], row, side) for side in "ab"]) for row in own]
        tiles += [np.zeros((TILE, 2 * TILE, 3), np.uint8)] * (-len(tiles) % ACROSS)
        lines = [np.hstack(tiles[k : k + ACROSS]) for k in range(0, len(tiles), ACROSS)]
        if lines:
            cv2.imwrite(str(folder / f"{title.replace(' ', '-')}.png"), np.vstack(lines))


def _tile(path: Path, row: dict[str, Any], side: str) -> np.ndarray:
    pixels = cv2.imread(str(path))
    factor = (TILE - 4) / max(pixels.shape[:2])
    small = cv2.resize(pixels, None, fx=factor, fy=factor, interpolation=cv2.INTER_AREA)
    tile = np.full((TILE, TILE, 3), 255 if side == "a" else 160, np.uint8)
    tile[: small.shape[0], : small.shape[1]] = small
    if side == "a":
        text = f"{row['a'].partition('/')[0]} {row['inliers']}"
        cv2.putText(tile, text, (4, TILE - 8), cv2.FONT_HERSHEY_SIMPLEX, 0.5, (0, 0, 255), 1, cv2.LINE_AA)
    return tile


@lru_cache(maxsize=64)
def _features(folder: Path, name: str) -> Features:
    return load_features(folder / f"{name}.npz")


def _use_one_thread() -> None:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)


if __name__ == "__main__":
    run_script(main)
