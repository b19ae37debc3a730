"""What storing descriptors as float16 or bytes loses, on the validation scenes; writes results/storage.json.

python experiments/collections/storage.py SCENES/sceaux SCENES/british_museum --work FOLDER

All pairs of photos of a scene that share at least 30 reconstructed points are matched (mutual nearest neighbours that
pass the model's ratio) from features that went through a file of each kind. Same: of the matches from float32, the
share that is found again. Pose: mAA at 10 degrees of the relative pose, mean over five orders of the matches, then over
pairs and scenes; its difference from float32 on the same pairs, with the spread over bootstrap samples of the pairs.
"""

import argparse
import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np
from mixed_features import features_of
from one_folder import shared_points
from recall import PARTNER

from matchkernel.cli.console import run_script
from matchkernel.evaluation.photos.poses import score_pose
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.evaluation.photos.scores import accuracy
from matchkernel.evaluation.uncertainty import estimate, paired_difference
from matchkernel.photos.features import STORE, Features, Store, load_features, save_features
from matchkernel.photos.match import match
from matchkernel.photos.verify import INLIER_PIXELS
from matchkernel.storage.files import write_json

MODELS = ["light-wide", "rootsift"]
ORDERS, DEGREES = 5, 10
TARGET = Path(__file__).parents[1] / "results" / "storage.json"


def stored(features: Features, store: str, folder: Path) -> tuple[Features, int]:
    """Features as they come back from a file of this kind, and its size."""
    save_features(replace(features, settings={**features.settings, STORE: store}), folder / "features.npz")
    return load_features(folder / "features.npz"), (folder / "features.npz").stat().st_size


def main() -> None:
    """Match every pair with each kind of file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for features, kept")
    arguments = parser.parse_args()
    sizes: dict = defaultdict(lambda: defaultdict(int))
    same: dict = defaultdict(lambda: defaultdict(list))
    poses: dict = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    counts: dict = defaultdict(lambda: defaultdict(int))
    with tempfile.TemporaryDirectory() as temporary:
        for scene in arguments.scenes:
            cameras = read_scene(scene).cameras
            names = sorted(path.name for path in (scene / "images").iterdir())
            pairs = sorted(pair for pair, count in shared_points(scene / "sparse").items() if count >= PARTNER)
            for files in features_of(scene / "images", names, arguments.work / scene.name, MODELS):
                model, found = files.path.name, {}
                for store in get_args(Store):
                    back = {name: stored(files.load(name), store, Path(temporary)) for name in names}
                    sizes[model][store] += sum(size for _, size in back.values())
                    for a, b in pairs:
                        one, two = back[a][0], back[b][0]
                        matches = match(one, two, filter="ratio").indices
                        first = found.setdefault((a, b), set(map(tuple, matches.tolist())))
                        again = len(first.intersection(map(tuple, matches.tolist())))
                        same[model][store].append(again / max(1, len(first)))
                        counts[model][store] += len(matches)
                        views = (cameras[a], cameras[b]), (one.image_size, two.image_size)
                        ends = one.keypoints[matches[:, 0]], two.keypoints[matches[:, 1]]
                        orders = [np.random.default_rng(seed).permutation(len(matches)) for seed in range(ORDERS)]
                        errors = [score_pose(ends[0][o], ends[1][o], *views, INLIER_PIXELS).worst for o in orders]
                        poses[model][store][scene.name].append(accuracy(errors, DEGREES))
    results: dict = {}
    for model, kinds in sizes.items():
        for store, size in kinds.items():
            each = {scene: np.array(values) for scene, values in poses[model][store].items()}
            before = {scene: np.array(values) for scene, values in poses[model]["float32"].items()}
            pose, change = estimate(each), paired_difference(each, before)
            results.setdefault(model, {})[store] = {
                "size of files": round(size / kinds["float32"], 4),
                "matches": counts[model][store],
                "same": round(float(np.mean(same[model][store])), 5),
                "mAA": round(pose.mean, 4),
                "change": round(change.mean, 4),
                "spread of the change": round(change.std, 4),
            }
            print(model, store, results[model][store], flush=True)
    write_json(TARGET, results)


if __name__ == "__main__":
    run_script(main)
