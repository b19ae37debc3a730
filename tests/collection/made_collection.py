"""A few photos of one texture, seen through known rotations, and their features."""

from copy import copy
from pathlib import Path

from made_images import save, texture, turned

from matchkernel.collection.extract import extract_images
from matchkernel.collection.pairs import all_pairs
from matchkernel.collection.reconstruct import ReconstructSettings
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import open_describer
from matchkernel.storage.photo_folders import photos_at

DETECTOR = Detector(keypoints=60)
SETTINGS = ReconstructSettings(Detector(keypoints=500))


def find_images(places: list) -> dict[str, Path]:
    """Images of folders, files and patterns by name."""
    return photos_at(places).paths


def write_photos(folder: Path, count: int = 6) -> dict[str, Path]:
    """Photos by name."""
    folder.mkdir(parents=True)
    scene = texture(0, 150, 180)
    for number in range(count):
        save(turned(scene, 8 * number)[0], folder / f"{number:02}.png")
    return find_images([folder])


def write_made_features(folder: Path, count: int = 6, kind: str = "features.h5") -> tuple[Path, list[tuple[str, str]]]:
    """Their features by SIFT, and all pairs."""
    images = write_photos(folder / "photos", count)
    extract_images(images, folder / kind, open_describer("sift"), DETECTOR)
    return folder / kind, list(all_pairs(list(images)))


def computing_by(describer, compute):
    """The same describer with another function that computes descriptors."""
    changed = copy(describer)
    changed.compute = compute
    return changed
