"""Cut patches at frames from an image, without aliasing."""

import threading

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.frames import Frames
from matchkernel.storage.extras import need_opencv

SAMPLER = "pyramid-1"  # recorded in manifests; must change whenever the pixels of a patch would change
DEVICE_SAMPLER = "pyramid-1-device"  # recorded with features of a GPU; differs from SAMPLER by rounding


def extract_patches(image: np.ndarray, frames: Frames, size: int = 64) -> np.ndarray:
    """Cut the region of every frame from an image and resample it to size x size pixels.

    Pixel (column k, row l) of a patch is the image at c + A (u_k, u_l), u_k = (2k + 1) / size - 1, interpolated
    linearly in the level of a Gaussian pyramid where neighbouring samples are nearest to one pixel apart. Level l is
    the image blurred by the kernel 1 4 6 4 1 and halved l times; its pixel (i, j) is at (2^l i, 2^l j). Outside
    the image the border is repeated. The level follows the mean scale of a region: one that is strongly stretched may
    alias along its long axis.

    Args:
        image: (H, W) gray, uint8 or float32.
        frames: K regions.
        size: side of the patches.

    Returns:
        (K, size, size) in the image's number type.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.frames import Frames
        >>> from matchkernel.geometry.sampling import extract_patches
        >>> image = np.arange(100, dtype=np.uint8).reshape(10, 10)
        >>> frames = Frames(np.array([[4.0, 3.0]]), 1.5 * np.eye(2)[None])
        >>> extract_patches(image, frames, size=3)[0].tolist()
        [[23, 24, 25], [33, 34, 35], [43, 44, 45]]
    """
    return Pyramid(image).cut(frames, size)


class Pyramid:
    """An image that patches are cut from, some at a time or in several threads; see extract_patches."""

    def __init__(self, image: np.ndarray) -> None:
        self.levels = [image]
        self._lock = threading.Lock()

    def cut(self, frames: Frames, size: int) -> np.ndarray:
        """(K, size, size) patches of the regions, in the image's number type."""
        image = self.levels[0]
        check_cut(image.shape, image.dtype in (np.uint8, np.float32), str(image.dtype), frames, size)
        cv2 = need_opencv()
        levels = pyramid_levels(frames.half_widths * 2 / size, min(image.shape))
        with self._lock:
            while len(self.levels) <= levels.max(initial=0):
                self.levels.append(cv2.pyrDown(self.levels[-1]))
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        patches = np.empty((len(frames), size, size), image.dtype)
        for patch, level, matrix in zip(patches, levels, sampling_matrices(frames, levels, size), strict=True):
            cv2.warpAffine(
                self.levels[level], matrix, (size, size), dst=patch, flags=flags, borderMode=cv2.BORDER_REPLICATE
            )
        return patches


def check_cut(shape: tuple[int, ...], is_gray: bool, dtype: str, frames: Frames, size: int) -> None:
    """Refuse an image, frames or a size that patches cannot be cut with."""
    if len(shape) != 2 or not is_gray or 0 in shape:
        raise ArgumentError(f"an image must be (H, W) gray, uint8 or float32, got {dtype} of shape {tuple(shape)}")
    if size < 1:
        raise ArgumentError(f"the side of a patch must be 1 or more, got {size}")
    if not (np.isfinite(frames.centers).all() and np.isfinite(frames.shapes).all()):
        raise ArgumentError("frames contain values that are not finite")


def pyramid_levels(steps: np.ndarray, shorter_side: int) -> np.ndarray:
    """The pyramid level of each frame, from the distance between its samples in pixels."""
    highest = max(0, int(np.log2(max(1, shorter_side))) - 2)  # a level of fewer than 4 pixels has no content
    with np.errstate(divide="ignore"):
        return np.clip(np.round(np.log2(steps)), 0, highest).astype(np.int64)


def sampling_matrices(frames: Frames, levels: np.ndarray, size: int) -> np.ndarray:
    """(K, 2, 3) maps from patch pixels to pixels of the frame's level."""
    scale = 0.5 ** levels[:, None, None]
    first = np.full(2, 1 / size - 1)  # u of patch pixel 0
    # Far outside everything is border; clamped because OpenCV uses 32-bit integers.
    centers = np.clip(frames.centers, -1e6, 1e6)
    corner = centers + frames.shapes @ first
    return np.concatenate([frames.shapes * (2 / size), corner[..., None]], 2) * scale
