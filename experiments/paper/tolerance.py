"""Patches of matching keypoints, one of each pair shifted, turned or scaled by known amounts.

python experiments/paper/tolerance.py DATA SETS

The pairs are images 1 and 2 of the validation sequences. The reference is cut at a keypoint of image 1, its match where
the homography takes it in image 2, changed there. Writes SETS/tolerance.npz.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from data import SEQUENCES

from matchkernel.cli.console import run_script
from matchkernel.data.from_homographies import read_homography
from matchkernel.geometry.conventions import SET_MAGNIFICATION
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.homography import warp_frames
from matchkernel.geometry.sampling import extract_patches
from matchkernel.storage.files import replacing
from matchkernel.storage.images import read_gray

MOST, SIZE = 300, 64  # keypoints of a sequence, pixels
AMOUNTS = {
    "shift": np.linspace(0, 0.6, 9),  # half sides, in a direction drawn for each keypoint
    "rotation": np.linspace(0, 45, 10),  # degrees
    "scale": np.linspace(-1, 1, 9),  # octaves
}


def changed(frames: Frames, kind: str, amount: float, directions: np.ndarray) -> Frames:
    """Frames shifted, turned or scaled in the coordinates of their own patches."""
    if kind == "shift":
        step = amount * np.stack([np.cos(directions), np.sin(directions)], -1)
        return Frames(frames.centers + (frames.shapes @ step[..., None])[..., 0], frames.shapes)
    if kind == "rotation":
        t = np.deg2rad(amount)
        return Frames(frames.centers, frames.shapes @ np.array([[np.cos(t), -np.sin(t)], [np.sin(t), np.cos(t)]]))
    return Frames(frames.centers, frames.shapes * 2**amount)


def main() -> None:
    """Cut the patches of all validation sequences."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("sets", type=Path)
    arguments = parser.parse_args()
    data, sets = arguments.data, arguments.sets
    random = np.random.default_rng(0)
    parts: dict[str, list[np.ndarray]] = {"reference": [], **{kind: [] for kind in AMOUNTS}}
    for name in [sequence for names in SEQUENCES["validation"].values() for sequence in names]:
        one, two = (read_gray(data / "homography" / name / f"{k}.jpg") for k in (1, 2))
        frames = Detector(keypoints=0, magnification=SET_MAGNIFICATION).detect(one).frames
        exact, in_front = warp_frames(read_homography(data / "homography" / name / "H_1_2"), frames)
        largest = Frames(exact.centers, exact.shapes * 2)  # covers every change
        inside = frames.are_inside(one.shape[1], one.shape[0]) & largest.are_inside(two.shape[1], two.shape[0])
        chosen = np.flatnonzero(in_front & inside)[:MOST]
        directions = random.uniform(0, 2 * np.pi, len(chosen))
        parts["reference"].append(extract_patches(one, frames[chosen], SIZE))
        for kind, amounts in AMOUNTS.items():
            cut = [extract_patches(two, changed(exact[chosen], kind, a, directions), SIZE) for a in amounts]
            parts[kind].append(np.stack(cut))
        print(name, len(chosen), flush=True)
    arrays = {kind: np.concatenate(cuts, 0 if kind == "reference" else 1) for kind, cuts in parts.items()}
    arrays |= {f"{kind}_amounts": amounts for kind, amounts in AMOUNTS.items()}
    with replacing(sets / "tolerance.npz") as part, part.open("wb") as file:
        np.savez(file, **arrays)


if __name__ == "__main__":
    run_script(main)
