"""A pair of photos that comes with the package: Middlebury's motorcycle, with the true disparity."""

from pathlib import Path

import numpy as np

from matchkernel.storage.images import open_image, read_colour

FOLDER = Path(__file__).parent / "motorcycle"
STEPS_PER_PIXEL = 512  # of the stored disparity


def load_motorcycle() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(H, W, 3) uint8 left and right image, (H, W) disparity of the left, NaN where unknown."""
    with open_image(FOLDER / "disparity.png") as image:
        steps = np.asarray(image)
    disparity = np.where(steps > 0, steps / np.float32(STEPS_PER_PIXEL), np.float32(np.nan))
    return read_colour(FOLDER / "left.png"), read_colour(FOLDER / "right.png"), disparity
