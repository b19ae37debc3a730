"""Whether photos have the same descriptors and geometry on other processors as on this one, by emulation.

python experiments/engines/other_processors.py NAME='COMMAND OF PYTHON' ...

Each command starts a Python that has the package's requirements on an emulated processor, such as one without AVX:

    'without AVX=qemu-x86_64-static -cpu Nehalem .venv/bin/python'

Writes results/other_processors.json. Seconds of an emulation mean nothing, and none are kept.
"""

import json
import platform
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.data.sample_pair import FOLDER
from matchkernel.geometry.frames import Frames, extract_patches
from matchkernel.photos.pipeline import match_images
from matchkernel.runtime.onnx import INT8, ONNX, open_onnx, prepare_patches
from matchkernel.runtime.weights import read_weights
from matchkernel.storage.files import write_json
from matchkernel.storage.pixels import as_gray

TARGET = Path(__file__).parents[1] / "results" / "other_processors.json"
MODELS, SIDE, KEYPOINTS = ("tiny", "small-wide", "light-wide", "light", "dual"), 32, 300


def compute(target: Path) -> None:
    """Write the rows of all models for patches on a grid, and what the default finds in a pair of photos."""
    photos = FOLDER / "left.png", FOLDER / "right.png"
    found = match_images(*photos, keypoints=KEYPOINTS)
    gray = as_gray(photos[0])
    across, down = np.meshgrid(np.linspace(0, gray.shape[1], 8), np.linspace(0, gray.shape[0], 8))
    centers = np.column_stack([across.ravel(), down.ravel()])
    cut = extract_patches(gray, Frames(centers, np.tile([[30.0, 12.0], [-12.0, 30.0]], (len(centers), 1, 1))), 64)
    patches = prepare_patches(cut[:, None], SIDE, "float32")[0]
    engines = {
        (name, engine): open_onnx(read_weights(name), engine, SIDE) for name in MODELS for engine in (INT8, ONNX)
    }
    rows = {f"{name}, {engine}": opened(patches) for (name, engine), opened in engines.items()}
    np.savez(target, machine=platform.machine(), inliers=found.inlier_points[0], **rows)


def compared(here: Any, there: Any) -> dict[str, Any]:
    """The lowest cosine of each model, and the inliers of both pairs with those of the same place to 0.1 px."""
    places = [{tuple(place) for place in np.round(values["inliers"], 1).tolist()} for values in (here, there)]
    return {
        "machine": str(there["machine"]),
        "keypoints": KEYPOINTS,
        "inliers_here": len(places[0]),
        "inliers": len(places[1]),
        "of_these_the_same": len(places[0] & places[1]),
        "lowest_cosine": {key: float((here[key] * there[key]).sum(1).min()) for key in here.files if ", " in key},
    }


def main() -> None:
    """Compute here and by each command; print and write how far they are from each other."""
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        here, there = Path(folder) / "here.npz", Path(folder) / "there.npz"
        compute(here)
        for name, command in (text.split("=", 1) for text in sys.argv[1:]):
            subprocess.run([*shlex.split(command), __file__, "--compute", str(there)], check=True)
            results[name] = compared(np.load(here), np.load(there))
            print(name, json.dumps(results[name], indent=1), flush=True)
    write_json(TARGET, results)


if __name__ == "__main__":
    compute(Path(sys.argv[2])) if sys.argv[1] == "--compute" else main()
