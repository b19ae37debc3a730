"""Compare estimators of the relative pose on the same matches, with known intrinsics.

    python experiments/photos/estimators.py DATA --work WORK

DATA holds `scenes/<scene>/` with images/ and sparse/ (see `matchkernel evaluate photos`). Matches are computed once and
kept in WORK. Results go to experiments/results/estimators.json; what is there is not measured again. The error of a
pose is kept as one character, once for each order of the matches of a pair: "1" for at most 1 degree, ... "9", "a" for
at most 10, "-" for more or for no pose at all. Seconds are processor time of one thread, the median over pairs.

PoseLib and SupeRANSAC (packages poselib, pysuperansac; wheels for x86) were measured apart, on all training scenes:

    python experiments/photos/estimators.py DATA --work WORK --groups validation training others --methods rootsift \
        --only "refined 0.5" "poselib 1.0" ... --results experiments/results/estimators_x86.json
"""

import argparse
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from matchkernel.evaluation.photos.evaluate import extract_image, threads
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.poses import pose_error, relative_pose
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.epipolar import LIMIT, decompose_essential, estimate_pose, refine_pose, relative_errors
from matchkernel.geometry.frames import Frames
from matchkernel.photos.features import load_features
from matchkernel.storage.extras import need

RESULTS = Path(__file__).parents[1] / "results" / "estimators.json"
SCENES = {
    "validation": ("sceaux", "british_museum"),
    "training": ("castle", "brandenburg", "liberty", "lund_door", "fox"),
    "others": (
        "fountain", "cyprus", "sacre_coeur", "kitchen", "monstree", "brighton", "horns", "lewis", "langley",
    ),
}  # fmt: skip
METHODS = {"validation": ("light-wide", "rootsift", "tiny", "aliked-n16+lightglue")}
KEYPOINTS, MOST_PAIRS, ORDERS = 2000, 30, 3  # keypoints of a photo, pairs of a training scene, orders of the matches
ITERATIONS, CONFIDENCE = 10_000, 0.9999  # of RANSAC
DEGREES, NO_POSE = "123456789a", "-"
Pose = tuple[np.ndarray, np.ndarray]


@dataclass(frozen=True)
class Pair:
    """The matches of two photos."""

    rays_a: np.ndarray  # (M, 2)
    rays_b: np.ndarray
    focal: float  # mean of both, in pixels
    ratios: np.ndarray  # (M,)
    frames_a: Frames
    frames_b: Frames
    truth: Pose

    def __getitem__(self, chosen: np.ndarray) -> "Pair":
        names = ("rays_a", "rays_b", "ratios", "frames_a", "frames_b")
        return replace(self, **{name: getattr(self, name)[chosen] for name in names})


def usac(pair: Pair, flag: int, pixels: float) -> Pose | None:
    """OpenCV's RANSAC with the settings of a flag."""
    try:
        E, mask = cv2.findEssentialMat(
            pair.rays_a, pair.rays_b, np.eye(3), flag, CONFIDENCE, pixels / pair.focal, ITERATIONS
        )
    except cv2.error:
        return None
    return decompose_essential(E, mask.ravel() > 0, pair.rays_a, pair.rays_b) if E is not None else None


def prosac(pair: Pair, pixels: float) -> Pose | None:
    """OpenCV's PROSAC: matches with a small ratio are drawn first."""
    return usac(pair[np.argsort(pair.ratios, kind="stable")], cv2.USAC_PROSAC, pixels)


def kornia(pair: Pair, pixels: float) -> Pose | None:
    """kornia-rs: the five-point solver and Levenberg-Marquardt on Sampson errors."""
    K, scaled = np.diag([pair.focal, pair.focal, 1.0]), (pair.rays_a * pair.focal, pair.rays_b * pair.focal)
    options = {"ransac_threshold": pixels, "max_iterations": 2000, "seed": 0, "solver": "essential_5pt"}
    try:
        found = need("kornia_rs", "kornia", "this estimator").k3d.two_view_estimate(*scaled, K, **options)
    except ValueError:
        return None
    return np.asarray(found.rotation).reshape(3, 3), np.asarray(found.translation).ravel()


def one_refined(pair: Pair, pixels: float, weighted: bool) -> Pose | None:
    """One hypothesis of OpenCV's RANSAC, refined on all matches."""
    pose = usac(pair, cv2.USAC_ACCURATE, LIMIT * pixels)
    if pose is None:
        return None
    a, b = (np.column_stack([rays, np.ones(len(rays))]) for rays in (pair.rays_a, pair.rays_b))
    errors = relative_errors(pair.frames_a, pair.frames_b) if weighted else 1.0
    return refine_pose(*pose, a, b, LIMIT * pixels / pair.focal * errors)


