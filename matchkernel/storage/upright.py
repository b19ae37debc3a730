"""The orientation in a photo's EXIF header: how it is turned for people to look at, and where its pixels are stored."""

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from PIL import Image

ORIENTATION = 0x0112  # EXIF tag
# Value of the tag -> rows and columns are exchanged, then left and right are, then top and bottom.
TURNS = {
    2: (False, True, False),
    3: (False, True, True),
    4: (False, False, True),
    5: (True, False, False),
    6: (True, True, False),
    7: (True, True, True),
    8: (True, False, True),
}
AS_STORED = (False, False, False)
Turn = tuple[bool, bool, bool]


def turn_of(image: "Image.Image") -> Turn:
    """How the pixels of a photo are to be turned, after they were read: some decoders turn them and say so then."""
    return TURNS.get(image.getexif().get(ORIENTATION, 1), AS_STORED)


def turned(pixels: np.ndarray, turn: Turn) -> np.ndarray:
    """(H, W, ...) pixels, turned."""
    exchanged, sideways, upside_down = turn
    pixels = pixels.swapaxes(0, 1) if exchanged else pixels
    return pixels[:: -1 if upside_down else 1, :: -1 if sideways else 1]


def to_stored(turn: Turn, width: int, height: int) -> np.ndarray:
    """(3, 3): from pixels of the turned photo, which is width x height, to those that are stored.

    Example:
        >>> from matchkernel.storage.upright import TURNS, to_stored
        >>> (to_stored(TURNS[3], 640, 480) @ [0, 0, 1]).tolist()
        [639.0, 479.0, 1.0]
    """
    exchanged, sideways, upside_down = turn
    found = np.eye(3)
    if sideways:
        found[0] = -1, 0, width - 1
    if upside_down:
        found[1] = 0, -1, height - 1
    return found[[1, 0, 2]] if exchanged else found


def turned_points(points: np.ndarray, turn: Turn, size: tuple[int, int]) -> np.ndarray:
    """(M, 2) x, y in a photo stored with this width and height, where they are when it is turned."""
    back = to_stored(turn, *(size[::-1] if turn[0] else size))
    moved: np.ndarray = (points - back[:2, 2]) @ back[:2, :2]
    return moved
