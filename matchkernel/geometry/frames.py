"""Frames, where a patch lies in an image: a centre and a 2 x 2 shape; patches cut at frames, without aliasing."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.storage.extras import need_opencv

SAMPLER = "pyramid-1"  # recorded in manifests; must change whenever the pixels of a patch would change
DEVICE_SAMPLER = "pyramid-1-device"  # recorded with features of a GPU; differs from SAMPLER by rounding


@dataclass(frozen=True)
class Frames:
    """K regions c + A [-1, 1]^2 of an image; the centre of the top-left pixel is (0, 0).

    Attributes:
        centers: (K, 2) float64, x and y in pixels.
        shapes: (K, 2, 2) float64, A: its columns are the patch's half axes in the image, x first.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.frames import Frames
        >>> frames = Frames.turned_squares(np.array([[20.0, 10.0]]), np.array([4.0]), np.array([0.0]))
        >>> frames.corners()[0].tolist()
        [[16.0, 6.0], [24.0, 6.0], [24.0, 14.0], [16.0, 14.0]]
    """

    centers: np.ndarray
    shapes: np.ndarray

    def __post_init__(self) -> None:
        centers, shapes = np.asarray(self.centers, np.float64), np.asarray(self.shapes, np.float64)
        if centers.ndim != 2 or centers.shape[1] != 2 or shapes.shape != (len(centers), 2, 2):
            raise ArgumentError(
                f"frames must be (K, 2) centres and (K, 2, 2) shapes, got {centers.shape}, {shapes.shape}"
            )
        object.__setattr__(self, "centers", centers)
        object.__setattr__(self, "shapes", shapes)

    @classmethod
    def turned_squares(cls, centers: np.ndarray, half_widths: np.ndarray, angles: np.ndarray) -> "Frames":
        """Squares with these half widths in pixels, rotated by these angles in radians (from +x towards +y)."""
        cos, sin = np.cos(angles), np.sin(angles)
        turns = np.stack([np.stack([cos, -sin], -1), np.stack([sin, cos], -1)], -2)
        return cls(np.asarray(centers), turns.reshape(-1, 2, 2) * np.asarray(half_widths).reshape(-1, 1, 1))

    @classmethod
    def of_points(cls, centers: np.ndarray) -> "Frames":
        """Squares of half width 1 for points whose size and direction are not known."""
        return cls(centers, np.tile(np.eye(2), (len(centers), 1, 1)))

    @property
    def are_points(self) -> bool:
        """True if there are frames and all have half width 1: sizes are not known."""
        return len(self) > 0 and np.allclose(self.half_widths, 1, rtol=0, atol=1e-6)

    @property
    def half_widths(self) -> np.ndarray:
        """(K,) half the side of a square of the same area: sqrt|det A|."""
        return np.sqrt(np.abs(np.linalg.det(self.shapes)))

    @property
    def angles(self) -> np.ndarray:
        """(K,) direction of the patch's x axis in the image: atan2(a21, a11)."""
        return np.arctan2(self.shapes[:, 1, 0], self.shapes[:, 0, 0])

    @property
    def are_squares(self) -> np.ndarray:
        """(K,) whether a region is a square, that is neither stretched nor mirrored, up to rounding in float32."""
        squares = Frames.turned_squares(self.centers, self.half_widths, self.angles).shapes
        return np.asarray(np.isclose(squares, self.shapes, rtol=1e-6, atol=1e-6).all((1, 2)))

    def scaled(self, factor: float) -> "Frames":
        """The same regions in an image whose coordinates are `factor` times as large."""
        return Frames(self.centers * factor, self.shapes * factor)

    def corners(self) -> np.ndarray:
        """(K, 4, 2) corners of the regions, in order around the patch."""
        square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]], np.float64)
        return self.centers[:, None] + np.einsum("kij,cj->kci", self.shapes, square)

    def are_inside(self, width: int, height: int) -> np.ndarray:
        """(K,) whether the whole region lies on the pixels of an image of this size."""
        corners = self.corners()
        return np.asarray(((corners >= -0.5) & (corners <= np.array([width, height]) - 0.5)).all((1, 2)))

    def __len__(self) -> int:
        return len(self.centers)

    def __getitem__(self, chosen: "slice | np.ndarray | Sequence[int]") -> "Frames":
        return Frames(self.centers[chosen], self.shapes[chosen])


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
        >>> from matchkernel.geometry.frames import extract_patches
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