def refined(pair: Pair, pixels: float, *, ratios: bool = True, frames: bool = True) -> Pose | None:
    """The estimator of the package."""
    known = {"ratios": pair.ratios} if ratios else {}
    known |= {"frames": (pair.frames_a, pair.frames_b)} if frames else {}
    found = estimate_pose(pair.rays_a, pair.rays_b, pixels / pair.focal, **known)
    return None if found is None else (found.R, found.t)


def poselib(pair: Pair, pixels: float, *, progressive: bool = False) -> Pose | None:
    """PoseLib: five-point solver, LO-RANSAC, and a refinement of the inliers."""
    ordered = pair[np.argsort(pair.ratios, kind="stable")] if progressive else pair
    camera = {"model": "SIMPLE_PINHOLE", "width": 1, "height": 1, "params": [pair.focal, 0.0, 0.0]}
    options = {"max_epipolar_error": pixels, "max_iterations": ITERATIONS, "success_prob": CONFIDENCE}
    ends = (np.asarray(rays * pair.focal, np.float64) for rays in (ordered.rays_a, ordered.rays_b))
    estimate = need("poselib", "poselib", "this estimator").estimate_relative_pose
    found, facts = estimate(*ends, camera, camera, {**options, "progressive_sampling": progressive})
    length = np.linalg.norm(found.t)
    return (found.R, found.t / length) if facts["num_inliers"] >= 5 and length > 0 else None


def superansac(pair: Pair, pixels: float) -> Pose | None:
    """SupeRANSAC with its own settings: PROSAC, MAGSAC's score, nested RANSAC, a final optimisation."""
    package = need("pysuperansac", "pysuperansac", "this estimator")
    settings, ordered = package.RANSACSettings(), pair[np.argsort(pair.ratios, kind="stable")]
    settings.inlier_threshold, settings.confidence, settings.max_iterations = pixels, CONFIDENCE, ITERATIONS
    points = np.column_stack([ordered.rays_a, ordered.rays_b]) * pair.focal
    centre = -points.min(0)
    K = [np.array([[pair.focal, 0, x], [0, pair.focal, y], [0, 0, 1]]) for x, y in (centre[:2], centre[2:])]
    points = np.ascontiguousarray(points + centre)
    E, inliers, *_ = package.estimateEssentialMatrix(points, *K, (points.max(0) + 1).tolist(), config=settings)
    if E is None or np.shape(E) != (3, 3) or len(inliers) < 5:
        return None
    return decompose_essential(np.asarray(E), np.asarray(inliers, int), ordered.rays_a, ordered.rays_b)


ESTIMATORS: dict[str, Callable[[Pair], Pose | None]] = {
    "magsac 0.5": partial(usac, flag=cv2.USAC_MAGSAC, pixels=0.5),
    "refined 0.5": partial(refined, pixels=0.5),
    "accurate 1.0": partial(usac, flag=cv2.USAC_ACCURATE, pixels=1.0),
    "refined 0.5, without frames": partial(refined, pixels=0.5, frames=False),
    "accurate 1.0, refined": partial(one_refined, pixels=0.5, weighted=False),
    "accurate 1.0, refined, weighted": partial(one_refined, pixels=0.5, weighted=True),
    "kornia-rs 1.0": partial(kornia, pixels=1.0),
    "magsac 0.25": partial(usac, flag=cv2.USAC_MAGSAC, pixels=0.25),
    "accurate 0.5": partial(usac, flag=cv2.USAC_ACCURATE, pixels=0.5),
    "prosac 1.0": partial(prosac, pixels=1.0),
    "magsac 1.0": partial(usac, flag=cv2.USAC_MAGSAC, pixels=1.0),
}
OTHERS: dict[str, Callable[[Pair], Pose | None]] = {  # need packages of their own
    **{f"poselib {pixels}": partial(poselib, pixels=pixels) for pixels in (0.5, 1.0, 2.0)},
    "poselib 1.0, prosac": partial(poselib, pixels=1.0, progressive=True),
    **{f"superansac {pixels}": partial(superansac, pixels=pixels) for pixels in (1.0, 2.0, 4.0)},
}


