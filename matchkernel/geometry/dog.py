"""DoG keypoints by OpenCV's SIFT detector; a budget of the largest ones is searched in a smaller copy of a large photo.

A copy of half the side has the keypoints of the photo but for those of its smallest octave. So a copy in which the
budget is found has the largest ones, at a fraction of the seconds and of the memory.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from matchkernel.storage.extras import need_opencv

# OpenCV's SIFT doubles the image and keeps eleven float32 images of that size: 180 bytes per pixel, 2.8 GB here.
SIFT_PIXELS = 16_000_000
DENSITY = 0.01  # keypoints per pixel of the first copy; photos have 0.003 to 0.015 at the default contrast
SMALLEST = 25_000  # pixels of a copy: smaller ones were never scored
TORCH_DOG = "SIFT's DoG, precise upscale, in torch"  # recorded with keypoints of device_dog.py
LARGE = 800  # pixels of a photo for each keypoint of the budget, above which copies are searched


@dataclass(frozen=True)
class SearchImage:
    """A photo, or a smaller copy of it, in which keypoints are searched.

    Attributes:
        gray: (h, w) uint8.
        mask: (h, w) uint8 or None: no keypoints where it is 0.
        scale: of x and of y, and
        shift: a position p of the copy is at scale * p + shift of the photo.
    """

    gray: np.ndarray
    mask: np.ndarray | None
    scale: tuple[float, float]
    shift: tuple[float, float]

    def to_photo(self, rows: np.ndarray) -> None:
        """Move (K, 6) rows of OpenCV's x, y, size, angle, response, octave from the copy to the photo, in place."""
        rows[:, :2] = rows[:, :2] * self.scale + self.shift
        size = float(np.sqrt(np.prod(self.scale)))
        rows[:, 2] *= size
        octaves = rows[:, 5].astype(np.int64)  # OpenCV's bits: the octave is the lowest byte, signed
        rows[:, 5] = (octaves & ~255) | ((octaves + round(np.log2(size))) & 255)


def search_images(
    gray: np.ndarray, mask: np.ndarray | None, budget: int, density: float, max_pixels: int = SIFT_PIXELS
) -> Iterator[SearchImage]:
    """Where to search for a budget of keypoints until it is found: if the photo is large, in copies of budget / density
    pixels (or `SMALLEST`), of four times as many, and so on; at last in the photo itself.

    The photo itself is halved until it has at most `max_pixels`. With density 0 there are no copies.
    """
    pixels = max(budget / density, SMALLEST) if density and gray.size > LARGE * budget else gray.size
    while 2 * pixels <= min(gray.size, 2 * max_pixels):
        yield _copy(gray, mask, pixels)
        pixels *= 4
    gray, factor = halved(gray, max_pixels)
    mask = mask if mask is None else np.ascontiguousarray(_inner(mask, factor)[::factor, ::factor])
    yield SearchImage(gray, mask, (factor, factor), (0, 0))


def _copy(gray: np.ndarray, mask: np.ndarray | None, pixels: float) -> SearchImage:
    """A copy of about so many pixels."""
    (height, width), factor, cv2 = gray.shape, (gray.size / pixels) ** 0.5, need_opencv()
    size = max(1, round(width / factor)), max(1, round(height / factor))
    less = cv2.resize(gray, size, interpolation=cv2.INTER_AREA)
    x, y = width / size[0], height / size[1]
    seen = None if mask is None else cv2.resize(_inner(mask, max(x, y)), size, interpolation=cv2.INTER_NEAREST_EXACT)
    return SearchImage(less, seen, (x, y), ((x - 1) / 2, (y - 1) / 2))


def _inner(mask: np.ndarray, factor: float) -> np.ndarray:
    """The mask without pixels of which, in a copy smaller by the factor, a masked one would be part."""
    side = 2 * int(np.ceil(factor / 2)) + 1
    return mask if factor == 1 else np.asarray(need_opencv().erode(mask, np.ones((side, side), np.uint8)))


def halved(image: np.ndarray, max_pixels: int = SIFT_PIXELS) -> tuple[np.ndarray, int]:
    """Halve (H, W) gray until it has at most `max_pixels`; also the factor from its coordinates to the image's."""
    cv2, factor = need_opencv(), 1
    while image.size > max_pixels and image.size > 1:
        image, factor = cv2.pyrDown(image), 2 * factor  # pixel (i, j) lies at (2 i, 2 j)
    return image, factor


def dog_points(image: SearchImage, contrast: float, edge: float) -> np.ndarray:
    """(K, 6) x, y, size, angle, response, octave. Without OpenCV's precise upscaling they lie 0.25 pixels too far right
    and down.
    """
    sift = need_opencv().SIFT_create(contrastThreshold=contrast, edgeThreshold=edge, enable_precise_upscale=True)
    points = sift.detect(image.gray, image.mask)
    rows = [(*point.pt, point.size, point.angle, point.response, point.octave) for point in points]
    return np.array(rows, np.float64).reshape(-1, 6)


_free_pixels = [SIFT_PIXELS]
_freed = threading.Condition()


@contextmanager
def room_for(pixels: int) -> Iterator[None]:
    """Wait until the images in detection, of all threads, have at most the pixels of one largest image."""
    pixels = min(pixels, SIFT_PIXELS)
    with _freed:
        _freed.wait_for(lambda: _free_pixels[0] >= pixels)
        _free_pixels[0] -= pixels
    try:
        yield
    finally:
        with _freed:
            _free_pixels[0] += pixels
            _freed.notify_all()
