"""Draw two images side by side, with their matches as lines."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchkernel.photos.extract import Image, as_gray
from matchkernel.photos.pipeline import ImageMatches
from matchkernel.plots.canvas import BLACK, GRAY, new_figure, save_png
from matchkernel.storage.images import read_colour

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

GAP = 0.02  # gap between the images, as a share of their total width
WIDTH = 12.0  # of the figure in inches
MOST_SIDE = 3000  # pixels of an image handed to matplotlib, which takes a gigabyte for 30 million
MOST_LINES = 300  # maximum number drawn of each kind, evenly chosen; more would hide the images
INLIERS = "turbo"  # coloured by position in image A, so that crossing neighbours stand out


def draw_matches(
    image_a: np.ndarray,
    image_b: np.ndarray,
    points_a: np.ndarray,
    points_b: np.ndarray,
    inliers: np.ndarray | None,
    title: str = "",
) -> "Figure":
    """Draw inliers as coloured lines and the other matches faintly in gray.

    Args:
        image_a: (H, W) gray or (H, W, 3) colour, uint8.
        image_b: of any other size; drawn at the same scale, both centred vertically.
        points_a: (M, 2) x, y in image A.
        points_b: (M, 2) x, y in image B.
        inliers: (M,) bool; None if nothing was verified: all are drawn as inliers, and the title does not count them.
        title: text before the counts.
    """
    (height_a, width_a), (height_b, width_b) = image_a.shape[:2], image_b.shape[:2]
    gap = GAP * (width_a + width_b)
    width, height = width_a + width_b + gap, max(height_a, height_b)
    figure = new_figure(WIDTH, min(max(WIDTH * height / width, 1.5), 2 * WIDTH) + 0.4)
    axes = figure.add_subplot()
    at_a, at_b = np.array([0.0, (height - height_a) / 2]), np.array([width_a + gap, (height - height_b) / 2])
    for image, (left, top) in ((image_a, at_a), (image_b, at_b)):
        pixels, (covered_height, covered_width) = block_means(image)
        box = (left - 0.5, left + covered_width - 0.5, top + covered_height - 0.5, top - 0.5)
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=255, extent=box, interpolation="antialiased")
    segments = np.stack([points_a + at_a, points_b + at_b], 1)
    shown = np.ones(len(points_a), bool) if inliers is None else inliers
    _draw_lines(axes, segments, shown, points_a[:, 1] / max(height_a, 1))
    axes.set(xlim=(-0.5, width - 0.5), ylim=(height - 0.5, -0.5))
    axes.set_axis_off()
    counts = f"{len(shown):,} matches"
    if inliers is not None:
        counts = f"{int(inliers.sum()):,} of {counts} agree"
    if max(shown.sum(), (~shown).sum()) > MOST_LINES:
        counts += f" (at most {MOST_LINES} of each kind drawn)"
    axes.set_title(f"{title}: {counts}" if title else counts, fontsize=11, color=BLACK, loc="left")
    return figure


def save_picture(found: ImageMatches, a: Image, b: Image, path: str | Path, title: str = "") -> None:
    """Draw the matches between both images, side by side, as PNG.

    Args:
        found: the result of match_images.
        a: file or pixels of image A, in their colours.
        b: file or pixels of image B.
        path: PNG to write.
        title: text before the counts (default: the model's name).
    """
    (points_a, points_b), title = found.points, title or found.features[0].model
    inliers = None if found.verification is None else found.inliers
    figure = draw_matches(_pixels(a), _pixels(b), points_a, points_b, inliers, title)
    save_png(figure, path)


def block_means(image: np.ndarray, most: int = MOST_SIDE) -> tuple[np.ndarray, tuple[int, int]]:
    """Means of blocks, so that no side has twice as many pixels as `most`; also height and width of the part covered.

    Args:
        image: (H, W) or (H, W, 3) uint8.
        most: pixels of a side.
    """
    tall, wide = (max(1, length // most) for length in image.shape[:2])
    height, width = image.shape[0] // tall, image.shape[1] // wide
    if tall == wide == 1:
        return image, (height, width)
    rows = (image[i * tall : (i + 1) * tall, : width * wide] for i in range(height))
    means = np.stack([row.reshape(tall, width, wide, -1).mean((0, 2)) for row in rows])
    return np.round(means).astype(np.uint8).reshape(height, width, *image.shape[2:]), (height * tall, width * wide)


def _draw_lines(axes: "Axes", segments: np.ndarray, inliers: np.ndarray, colours: np.ndarray) -> None:
    from matplotlib import colormaps
    from matplotlib.collections import LineCollection

    wrong, right = _some(np.flatnonzero(~inliers)), _some(np.flatnonzero(inliers))
    paint = colormaps[INLIERS](0.08 + 0.84 * np.clip(colours[right], 0, 1))
    axes.add_collection(LineCollection(list(segments[wrong]), colors=GRAY, linewidths=0.4, alpha=0.3))
    axes.add_collection(LineCollection(list(segments[right]), colors=list(paint), linewidths=0.6, alpha=0.55))
    ends = segments[right].reshape(-1, 2)
    axes.scatter(ends[:, 0], ends[:, 1], s=5, c=np.repeat(paint, 2, axis=0), linewidths=0, alpha=0.9)


def _some(indices: np.ndarray) -> np.ndarray:
    if len(indices) <= MOST_LINES:
        return indices
    return indices[np.linspace(0, len(indices) - 1, MOST_LINES).astype(int)]


def _pixels(image: Image) -> np.ndarray:
    if isinstance(image, np.ndarray):
        return image if image.dtype == np.uint8 else as_gray(image)
    return read_colour(image)
