"""Photos and distractors for retrieval_scale.py: real descriptors, and a cheap way to very many images.

A photo and a few warps of it (rotated, scaled, sheared, brightened) are really described, by `tiny` in 8 bits at few
keypoints. A distractor is made from the rows of one of these images: those inside a random window, a crop, of which a
random part is left. A crop described anew has nearly the rows of its window, so this is what crops would give, without
describing 100,000 of them; what it leaves out is keypoints that a change of size would move.
"""

from collections.abc import Iterator
from pathlib import Path

import cv2
import numpy as np

from matchkernel.collection.vectors import assign
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import extract_with, open_describer
from matchkernel.storage.arrays import unit_rows
from matchkernel.storage.files import replacing
from matchkernel.storage.images import read_gray

MODEL, ENGINE, SUFFIXES = "tiny", "onnx-int8", (".jpg", ".jpeg", ".png")
KEYPOINTS, WARPED_KEYPOINTS, SIDE, WARPS = 1000, 600, 640, 1
LEAST_SHARE, LEAST_ROWS = 0.25, 30  # of a window's sides; of what is left in it


def describe_all(scenes: list[Path], work: Path) -> list[Path]:
    """Describe the photos of scenes and warps of them; one file each, those that are there are kept."""
    describer, found = open_describer(MODEL, engine=ENGINE), []
    for warp in range(WARPS + 1):
        for scene in sorted(scenes):
            photos = sorted(path for path in (scene / "images").iterdir() if path.suffix.lower() in SUFFIXES)
            for number, photo in enumerate(photos):
                file = work / scene.name / f"{photo.name}.{warp}.npz"
                found.append(file)
                if file.exists():
                    continue
                gray = read_gray(photo)
                image = gray if warp == 0 else warped(gray, np.random.default_rng([number, warp]))
                features = extract_with(image, describer, Detector(keypoints=WARPED_KEYPOINTS if warp else KEYPOINTS))
                places = features.keypoints / np.array(features.image_size)
                file.parent.mkdir(parents=True, exist_ok=True)
                with replacing(file) as part, part.open("wb") as stream:
                    np.savez(stream, rows=features.descriptors.astype(np.float16), places=places.astype(np.float32))
        print(f"{len(found)} images described", flush=True)
    return found


def warped(gray: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The photo turned, scaled, sheared and brightened, at most SIDE pixels wide or high."""
    height, width = gray.shape
    scale = SIDE / max(height, width) * random.uniform(0.6, 1.0)
    turn, shear = random.uniform(-0.5, 0.5), random.uniform(-0.2, 0.2)
    A = scale * np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]]) @ [[1, shear], [0, 1]]
    size = (int(width * scale), int(height * scale))
    shift = np.array(size) / 2 - A @ [width / 2, height / 2]
    small = cv2.warpAffine(gray, np.column_stack([A, shift]), size, flags=cv2.INTER_AREA)
    return cv2.convertScaleAbs(small, alpha=random.uniform(0.7, 1.2), beta=random.uniform(-20, 20))


def crop_vectors(file: Path, centres: np.ndarray, count: int, seed: int) -> Iterator[np.ndarray]:
    """Vectors of `count` distractors of a described image: what global_vector gives for the rows that are left."""
    random = np.random.default_rng(seed)
    with np.load(file) as content:
        rows, places = content["rows"].astype(np.float32), content["places"]
    nearest = assign(rows, centres)
    order = np.argsort(nearest, kind="stable")
    nearest, places, differences = nearest[order], places[order], (rows - centres[nearest])[order]
    for _ in range(count):
        left = crop(places, random)
        used, starts = np.unique(nearest[left], return_index=True)
        cells = np.zeros(centres.shape, np.float32)
        cells[used] = unit_rows(np.add.reduceat(differences[left], starts, axis=0)) * len(used) ** -0.25
        yield cells


def crop(places: np.ndarray, random: np.random.Generator) -> np.ndarray:
    """The rows inside a random window, a random part of them left, in their order."""
    side = random.uniform(LEAST_SHARE, 0.8, 2)
    corner = random.uniform(0, 1 - side)
    inside = np.flatnonzero(((places >= corner) & (places < corner + side)).all(1))
    if len(inside) < LEAST_ROWS:
        inside = np.arange(len(places))
    return np.sort(random.permutation(inside)[: max(LEAST_ROWS, int(len(inside) * random.uniform(0.5, 1)))])
