"""Frames: where a patch lies in an image, as a centre and a 2 x 2 shape."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from matchkernel.errors import ArgumentError


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
