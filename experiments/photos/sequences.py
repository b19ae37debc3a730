"""Descriptors on photos with known homographies: right matches, and how good the homographies are that they give.

    python experiments/photos/sequences.py DATA/homography --models sift rootsift weights.safetensors

`matchkernel evaluate photos` does the work, with the keypoints that were used before the study of poses chose others.
Right matches are counted among all mutual nearest neighbours. MAGSAC estimates the homography from those within the
descriptor's calibrated distance (from all, where it has none); it is right if the mean error of image A's corners is at
most 1, 3 or 5 px, averaged over ten orders of the matches. Every sequence counts once, whatever its number of images.

With several --magnifications each has its own rows, "<descriptor>, x<magnification>". Distances are calibrated on the
validation sequences, the default split, and written to the JSON; --thresholds reads them from there, row by row, for
weights that have none. The test sequences (--split test) are scored once, after all choices have been made.
"""

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from run import BASE

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError
from matchkernel.evaluation.photos.evaluate import Protocol, evaluate_photos
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.scenes import EvaluationScene, read_scenes
from matchkernel.photos.extract import Describer, open_describer
from matchkernel.photos.features import THRESHOLD
from matchkernel.storage.files import check_output, write_json

KINDS = {
    "validation": {
        "viewpoint, zoom": "oxford_graf v_churchill homogr_adam homogr_ExtremeZoom",
        "extreme viewpoint": "evd_adam",
        "blur": "oxford_bikes",
        "light": "oxford_leuven webcam_chamonix webcam_courbevoie",
    },
    "test": {
        "viewpoint, zoom": "oxford_bark oxford_boat oxford_wall v_dogman homogr_BruggeTower homogr_LePoint2",
        "extreme viewpoint": "evd_girl",
        "blur": "oxford_trees",
        "JPEG": "oxford_ubc",
        "light": "webcam_mexico webcam_frankfurt exposure_memorial",
    },
}
PROTOCOL = Protocol(repeats=10)
COLUMNS = ("matches", "right", "accuracy 3 px", "H 1 px", "H 3 px", "H 5 px")


def main() -> None:
    """Score descriptors, print and store what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of sequences: 1.jpg, 2.jpg, ..., H_1_2, ...")
    parser.add_argument("--models", nargs="+", default=["sift", "rootsift"], help="names or files of weights, or sift")
    parser.add_argument("--split", choices=list(KINDS), default="validation")
    parser.add_argument("--sequences", nargs="+", help="only these sequences of the split")
    parser.add_argument("--magnifications", type=float, nargs="+", default=[BASE.magnification])
    parser.add_argument("--thresholds", type=Path, help="JSON of an earlier run with calibrated distances")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, help="JSON file to write, with all pairs")
    options = parser.parse_args()
    start = time.perf_counter()
    kinds = {name: kind for kind, names in KINDS[options.split].items() for name in names.split()}
    unknown = set(options.sequences or []) - set(kinds)
    if unknown:
        parser.error(f"not in the {options.split} split: {', '.join(sorted(unknown))}")
    if options.out:
        check_output(options.out)
    known = read_thresholds(options.thresholds) if options.thresholds else {}
    describers = {model: open_describer(model, engine="torch") for model in options.models}
    scenes = read_scenes([options.folder / name for name in kinds if name in (options.sequences or kinds)])
    pairs: list[dict[str, Any]] = []
    facts: dict[str, Any] = {"thresholds": {}, "right below ratio": {}, "models": {}}
    for name, rows, about in score(scenes, describers, options, known):
        pairs += [{"sequence": row["sequence"], "kind": kinds[row["sequence"]], **row} for row in rows]
        for key, value in about.items():
            facts[key][name] = value
        print(f"{name} done", flush=True)
    print_means(pairs, list(facts["models"]))
    print("\nlargest distance at which matches are more often right than wrong:", facts["thresholds"])
    if options.split != "validation":
        del facts["thresholds"]
    facts |= {"split": options.split, "detector": BASE.settings(), "magnifications": options.magnifications}
    facts |= {"machine": platform.machine(), "seconds": round(time.perf_counter() - start)}
    if options.out:
        write_json(options.out, {**facts, "pairs": pairs})


def read_thresholds(path: Path) -> dict[str, float]:
    """The calibrated distances of an earlier run, by name."""
    try:
        return {name: float(value) for name, value in json.loads(path.read_bytes())["thresholds"].items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise FileError(f"{path}: not the JSON of a run on validation, which has thresholds") from None


def score(
    scenes: list[EvaluationScene],
    describers: dict[str, Describer],
    options: argparse.Namespace,
    known: dict[str, float],
) -> Iterator[tuple[str, list[dict[str, Any]], dict[str, Any]]]:
    """For each descriptor and size: its name, its rows, and what else is written about it."""
    for size in options.magnifications:
        for model, describer in describers.items():
            name = describer.name + (f", x{size:g}" if len(options.magnifications) > 1 else "")
            threshold = known[name] if known else describer.settings.get(THRESHOLD)
            detector = replace(BASE, magnification=size)
            filters = ["none", "none" if threshold is None else f"distance:{threshold}"]
            specs = [MethodSpec(model, detector, kept, options.device) for kept in filters]
            results = evaluate_photos(scenes, specs, PROTOCOL, workers=options.workers)  # one, if the filters are equal
            every, kept = results[0], results[-1]
            found = every["calibration"]
            about = {"thresholds": found["match_threshold"], "right below ratio": found["right_below_ratio"]}
            about["models"] = {**describer.settings, **({THRESHOLD: threshold} if threshold is not None else {})}
            yield name, list(rows_of(name, every["scenes"], kept["scenes"])), about


def rows_of(name: str, every: dict[str, Any], kept: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for each pair (1, k): matches of all neighbours, homographies from those within the distance."""
    for sequence, part in every.items():
        for row, believed in zip(part["pairs"], kept[sequence]["pairs"], strict=True):
            errors = np.array([np.inf if error is None else error for error in believed["corners"]])
            middle = float(np.median(errors))
            yield {
                "sequence": sequence,
                "image": int(Path(row["images"][1]).stem),
                "model": name,
                "keypoints": row["keypoints"],
                "matches": row["matches"],
                "right": row["right"],
                "accuracy 3 px": row["right"] / row["matches"] if row["matches"] else 0.0,
                "believed": believed["matches"],
                "corner error": middle if np.isfinite(middle) else None,
                **{f"H {pixels} px": float((errors <= pixels).mean()) for pixels in (1, 3, 5)},
            }


def print_means(pairs: list[dict[str, Any]], models: list[str]) -> None:
    """Print the mean of every descriptor over the pairs of a sequence, then over sequences."""
    sequences = list(dict.fromkeys(pair["sequence"] for pair in pairs))
    for model in models:
        own = [[pair for pair in pairs if (pair["sequence"], pair["model"]) == (name, model)] for name in sequences]
        means = {c: np.mean([np.mean([pair[c] for pair in part]) for part in own]) for c in COLUMNS}
        print(f"{model:20}", ", ".join(f"{column} {value:.4g}" for column, value in means.items()))


if __name__ == "__main__":
    run_script(main)
