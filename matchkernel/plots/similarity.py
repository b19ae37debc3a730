"""Picture of similarity maps: one position of a patch against all positions of another (the paper's Figure 2)."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from matchkernel.plots.canvas import ORANGE, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def draw_similarity_maps(
    patch_a: np.ndarray,
    patch_b: np.ndarray,
    maps: Sequence[np.ndarray],
    boxes: Sequence[tuple[int, int, int, int]],
) -> "Figure":
    """A column for each position: patch a with the receptive field boxed, patch b, the map over patch b.

    Args:
        patch_a: (N, N) gray.
        patch_b: (N, N) gray.
        maps: (N, N) in [0, 1], one a position.
        boxes: left, top, right, bottom pixel of the receptive field of each position.
    """
    figure = new_figure(1.9 * len(maps) + 0.9, 5.4)
    panels = figure.subplots(3, len(maps), squeeze=False)
    for column, (values, box) in enumerate(zip(maps, boxes, strict=True)):
        above, middle, below = panels[:, column]
        above.imshow(patch_a, cmap="gray")
        _draw_box(above, box, len(patch_a))
        middle.imshow(patch_b, cmap="gray")
        image = below.imshow(values, cmap="viridis", vmin=0, vmax=1)
        _draw_box(below, box, len(patch_a))
    for axes, name in zip(panels[:, 0], ("patch a", "patch b", "similarity"), strict=True):
        axes.set_ylabel(name)
    for axes in panels.flat:
        axes.set(xticks=(), yticks=())
    figure.colorbar(image, ax=panels[2], label="least to most\nof each map", ticks=(0, 1))
    return figure


def _draw_box(axes: "Axes", box: tuple[int, int, int, int], side: int) -> None:
    """The part of a receptive field that lies in the patch; a pixel is drawn half a unit around its centre."""
    left, top, right, bottom = (min(max(edge, -0.5), side - 0.5) for edge in np.add(box, (-0.5, -0.5, 0.5, 0.5)))
    axes.plot((left, right, right, left, left), (top, top, bottom, bottom, top), color=ORANGE, linewidth=1.5)
