"""A pair of photos that is always there: scikit-image's stereo pair, or a rendered one where it is not installed."""

import numpy as np

from matchkernel.data.rendering import Plane, View, photograph, turn
from matchkernel.data.synthetic import random_texture
from matchkernel.errors import MissingExtraError
from matchkernel.storage.extras import need

# Corner, u and v of a wall, a floor, and a board in front of them.
PLANES = np.array(
    [
        [(-4, -3, 8), (8, 0, 0), (0, 6, 0)],
        [(-4, 3, 2), (8, 0, 0), (0, 0, 6)],
        [(0.5, -0.5, 5.5), (1.6, 0, 0.4), (0, 2, 0)],
    ]
)


def load_motorcycle() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(H, W, 3) left and right image, (H, W) disparity of the left, not finite where unknown. Nothing is downloaded."""
    left, right, disparity = need("skimage.data", "demo", "the demo").stereo_motorcycle()
    return left, right, disparity


def sample_pair() -> tuple[np.ndarray, np.ndarray]:
    """Two uint8 photos of one scene: Middlebury's motorcycle, (H, W, 3), or rendered planes, (H, W)."""
    try:
        left, right, _ = load_motorcycle()
    except MissingExtraError:
        return rendered_pair()
    return left, right


def rendered_pair(width: int = 640, height: int = 480) -> tuple[np.ndarray, np.ndarray]:
    """Two (H, W) photos of textured planes, from places apart; always the same."""
    random = np.random.default_rng(0)
    planes = [Plane(corner, u, v, random_texture(512, random)) for corner, u, v in PLANES]
    photos = []
    for side in (-0.5, 0.5):
        R = turn(1, 0.12 * side) @ turn(2, 0.2 * side)
        view = View(R, -R @ np.array([side, 0.1 * side, 0.0]), 0.9 * width, width, height)
        photos.append(photograph(planes, view, random))
    return photos[0], photos[1]
