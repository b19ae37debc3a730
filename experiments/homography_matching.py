"""Mean matching accuracy and homography accuracy on image sequences with known homographies.

Every descriptor gets the same keypoints (OpenCV's strongest DoG points). The accuracy of a pair is the share of mutual
nearest neighbours within 3 px of the truth. MAGSAC estimates the homography from the matches within the descriptor's
calibrated distance (from all, where it has none); it is right if the mean error of image A's corners is at most 1, 3 or
5 px. This is averaged over ten orders of the matches. Every sequence counts once, whatever its number of images.

    python experiments/homography_matching.py homography --models sift rootsift weights.safetensors

With several --magnifications each has its own rows, "<descriptor>, x<magnification>".

Distances are calibrated on the validation sequences, the default split, and written to the JSON; --thresholds reads
them from there, row by row, for weights that have none. The test sequences (--split test) are scored once, after all
choices have been made.
"""

import argparse
import json
import platform
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import matchkernel
from matchkernel.cli.console import run_script
from matchkernel.data.from_homographies import read_homography
from matchkernel.errors import FileError
from matchkernel.geometry.conventions import MAGNIFICATION
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.homography import corner_error
from matchkernel.model.weights import load
from matchkernel.photos.describers import SIFTS, THRESHOLD, Describer, open_describer
from matchkernel.photos.extract import as_gray, extract_with
from matchkernel.photos.match import match
from matchkernel.photos.verify import transfer_errors, verify
from matchkernel.report.tables import markdown_table
from matchkernel.storage.files import replacing

KINDS = {
    "validation": {
        "viewpoint, zoom": ["oxford_graf", "v_churchill", "homogr_adam", "homogr_ExtremeZoom"],
        "extreme viewpoint": ["evd_adam"],
        "blur": ["oxford_bikes"],
        "light": ["oxford_leuven", "webcam_chamonix", "webcam_courbevoie"],
    },
    "test": {
        "viewpoint, zoom": [
            "oxford_bark",
            "oxford_boat",
            "oxford_wall",
            "v_dogman",
            "homogr_BruggeTower",
            "homogr_LePoint2",
        ],
        "extreme viewpoint": ["evd_girl"],
        "blur": ["oxford_trees"],
        "JPEG": ["oxford_ubc"],
        "light": ["webcam_mexico", "webcam_frankfurt", "exposure_memorial"],
    },
}
PIXELS = 3.0  # maximum error of a right match
ORDERS = 10
RATIOS = (0.75, 0.8, 0.85, 0.9, 0.95)
COLUMNS = ("matches", "right", "accuracy 3 px", "H 1 px", "H 3 px", "H 5 px")


