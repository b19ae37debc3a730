"""Make a scene as an RGB-D camera would see it: photos of 640 pixels, and only pairs with a wide baseline.

    python experiments/photos/indoor_scene.py SCENES/kitchen OUT/kitchen
    matchkernel evaluate photos OUT/kitchen --model light-wide

A pair has 15 or more common points of the COLMAP model, and camera axes that are far apart.
"""

import argparse
import shutil
from pathlib import Path

import cv2
import numpy as np

from matchkernel.cli.console import run_script
from matchkernel.evaluation.photos.scenes import read_scene
from matchkernel.storage.files import check_new_folder


def main() -> None:
    """Write the scene."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scene", type=Path, help="folder with images/ and sparse/")
    parser.add_argument("out", type=Path)
    parser.add_argument("--longest", type=int, default=640, help="pixels of the longer side")
    parser.add_argument("--apart", type=float, default=20, help="least angle between the axes of a pair, in degrees")
    options = parser.parse_args()
    check_new_folder(options.out)
    scene = read_scene(options.scene)
    (options.out / "images").mkdir(parents=True)
    shutil.copytree(options.scene / "sparse", options.out / "sparse")
    for name, path in scene.images.items():
        pixels = cv2.imread(str(path))
        factor = min(1.0, options.longest / max(pixels.shape[:2]))
        size = [round(length * factor) for length in pixels.shape[1::-1]]
        cv2.imwrite(str(options.out / "images" / name), cv2.resize(pixels, size, interpolation=cv2.INTER_AREA))
    axes = {name: camera.R[2] for name, camera in scene.cameras.items()}
    pairs = [(a, b) for a, b in scene.pairs if axes[a] @ axes[b] <= np.cos(np.deg2rad(options.apart))]
    (options.out / "pairs.txt").write_text("".join(f"{a} {b}\n" for a, b in pairs), encoding="utf-8")
    print(f"{len(pairs)} of {len(scene.pairs)} pairs -> {options.out}")


if __name__ == "__main__":
    run_script(main)
