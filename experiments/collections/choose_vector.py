"""Compare ways to make one vector of an image's local descriptors, for choosing pairs; writes results/vectors.json.

python experiments/collections/choose_vector.py SCENES/* --work FOLDER

The photos of all scenes but the test scenes lie in one folder; every photo is a query. A partner is a photo that
shares at least 30 reconstructed points with it. The rule, written before the first number: the score of a way is the
mean of recall at 10 and at 20, averaged over the photos of a scene, then over scenes, with the validation scenes
counting as much as all training scenes together (they alone would not decide: a photo there has at most ten partners,
which most ways find), then over two descriptors, light-wide and RootSIFT. Taken is the smallest vocabulary whose best
way is within 0.005 of the best score, and of its ways the simplest within 0.001 of its best. Centres are learned from
photos of the training scenes.
"""

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from make_vocabularies import HELD_OUT, PER_PHOTO
from mixed_features import features_of
from one_folder import Mixed, mix
from recall import recalls

from matchkernel.cli.console import run_script
from matchkernel.collection.vectors import assign, learn_centres, sum_by_centre
from matchkernel.photos.features import Features
from matchkernel.photos.files import FeatureFiles
from matchkernel.storage.files import write_json

TEST, VALIDATION = {"truck", "statue"}, {"sceaux", "british_museum"}
MODELS = ["light-wide", "rootsift"]
TARGET = Path(__file__).parents[1] / "results" / "vectors.json"
Similar = Callable[[np.ndarray], np.ndarray]


def unit(rows: np.ndarray) -> np.ndarray:
    """Rows of length 1, or 0."""
    lengths = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1)


def dot(cells: np.ndarray) -> np.ndarray:
    """(n, n) dot products of (n, K, D) as vectors of length 1."""
    vectors = unit(cells.reshape(len(cells), -1))
    return vectors @ vectors.T


def root(cells: np.ndarray) -> np.ndarray:
    """Signed square root of every value."""
    return np.sign(cells) * np.sqrt(np.abs(cells))


def selective(power: float) -> Similar:
    """The aggregated selective match kernel: cosines of cells, negative ones dropped, to a power, summed."""

    def similar(cells: np.ndarray) -> np.ndarray:
        total = np.zeros((len(cells), len(cells)))
        for cell in unit(cells).transpose(1, 0, 2):
            total += np.maximum(cell @ cell.T, 0) ** power
        own = np.sqrt(np.diag(total))
        return total / np.outer(own, own)

    return similar


# From the simplest on.
WAYS: dict[str, Similar] = {
    "plain": dot,
    "cells of length 1": lambda cells: dot(unit(cells)),
    "square roots": lambda cells: dot(root(cells)),
    "square roots, cells of length 1": lambda cells: dot(unit(root(cells))),
    "selective, power 2": selective(2),
    "selective, power 3": selective(3),
}


def strongest(features: Features) -> np.ndarray:
    """Rows of the 1,000 strongest keypoints."""
    return features.descriptors[np.argsort(-features.scores, kind="stable")[:1000]]


def largest(features: Features) -> np.ndarray:
    """Rows of the 1,000 largest keypoints."""
    return features.descriptors[np.argsort(-features.scales, kind="stable")[:1000]]


# Number of centres, which rows, number of centres that a row is shared by.
SUMS: dict[str, tuple[int, Callable[[Features], np.ndarray], int]] = {
    **{f"{count} centres": (count, lambda features: features.descriptors, 1) for count in (16, 32, 64, 128, 256)},
    "64 centres, 1,000 strongest": (64, strongest, 1),
    "64 centres, 1,000 largest": (64, largest, 1),
    "64 centres, shared by 3": (64, lambda features: features.descriptors, 3),
}


def summed(rows: np.ndarray, centres: np.ndarray, shares: int) -> np.ndarray:
    """(K, D) sums of differences from the nearest centre, or from several with weights that fall with distance."""
    rows = rows[rows.any(1)].astype(np.float32)
    if shares == 1:
        nearest = assign(rows, centres)
        return sum_by_centre(rows - centres[nearest], nearest, len(centres)).astype(np.float32)
    squares = torch.cdist(torch.from_numpy(rows), torch.from_numpy(centres)).square()
    near, index = squares.topk(shares, largest=False)
    weights = torch.softmax(-near / squares.std(1, keepdim=True), 1).numpy()
    total = np.zeros(centres.shape, np.float64)
    for which, weight in zip(index.T.numpy(), weights.T, strict=True):
        total += sum_by_centre((rows - centres[which]) * weight[:, None], which, len(centres))
    return total.astype(np.float32)


def loaded(files: FeatureFiles, name: str) -> Features:
    """Features in half the memory, so that those of all photos fit."""
    features = files.load(name)
    return replace(features, descriptors=features.descriptors.astype(np.float16))


def score(mixed: Mixed, names: list[str], similar: np.ndarray) -> dict[str, float]:
    """Recall at 10 and 20 on validation and training scenes, and the score of the rule."""
    found = recalls(mixed, names, similar)
    parts = {}
    for kind, chosen in (("validation", VALIDATION), ("training", set(found) - VALIDATION)):
        for key in ("recall at 10", "recall at 20"):
            means = [np.mean(found[scene][key]) for scene in sorted(found) if scene in chosen]
            parts[f"{kind}, {key}"] = round(float(np.mean(means)), 4)
    return {**parts, "score": round(float(np.mean(list(parts.values()))), 4)}


def main() -> None:
    """Score every way with both descriptors."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("--work", type=Path, required=True, help="folder for photos and features, kept")
    arguments = parser.parse_args()
    mixed = mix(arguments.scenes, arguments.work / "mixed")
    names = [name for name in mixed.names if mixed.scene[name] not in TEST]
    results: dict[str, dict[str, dict[str, float]]] = {}
    for files in features_of(mixed.images, mixed.names, arguments.work, MODELS):
        learned, photos = {}, {name: loaded(files, name) for name in names}
        sample = [photos[name].descriptors for name in names if mixed.scene[name] not in HELD_OUT]
        spread = [np.unique(np.linspace(0, len(rows) - 1, PER_PHOTO).astype(int)) for rows in sample]
        rows = np.concatenate([some[index] for some, index in zip(sample, spread, strict=True)])
        for sums, (count, choose, shares) in SUMS.items():
            if count not in learned:
                learned[count] = learn_centres(rows[rows.any(1)], count)
            cells = np.stack([summed(choose(photos[name]), learned[count], shares) for name in names])
            for way, similar in WAYS.items():
                found = score(mixed, names, similar(cells))
                results.setdefault(f"{sums}; {way}", {})[files.path.name] = found
                print(f"{files.path.name:12} {sums:28} {way:34} {found}", flush=True)
    ordered = sorted(results.items(), key=lambda item: -np.mean([found["score"] for found in item[1].values()]))
    write_json(TARGET, dict(ordered))


if __name__ == "__main__":
    run_script(main)
