"""COLMAP on the photos of all scenes in one folder, with chosen pairs; writes results/collection_models.json.

python experiments/collections/models.py SCENES/* --work FOLDER [--pairs top:20] [--smaller 13]

Every scene should get models of its own: a model with photos of two places would be two scenes fused (castle and
fountain show one courtyard and count as one place). Registered: the share of a scene's photos that are in its largest
model, and in any. Beside it the same of scenes of at most 13 photos, each reconstructed alone with all its pairs, from
the same features.
"""

import argparse
import json
import os
from collections import Counter
from pathlib import Path

from mixed_features import features_of
from one_folder import TRUTH, mix

from matchkernel.cli.console import run_script, say
from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
from matchkernel.colmap.model import read_reconstruction
from matchkernel.colmap.program import model_folders
from matchkernel.errors import WorkError
from matchkernel.geometry.detect import Detector
from matchkernel.storage.files import write_json

ONE_PLACE = {"castle": "castle and fountain", "fountain": "castle and fountain"}
MODEL = "light-wide"
TARGET = Path(__file__).parents[1] / "results" / "collection_models.json"


def main() -> None:
    """Reconstruct the folder, then the smaller scenes alone."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for photos, features and workspaces, kept")
    parser.add_argument("--pairs", default="top:20")
    parser.add_argument("--smaller", type=int, default=13, help="photos of the largest scene reconstructed alone")
    arguments = parser.parse_args()
    mixed = mix(arguments.scenes, arguments.work / "mixed")
    (features,) = features_of(mixed.images, mixed.names, arguments.work, [MODEL])
    original = json.loads((arguments.work / "mixed" / TRUTH).read_text(encoding="utf-8"))
    settings = ReconstructSettings(Detector(), pairs=arguments.pairs)
    workspace = arguments.work / "workspace"
    summary = reconstruct(mixed.images, workspace, MODEL, settings, features=features.path, say=say)
    parts = [read_reconstruction(folder).images.values() for folder in model_folders(workspace)]
    models = [Counter(mixed.scene[image.name] for image in part) for part in parts]
    places = [{ONE_PLACE.get(scene, scene) for scene in model} for model in models]
    results = {
        "photos": summary.images,
        "pairs": summary.pairs,
        "all pairs": summary.images * (summary.images - 1) // 2,
        "models": [dict(model) for model in models],
        "models of several places": sum(len(place) > 1 for place in places),
        "scenes": {},
    }
    for scene in sorted(arguments.scenes):
        count = sum(1 for name in mixed.scene.values() if name == scene.name)
        largest = max((model[scene.name] for model in models), default=0)
        anywhere = {image.name for part in parts for image in part if mixed.scene[image.name] == scene.name}
        row = {"photos": count, "largest": largest, "any": len(anywhere)}
        row["models"] = sum(scene.name in model for model in models)
        if count <= arguments.smaller:
            row["alone"] = alone(scene, arguments.work, features.path, original)
        results["scenes"][scene.name] = row
        print(scene.name, row, flush=True)
    print({key: value for key, value in results.items() if key != "scenes"})
    write_json(TARGET, results)


def alone(scene: Path, work: Path, features: Path, original: dict[str, list[str]]) -> int:
    """Number of photos registered from all pairs of one scene, with the features of the mixed folder."""
    own = work / "alone" / f"{scene.name}-features"
    own.mkdir(parents=True, exist_ok=True)
    for anonymous, (place, name) in original.items():
        if place == scene.name and not (own / f"{name}.npz").exists():
            os.link(features / f"{anonymous}.npz", own / f"{name}.npz")
    settings = ReconstructSettings(Detector(), pairs="all")
    try:
        found = reconstruct(scene / "images", work / "alone" / scene.name, MODEL, settings, features=own)
    except WorkError:  # no model
        return 0
    return found.registered


if __name__ == "__main__":
    run_script(main)
