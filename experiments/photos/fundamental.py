"""Compare estimators of the fundamental matrix on the same matches, as `matchkernel match` has them: in pixels.

    python experiments/photos/fundamental.py DATA --work WORK --results RESULTS.json

DATA, WORK and the choice of pairs are those of estimators.py. A pose follows from F with the true K; inliers (3 px) are
compared with the matches that lie within 1 px of the true epipolar geometry.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import cv2
import numpy as np
from estimators import MOST_PAIRS, ORDERS, SCENES, Pair, read_pairs

from matchkernel.evaluation.photos.evaluate import threads
from matchkernel.evaluation.photos.poses import pose_error
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.evaluation.photos.scores import accuracy
from matchkernel.geometry.epipolar import decompose_essential
from matchkernel.geometry.fundamental import refined_fundamental
from matchkernel.geometry.two_view import CONFIDENCE, ITERATIONS, essential_matrix, sampson_distances
from matchkernel.photos.features import load_features
from matchkernel.photos.verify import INLIER_PIXELS

TRAINING = (
    "fountain", "cyprus", "sacre_coeur", "lund_door", "kitchen", "monstree", "brighton", "horns", "fox", "lewis",
    "langley", "castle", "brandenburg", "liberty",
)  # fmt: skip
TRUE_PIXELS, SAMPLES, REFERENCE = 1.0, 10_000, "magsac 3.0"


def usac(a: np.ndarray, b: np.ndarray, flag: int, pixels: float) -> np.ndarray | None:
    """OpenCV's RANSAC with the settings of a flag."""
    try:
        F = cv2.findFundamentalMat(a, b, flag, pixels, CONFIDENCE, ITERATIONS)[0] if len(a) >= 8 else None
    except cv2.error:
        return None
    return None if F is None or F.shape != (3, 3) or not np.isfinite(F).all() or not F.any() else F


def simple(pair: Pair, flag: int, pixels: float) -> np.ndarray | None:
    """One hypothesis on all matches."""
    return usac(pair.frames_a.centers, pair.frames_b.centers, flag, pixels)


def refined(pair: Pair, pixels: float) -> np.ndarray | None:
    """The estimator of the package."""
    F = simple(pair, cv2.USAC_MAGSAC, INLIER_PIXELS)
    ends, frames = (pair.frames_a.centers, pair.frames_b.centers), (pair.frames_a, pair.frames_b)
    return None if F is None else refined_fundamental(F, *ends, pixels, ratios=pair.ratios, frames=frames)


ESTIMATORS: dict[str, Callable[[Pair], np.ndarray | None]] = {
    REFERENCE: partial(simple, flag=cv2.USAC_MAGSAC, pixels=3.0),
    "magsac 1.0": partial(simple, flag=cv2.USAC_MAGSAC, pixels=1.0),
    "accurate 1.0": partial(simple, flag=cv2.USAC_ACCURATE, pixels=1.0),
    "refined 0.5": partial(refined, pixels=0.5),
}


def score(pair: Pair, K: tuple[np.ndarray, np.ndarray], F: np.ndarray | None) -> tuple[float, float, float]:
    """The error of the pose in degrees; precision and recall of the inliers."""
    is_true = pair.focal * sampson_distances(essential_matrix(*pair.truth), pair.rays_a, pair.rays_b) <= TRUE_PIXELS
    if F is None:
        return math.inf, 0.0, 0.0
    inliers = sampson_distances(F, pair.frames_a.centers, pair.frames_b.centers) <= INLIER_PIXELS
    pose = decompose_essential(K[1].T @ F @ K[0], inliers, pair.rays_a, pair.rays_b) if inliers.any() else None
    error = math.inf if pose is None else pose_error(*pose, *pair.truth).worst
    hits = float((inliers & is_true).sum())
    return error, hits / max(inliers.sum(), 1), hits / max(is_true.sum(), 1)


def measured(data: Path, work: Path, method: str, name: str) -> dict[str, dict[str, list[float]]]:
    """Of each estimator and pair: mean accuracy of the orders, precision, recall, and seconds."""
    most = None if name in SCENES["validation"] else MOST_PAIRS
    scene, pairs = read_scene(data / "scenes" / name, most_pairs=most), read_pairs(data, work, method, name, most)
    size = cache(lambda image: load_features(work / "features" / method / name / f"{image}.npz").image_size)
    found: dict[str, dict[str, list[float]]] = {
        one: {"accuracy": [], "precision": [], "recall": [], "seconds": []} for one in ESTIMATORS
    }
    for (a, b), pair in zip(scene.pairs, pairs, strict=True):
        K = scene.cameras[a].matrix(size(a)), scene.cameras[b].matrix(size(b))
        for estimator, estimate in ESTIMATORS.items():
            rows = []
            for seed in range(ORDERS):
                ordered = pair[np.random.default_rng(seed).permutation(len(pair.ratios))]
                start = time.process_time()
                F = estimate(ordered) if len(ordered.ratios) >= 8 else None
                rows.append((*score(ordered, K, F), time.process_time() - start))
            errors, *others = zip(*rows, strict=True)
            found[estimator]["accuracy"].append(accuracy(errors, 10))
            for key, values in zip(("precision", "recall", "seconds"), others, strict=True):
                found[estimator][key].append(float(np.mean(values)))
    return found


def show(results: dict[str, dict[str, dict[str, list[float]]]], keys: list[str]) -> None:
    """Print a line for each estimator; the same pairs are drawn for all."""
    random, drawn = np.random.default_rng(0), {}
    for key in keys:
        count = len(results[key][REFERENCE]["accuracy"])
        drawn[key] = random.integers(count, size=(SAMPLES, count))

    def means(estimator: str) -> np.ndarray:
        return np.mean([np.array(results[key][estimator]["accuracy"])[drawn[key]].mean(1) for key in keys], 0)

    for name in ESTIMATORS:
        mean = {part: np.mean([np.mean(results[key][name][part]) for key in keys]) for part in results[keys[0]][name]}
        low, high = np.quantile(means(name) - means(REFERENCE), (0.025, 0.975))
        change = mean["accuracy"] - np.mean([np.mean(results[key][REFERENCE]["accuracy"]) for key in keys])
        print(
            f"  {name:14} {100 * mean['accuracy']:5.1f} ± {100 * means(name).std():.1f}  {100 * change:+.1f} "
            f"[{100 * low:+.1f}, {100 * high:+.1f}]  precision {100 * mean['precision']:.1f}  recall "
            f"{100 * mean['recall']:.1f}  {1000 * mean['seconds']:.0f} ms"
        )


def main() -> None:
    """Measure what is missing, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps features and matches")
    parser.add_argument("--results", type=Path, required=True)
    options = parser.parse_args()
    results = json.loads(options.results.read_text(encoding="utf-8")) if options.results.is_file() else {}
    validation = [f"light-wide/{scene}" for scene in SCENES["validation"]]
    training = [f"rootsift/{scene}" for scene in TRAINING]
    with threads(1):
        for key in (*validation, *training):
            if key not in results:
                results[key] = measured(options.data, options.work, *key.split("/"))
                options.results.write_text(json.dumps(results) + "\n", encoding="utf-8")
                print(key, flush=True)
    for title, keys in (("V", validation), ("T", training), ("V and T", [*validation, *training])):
        print(title)
        show(results, keys)


if __name__ == "__main__":
    main()
