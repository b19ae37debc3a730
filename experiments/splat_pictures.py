"""Draw the pictures of docs/splats.md: photos of a rendered scene, and the model that `matchkernel colmap` makes of it.

The scene is a wall, a floor, another wall and a board, with CC0 photos of scikit-image on them.

    python experiments/splat_pictures.py docs/images
"""

import argparse
import sys
import tempfile
from pathlib import Path

import cv2
import numpy as np
from PIL import Image

sys.path.append(str(Path(__file__).parent / "photos"))
from rendering import View, turn

PHOTOS, WIDTH, HEIGHT = 8, 480, 360
FINER = 2  # pixels of the drawing along each side of a pixel of a photo
PLANES = [  # corner, u, v, photo
    ((-4, -3, 8), (8, 0, 0), (0, 6, 0), "brick"),
    ((-4, 3, 2), (8, 0, 0), (0, 0, 6), "grass"),
    ((-4, -3, 2), (0, 0, 6), (0, 6, 0), "gravel"),
    ((0.2, -0.8, 5.5), (2.4, 0, 0.5), (0, 1.6, 0), "coffee"),
]


def main() -> None:
    """Render, reconstruct, draw."""
    from skimage import data

    from matchkernel.collection.reconstruct import ReconstructSettings, reconstruct
    from matchkernel.geometry.detect import Detector

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="folder of the pictures")
    parser.add_argument("--keep", type=Path, help="folder for the photos and the model (default: removed)")
    options = parser.parse_args()
    planes = [(*map(np.array, place), _colour(getattr(data, name)())) for *place, name in PLANES]
    random = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        photos = folder / "photos"
        photos.mkdir(parents=True)
        for number in range(PHOTOS):
            Image.fromarray(_photograph(planes, _view(number, random))).save(
                photos / f"IMG_{number:04}.jpg", quality=92
            )
        settings = ReconstructSettings(Detector(keypoints=2000))
        found = reconstruct(photos, folder / "model", "rootsift", settings, say=print)
        print(f"{found.registered} of {found.images} photos, {found.points:,} points, {found.error:.3f} px")
        sheet = Image.new("RGB", (4 * 200, 2 * 150), "white")
        for number, path in enumerate(sorted(photos.iterdir())):
            with Image.open(path) as image:
                sheet.paste(image.resize((196, 147)), (200 * (number % 4) + 2, 150 * (number // 4) + 2))
        sheet.save(options.out / "splat_photos.jpg", quality=85)
        with Image.open(folder / "model" / "model.png") as image:
            image.quantize(64).save(options.out / "splat_model.png", optimize=True)


def _colour(pixels: np.ndarray) -> np.ndarray:
    """A texture in RGB; gray ones get a tint."""
    return pixels if pixels.ndim == 3 else (pixels[..., None] * np.array([1.0, 0.9, 0.75])).astype(np.uint8)


def _photograph(planes: list[tuple[np.ndarray, ...]], view: View) -> np.ndarray:
    """(H, W, 3) uint8; later planes are in front of earlier ones."""
    size = FINER * WIDTH, FINER * HEIGHT
    to_pixels = FINER * np.array([[view.focal, 0, view.middle[0]], [0, view.focal, view.middle[1]], [0, 0, 1 / FINER]])
    canvas = np.full((size[1], size[0], 3), 128, np.uint8)
    for corner, u, v, texture in planes:
        height, width = texture.shape[:2]
        H = to_pixels @ np.column_stack([view.R @ u / width, view.R @ v / height, view.R @ corner + view.t])
        drawn = cv2.warpPerspective(texture, H, size)
        is_there = cv2.warpPerspective(np.ones((height, width), np.uint8), H, size, flags=cv2.INTER_NEAREST)
        canvas[is_there > 0] = drawn[is_there > 0]
    return cv2.resize(canvas, (WIDTH, HEIGHT), interpolation=cv2.INTER_AREA)


def _view(number: int, random: np.random.Generator) -> View:
    """Cameras on an arc before the scene."""
    side = -1.8 + 3.6 * number / (PHOTOS - 1)
    centre = np.array([side, random.uniform(-0.8, 0.5), random.uniform(-0.5, 1.2)])
    yaw = np.arctan2(-0.6 * side, 6) + random.normal(0, 0.03)
    R = turn(2, random.normal(0, 0.05)) @ turn(0, random.normal(0.05, 0.04)) @ turn(1, -yaw)
    return View(R, -R @ centre, 0.9 * WIDTH, WIDTH, HEIGHT)


if __name__ == "__main__":
    main()