def main() -> None:
    """Measure what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps features and matches")
    parser.add_argument("--only", nargs="+", default=list(ESTIMATORS), choices=[*ESTIMATORS, *OTHERS])
    parser.add_argument("--groups", nargs="+", default=["validation", "training"], choices=list(SCENES))
    parser.add_argument("--methods", nargs="+", help="others than those of METHODS")
    parser.add_argument("--results", type=Path, default=RESULTS)
    options = parser.parse_args()
    about = json.loads(options.results.read_text(encoding="utf-8")) if options.results.is_file() else {"rows": {}}
    with threads(1):
        for group in options.groups:
            for method in options.methods or METHODS.get(group, ["rootsift"]):
                for scene in SCENES[group]:
                    measure(options, about, group, method, scene)
    for row in about["rows"].values():
        combine(row, METHODS["validation"], SCENES["validation"])
    write(options.results, about)


def measure(options: argparse.Namespace, about: dict[str, Any], group: str, method: str, scene: str) -> None:
    """Score the estimators that have no result on the matches of a method in a scene."""
    key = f"{method}/{scene}"
    missing = [name for name in options.only if key not in about["rows"].get(name, {}).get("scenes", {})]
    pairs = read_pairs(options.data, options.work, method, scene, None if group == "validation" else MOST_PAIRS)
    for name in missing:
        errors, seconds = [], []
        for pair in pairs:
            for seed in range(ORDERS):
                ordered = pair[np.random.default_rng(seed).permutation(len(pair.ratios))]
                start = time.process_time()
                pose = (ESTIMATORS | OTHERS)[name](ordered) if len(ordered.ratios) >= 5 else None
                seconds.append(time.process_time() - start)
                errors.append(math.inf if pose is None else pose_error(*pose, *pair.truth).worst)
        row = about["rows"].setdefault(name, {"scenes": {}})
        row["scenes"][key] = {
            "poses": "".join(map(degree, errors)), "orders": ORDERS, "seconds": round(float(np.median(seconds)), 4),
        }  # fmt: skip
        print(f"{key}, {name}: {row['scenes'][key]['seconds']} s", flush=True)
        about |= {"format": 1, "opencv": cv2.__version__}
        write(options.results, about)


def write(path: Path, about: dict[str, Any]) -> None:
    """Write the results."""
    path.write_text(json.dumps(about, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def combine(row: dict[str, Any], methods: Sequence[str], scenes: Sequence[str]) -> None:
    """Add "all/SCENE": the errors of each pair with the matches of every method, so that pairs are drawn together."""
    for scene in scenes:
        parts = [row["scenes"].get(f"{method}/{scene}") for method in methods]
        if None not in parts:
            rows = [[part["poses"][k : k + ORDERS] for k in range(0, len(part["poses"]), ORDERS)] for part in parts]
            poses = "".join("".join(both) for both in zip(*rows, strict=True))
            row["scenes"][f"all/{scene}"] = {"poses": poses, "orders": ORDERS * len(methods)}


def degree(error: float) -> str:
    """The character of an error in degrees."""
    return DEGREES[max(math.ceil(error), 1) - 1] if error <= len(DEGREES) else NO_POSE


def read_pairs(data: Path, work: Path, method: str, name: str, most_pairs: int | None) -> list[Pair]:
    """The matches of all pairs of a scene, from a file of an earlier run if there is one."""
    scene = read_scene(data / "scenes" / name, most_pairs=most_pairs)
    folder, file = work / "features" / method / name, work / f"{name}.{method}.indices.npz"
    folder.mkdir(parents=True, exist_ok=True)
    spec = MethodSpec(method, Detector(keypoints=KEYPOINTS))
    for image in sorted({image for pair in scene.pairs for image in pair}):
        extract_image(spec, image, scene.images[image], folder / f"{image}.npz")
    loaded = cache(lambda image: load_features(folder / f"{image}.npz"))
    if not file.is_file():
        found = [spec.open().match(loaded(a), loaded(b)) for a, b in scene.pairs]
        ratios = [one.ratios if one.ratios.any() else one.distances for one in found]
        rows = [np.column_stack([one.indices, ratio]) for one, ratio in zip(found, ratios, strict=True)]
        np.savez(file, **{f"{k}": row for k, row in enumerate(rows)})
    with np.load(file) as stored:
        rows = [stored[f"{k}"] for k in range(len(scene.pairs))]
    pairs = []
    for (a, b), row in zip(scene.pairs, rows, strict=True):
        ends = loaded(a)[row[:, 0].astype(int)], loaded(b)[row[:, 1].astype(int)]
        cameras = scene.cameras[a], scene.cameras[b]
        both = list(zip(cameras, ends, strict=True))
        rays = [camera.rays(end.keypoints, end.image_size) for camera, end in both]
        focal = float(np.mean([camera.focal(end.image_size) for camera, end in both]))
        pair = Pair(*rays, focal, row[:, 2], ends[0].frames, ends[1].frames, relative_pose(*cameras))
        pairs.append(pair[np.isfinite(np.concatenate(rays, 1)).all(1)])
    return pairs


if __name__ == "__main__":
    main()
