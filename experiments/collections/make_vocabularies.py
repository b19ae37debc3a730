"""Make the vocabularies of the package, for choosing image pairs: k-means centres of descriptors of training photos.

python experiments/collections/make_vocabularies.py SCENES/liberty SCENES/castle ... [--only NAME ...]

Takes every photo of the scenes, which must be scenes that the networks were trained on: 4,000 keypoints are detected
as usual, and the same 150 of them, evenly spread over their sizes, are described by every model and by SIFT and
RootSIFT. A vocabulary that is there already and belongs to the same weights is kept. Writes
matchkernel/collection/vocabularies.safetensors.
"""

import argparse
import json
from pathlib import Path

import numpy as np
import torch

import matchkernel
from matchkernel.cli.console import run_script
from matchkernel.collection.vectors import SHIPPED, WEIGHTS, learn_centres, read_vocabularies
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import SIFTS, describe_frames, open_describer
from matchkernel.storage.images import SUFFIXES, read_gray
from matchkernel.storage.tensors import write_tensors

HELD_OUT = {"sceaux", "british_museum", "truck", "statue"}  # validation and test
PER_PHOTO = 150


def main() -> None:
    """Describe the photos with every model and write the centres."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scenes", nargs="+", type=Path)
    parser.add_argument("--only", nargs="+", default=[*matchkernel.available(), *SIFTS], help="models")
    arguments = parser.parse_args()
    scenes = sorted(arguments.scenes)
    if {scene.name for scene in scenes} & HELD_OUT:
        raise ArgumentError(f"{', '.join(sorted(HELD_OUT))} are kept for validation and test")
    centres, weights = read_vocabularies(SHIPPED) if SHIPPED.exists() else ({}, {})
    describers = {name: open_describer(name) for name in arguments.only}
    wanted = [
        name
        for name, describer in describers.items()
        if name not in centres or weights.get(name) != (None if name in SIFTS else describer.settings["weights"])
    ]
    rows: dict[str, list[np.ndarray]] = {name: [] for name in wanted}
    photos = [path for scene in scenes for path in sorted((scene / "images").iterdir()) if path.suffix in SUFFIXES]
    for number, path in enumerate(photos if wanted else []):
        gray, detector = read_gray(path), Detector()
        frames = detector.detect(gray).frames
        frames = frames[np.unique(np.linspace(0, len(frames) - 1, PER_PHOTO).astype(int))]
        for name in wanted:
            found = describe_frames(gray, frames, describers[name], detector)
            rows[name].append(found[found.any(1)])
        print(f"\r{number + 1} of {len(photos)} photos", end="", flush=True)
    for name in wanted:
        centres[name] = learn_centres(np.concatenate(rows[name]))
        if name not in SIFTS:
            weights[name] = describers[name].settings["weights"]
        about = {"scenes": ", ".join(scene.name for scene in scenes), WEIGHTS: json.dumps(weights, sort_keys=True)}
        write_tensors(SHIPPED, {name: torch.from_numpy(rows).half() for name, rows in centres.items()}, about)
        print(f"\n{name}: {len(centres[name])} centres of {sum(map(len, rows[name])):,} descriptors -> {SHIPPED}")


if __name__ == "__main__":
    run_script(main)
