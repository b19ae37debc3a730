"""A collection of as many photos as wanted: parts of a few real ones, cut out at random places, turned and scaled."""

from pathlib import Path

import cv2
import numpy as np

from matchkernel.collection.extract import find_images
from matchkernel.storage.images import read_gray

PHOTOS = Path(__file__).parents[1] / "tests" / "photos_cc0" / "images"


def write_collection(folder: Path, count: int, places: list[Path], size: tuple[int, int] = (320, 240)) -> list[str]:
    """Write so many photos of this width and height; the same ones every time. Returns their names."""
    paths = [path for place in places or [PHOTOS] for path in find_images([place]).values()]
    sources = [read_gray(path) for path in paths]
    random = np.random.default_rng(0)
    names = [f"{number:05}.png" for number in range(count)]
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        source = sources[number % len(sources)]
        scale, angle = np.exp(random.uniform(-0.3, 0.3)), random.uniform(-30, 30)
        centre = random.uniform(0.3, 0.7, 2) * source.shape[::-1]
        warp = cv2.getRotationMatrix2D(tuple(centre), angle, scale)
        warp[:, 2] += np.array(size) / 2 - centre
        part = cv2.warpAffine(source, warp, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(folder / name), part)
    return names
