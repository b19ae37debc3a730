"""How many of a photo's true partners are chosen, with the photos of all scenes in one folder; results/recall.json.

python experiments/collections/recall.py SCENES/* --work FOLDER

The photos get shuffled, anonymous names. A partner of a photo is one that shares at least 30 reconstructed points with
it. Recall at k: of the partners, or of k if there are more, the share among the k most similar photos; its mean over
the photos of a scene, then over scenes. Best five: of the up to five partners that share the most points, the share
among the 20 most similar. Vectors are those of `matchkernel pairs`, made in the same way of the default model's and of
RootSIFT's descriptors at the same keypoints. The spread is over bootstrap samples of the photos of each scene.

Training photos are among them: the network and the vocabulary saw those, so that scenes are also counted by group.
"""

import argparse
from pathlib import Path

import numpy as np
from mixed_features import features_of
from one_folder import Mixed, mix

from matchkernel.cli.console import run_script
from matchkernel.collection.vectors import image_vectors, similarities, vocabulary_for
from matchkernel.evaluation.uncertainty import estimate, paired_difference
from matchkernel.storage.files import write_json

PARTNER = 30  # shared points
AT, BEST = (10, 20), 5
MODELS = ["light-wide", "rootsift"]
GROUPS = {"validation": ("sceaux", "british_museum"), "test": ("truck", "statue")}
TARGET = Path(__file__).parents[1] / "results" / "recall.json"
KEYS = (*(f"recall at {k}" for k in AT), f"best {BEST} at {AT[-1]}")


def recalls(mixed: Mixed, names: list[str], similar: np.ndarray) -> dict[str, dict[str, np.ndarray]]:
    """By scene and key, one number per photo that has a partner.

    Args:
        mixed: the photos.
        names: those in the order of `similar`.
        similar: (n, n) similarities.
    """
    similar = similar.copy()
    np.fill_diagonal(similar, -np.inf)
    order = np.argsort(-similar, axis=1, kind="stable")
    shared = shared_counts(mixed, names)
    found: dict[str, dict[str, list[float]]] = {}
    for i, name in enumerate(names):
        partners = np.flatnonzero(shared[i] >= PARTNER)
        if len(partners):
            best = partners[np.argsort(-shared[i][partners], kind="stable")[:BEST]]
            values = [np.isin(order[i, :k], partners).sum() / min(k, len(partners)) for k in AT]
            values.append(np.isin(best, order[i, : AT[-1]]).mean())
            scene = found.setdefault(mixed.scene[name], {key: [] for key in KEYS})
            for key, value in zip(KEYS, values, strict=True):
                scene[key].append(float(value))
    return {scene: {key: np.array(values) for key, values in keys.items()} for scene, keys in found.items()}


def shared_counts(mixed: Mixed, names: list[str]) -> np.ndarray:
    """(n, n) number of reconstructed points that two photos share."""
    index, shared = {name: i for i, name in enumerate(names)}, np.zeros((len(names), len(names)), int)
    for (first, second), count in mixed.shared.items():
        if first in index and second in index:
            shared[index[first], index[second]] = shared[index[second], index[first]] = count
    return shared


def main() -> None:
    """Print and store recall by model and group of scenes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for photos and features, kept")
    arguments = parser.parse_args()
    mixed = mix(arguments.scenes, arguments.work / "mixed")
    found = {}
    for files in features_of(mixed.images, mixed.names, arguments.work, MODELS):
        vectors = image_vectors(files, vocabulary_for(files))
        found[files.path.name] = recalls(mixed, files.names, similarities(vectors, vectors))
    ours, theirs = (found[model] for model in MODELS)
    kept = {scene for group in GROUPS.values() for scene in group}
    groups = {"all": sorted(ours), "training": sorted(set(ours) - kept), **GROUPS}
    results: dict = {"photos": len(mixed.names), "partner": f"{PARTNER} shared points", "groups": {}}
    for group, scenes in groups.items():
        rows = results["groups"][group] = {"scenes": [scene for scene in scenes if scene in ours]}
        for key in KEYS:
            each = [{scene: part[scene][key] for scene in rows["scenes"]} for part in (ours, theirs)]
            row = {model: estimate(values) for model, values in zip(MODELS, each, strict=True)}
            row["difference"] = paired_difference(*each)
            rows[key] = {name: {"mean": round(e.mean, 4), "std": round(e.std, 4)} for name, e in row.items()}
            print(f"{group:12} {key:14} " + "   ".join(f"{name} {value.text(1, 100)}" for name, value in row.items()))
    results["scenes"] = {
        model: {scene: {key: round(float(v.mean()), 4) for key, v in keys.items()} for scene, keys in part.items()}
        for model, part in found.items()
    }
    write_json(TARGET, results)


if __name__ == "__main__":
    run_script(main)