def main() -> None:
    """Score descriptors and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of sequences: 1.jpg, 2.jpg, ..., H_1_2, ...")
    parser.add_argument("--models", nargs="+", default=["sift", "rootsift"], help="names or files of weights, or sift")
    parser.add_argument("--untrained", nargs="*", default=[], help="descriptors with random weights")
    parser.add_argument("--split", choices=list(KINDS), default="validation")
    parser.add_argument("--sequences", nargs="+", help="only these sequences of the split")
    parser.add_argument("--keypoints", type=int, default=2000)
    parser.add_argument("--magnifications", type=float, nargs="+", default=[MAGNIFICATION])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--thresholds", type=Path, help="JSON of an earlier run with calibrated distances")
    parser.add_argument("--bf16", action="store_true", help="describe in bfloat16, which is faster")
    parser.add_argument("--out", type=Path, help="JSON file to write, with all pairs")
    chosen = parser.parse_args()
    start = time.perf_counter()
    models = [load(model).bfloat16() if chosen.bf16 and model not in SIFTS else model for model in chosen.models]
    describers = [open_describer(model, device=chosen.device) for model in models]
    describers += [open_describer(model, untrained=True, device=chosen.device) for model in chosen.untrained]
    known = read_thresholds(chosen.thresholds) if chosen.thresholds else {}
    ways = [way for size in chosen.magnifications for way in ways_of(describers, size, chosen, known)]
    sequences = {name: kind for kind, names in KINDS[chosen.split].items() for name in names}
    unknown = set(chosen.sequences or []) - set(sequences)
    if unknown:
        parser.error(f"not in the {chosen.split} split: {', '.join(sorted(unknown))}")
    if chosen.out and not chosen.out.parent.is_dir():
        parser.error(f"--out {chosen.out}: no such folder")
    pairs: list[dict[str, Any]] = []
    seen: dict[str, list[np.ndarray]] = defaultdict(list)
    for name, kind in sequences.items():
        if chosen.sequences is None or name in chosen.sequences:
            for row in score_sequence(chosen.folder / name, ways):
                seen[row["model"]].append(row.pop("seen"))
                pairs.append({"sequence": name, "kind": kind, **row})
            print(f"{name} done", flush=True)
    print_table(pairs, list(dict.fromkeys(pair["model"] for pair in pairs)))
    thresholds = {model: round(threshold_of(parts), 3) for model, parts in seen.items()}
    print("\nlargest distance at which matches are more often right than wrong:", thresholds)
    shares = {model: shares_of_right(parts) for model, parts in seen.items()}
    print("\nshare of right matches below a ratio:")
    for model, found_shares in shares.items():
        print(f"{model:16s}", *(f"{ratio}: {share:.3f}" for ratio, share in found_shares.items()))
    if chosen.out:
        facts = {
            **({"thresholds": thresholds} if chosen.split == "validation" else {}),
            "right below ratio": shares,
            "split": chosen.split,
            "detector": Detector(chosen.keypoints).settings(),
            "magnifications": chosen.magnifications,
            "bf16": chosen.bf16,
            "models": {describer.name: describer.settings for describer, _ in ways},
            "versions": {"matchkernel": matchkernel.__version__, "opencv": cv2.__version__, "numpy": np.__version__},
            "machine": platform.machine(),
            "seconds": round(time.perf_counter() - start),
        }
        with replacing(chosen.out) as part:
            part.write_text(json.dumps({**facts, "pairs": pairs}, indent=1) + "\n", encoding="utf-8")


def read_thresholds(path: Path) -> dict[str, float]:
    """The calibrated distances of an earlier run, by name."""
    try:
        return {name: float(value) for name, value in json.loads(path.read_bytes())["thresholds"].items()}
    except (ValueError, LookupError, TypeError, AttributeError):
        raise FileError(f"{path}: not the JSON of a run on validation, which has thresholds") from None


def ways_of(
    describers: list[Describer], magnification: float, chosen: argparse.Namespace, known: dict[str, float]
) -> Iterator[tuple[Describer, Detector]]:
    """Each descriptor as a row of the table, with the calibrated distance of that row, at one size."""
    ending = f", x{magnification:g}" if len(chosen.magnifications) > 1 else ""
    for describer in describers:
        name = describer.name + ending
        settings = {**describer.settings, **({THRESHOLD: known[name]} if known else {})}
        detector = Detector(chosen.keypoints, magnification=magnification)
        yield replace(describer, name=name, settings=settings), detector


def score_sequence(folder: Path, ways: list[tuple[Describer, Detector]]) -> Iterator[dict[str, Any]]:
    """One row for each pair (1, k) and descriptor."""
    paths = {int(path.stem): path for path in folder.iterdir() if path.stem.isdigit()}
    images = {number: as_gray(path) for number, path in sorted(paths.items())}
    height, width = images[1].shape
    for describer, detector in ways:
        features = {number: extract_with(image, describer, detector) for number, image in images.items()}
        for number in list(images)[1:]:
            H = read_homography(folder / f"H_1_{number}")
            a, b = features[1], features[number]
            matches = match(a, b)
            found = matches.indices
            points = a.keypoints[found[:, 0]], b.keypoints[found[:, 1]]
            is_right = transfer_errors(H, *points) <= PIXELS
            kept = matches.distances <= describer.settings.get(THRESHOLD, np.inf)
            errors = np.array(list(corner_errors(points[0][kept], points[1][kept], H, (width, height))))
            yield {
                "image": number,
                "model": describer.name,
                "keypoints": [len(a), len(b)],
                "matches": len(found),
                "right": int(is_right.sum()),
                "accuracy 3 px": float(is_right.mean()) if len(found) else 0.0,
                "seen": np.column_stack([matches.distances, is_right, matches.ratios]),
                "believed": int(kept.sum()),
                "corner error": float(np.median(errors)) if np.isfinite(np.median(errors)) else None,
                **{f"H {pixels} px": float((errors <= pixels).mean()) for pixels in (1, 3, 5)},
            }


def corner_errors(points_a: np.ndarray, points_b: np.ndarray, H: np.ndarray, size: tuple[int, int]) -> Iterator[float]:
    """Corner errors of MAGSAC's homography for several orders of the matches, on which its draws depend."""
    for seed in range(ORDERS):
        order = np.random.default_rng(seed).permutation(len(points_a))
        yield corner_error(verify(points_a[order], points_b[order], "homography").model, H, size)


def threshold_of(parts: list[np.ndarray]) -> float:
    """The distance up to which right matches most outnumber wrong ones, with equal weight for every image pair.

    Args:
        parts: for each pair (M, 3) distances of its matches, 1 where they are right, and ratios.
    """
    rows, weights = weighted(parts)
    order = np.argsort(rows[:, 0], kind="stable")
    gain = np.cumsum((weights * np.where(rows[:, 1] > 0, 1, -1))[order])
    return float(rows[order[gain.argmax()], 0])


def weighted(parts: list[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """The matches of all pairs, and their weights: every pair of images counts the same."""
    parts = [part for part in parts if len(part)]
    return np.concatenate(parts), np.concatenate([np.full(len(part), 1 / len(part)) for part in parts])


def shares_of_right(parts: list[np.ndarray]) -> dict[str, float]:
    """Share of right matches among those below a ratio, with equal weight for every image pair.

    Args:
        parts: as for threshold_of.
    """
    rows, weights = weighted(parts)
    kept = {ratio: weights * (rows[:, 2] < ratio) for ratio in RATIOS}
    return {str(ratio): float((part * rows[:, 1]).sum() / part.sum()) for ratio, part in kept.items()}


def print_table(pairs: list[dict[str, Any]], models: list[str]) -> None:
    """Print means of sequences, by kind and over all."""
    kinds = {pair["sequence"]: pair["kind"] for pair in pairs}
    rows = []
    for kind in [*dict.fromkeys(kinds.values()), "mean of sequences"]:
        names = [name for name in kinds if kind in (kinds[name], "mean of sequences")]
        for model in models:
            cells = [f"{kind} ({len(names)})", model]
            for column in COLUMNS:
                values = [[p[column] for p in pairs if (p["sequence"], p["model"]) == (name, model)] for name in names]
                mean = np.mean([np.mean(part) for part in values])
                cells.append(f"{mean:.0f}" if column in COLUMNS[:2] else f"{100 * mean:.1f}")
            rows.append(cells)
    print(f"\n{markdown_table(['kind (sequences)', 'descriptor', *COLUMNS], rows)}")


if __name__ == "__main__":
    run_script(main)
