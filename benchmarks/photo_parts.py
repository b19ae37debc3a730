"""As many photos as wanted, parts of a few real ones, cut out at random places, turned and scaled; and a large pair."""

from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from matchkernel.data.sample_pair import FOLDER

PHOTOS = Path(__file__).parents[1] / "tests" / "photos_cc0" / "images"


def write_photos(
    folder: Path, count: int, sources: Sequence[Path] = (), size: tuple[int, int] = (640, 480)
) -> list[str]:
    """Write photos of this width and height, the same ones every time; returns their names.

    Args:
        folder: is made.
        count: number of photos.
        sources: folders of photos to cut from; by default those of the tests.
        size: width and height.
    """
    paths = sorted(path for place in sources or [PHOTOS] for path in place.iterdir())
    images = [image for path in paths if (image := cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)) is not None]
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{number:05}.png" for number in range(count)]
    for number, name in enumerate(names):
        image = images[number % len(images)]
        scale, angle = np.exp(random.uniform(-0.3, 0.3)), random.uniform(-30, 30)
        centre = random.uniform(0.3, 0.7, 2) * image.shape[::-1]
        warp = cv2.getRotationMatrix2D(tuple(centre), angle, scale)
        warp[:, 2] += np.array(size) / 2 - centre
        part = cv2.warpAffine(image, warp, size, flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REFLECT)
        cv2.imwrite(str(folder / name), part)
    return names


def write_enlarged(folder: Path, pixels: int = 12_000_000) -> list[Path]:
    """The stereo pair of the demo, enlarged to so many pixels; returns its files."""
    paths = [folder / "left.jpg", folder / "right.jpg"]
    for path in paths:
        image = cv2.imread(str(FOLDER / path.with_suffix(".png").name))
        factor = (pixels / (image.shape[0] * image.shape[1])) ** 0.5
        cv2.imwrite(str(path), cv2.resize(image, None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC))
    return paths
