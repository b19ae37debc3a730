"""Picture of similarity maps: one position of a patch against all positions of another (the paper's Figure 2)."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from matchkernel.errors import ArgumentError
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.kernel_view import display_map, receptive_field, similarity_map
from matchkernel.plots.canvas import ORANGE, new_figure, save_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def similarity_picture(path: str | Path, model: Descriptor, patch_a: torch.Tensor, patch_b: torch.Tensor) -> None:
    """Write similarity maps of five positions of patch a against patch b, both resized to the model's patch size.

    Args:
        path: PNG to write.
        model: any descriptor.
        patch_a: (N, N) floats.
        patch_b: (N, N) floats.
    """
    if patch_a.ndim != 2 or patch_a.shape != patch_b.shape or patch_a.shape[0] != patch_a.shape[1]:
        shapes = f"{tuple(patch_a.shape)} and {tuple(patch_b.shape)}"
        raise ArgumentError(f"expected two (N, N) patches of the same size, got {shapes}")
    if not all(bool(patch.isfinite().all()) and bool(patch.min() < patch.max()) for patch in (patch_a, patch_b)):
        raise ArgumentError("a patch must be finite and not constant to have a similarity map")
    pair = resize_patches(torch.stack([patch_a, patch_b])[:, None], model.config.patch_size)
    near, middle, far = (round(share * (model.config.n - 1)) for share in (0.2, 0.5, 0.8))
    cells = [(near, near), (near, far), (middle, middle), (far, near), (far, far)]
    maps = [display_map(similarity_map(model, pair[0], pair[1], *cell)).cpu().numpy() for cell in cells]
    boxes = [receptive_field(model.config, *cell) for cell in cells]
    a, b = (patch[0].cpu().numpy() for patch in pair)
    save_png(draw_similarity_maps(a, b, maps, boxes), path)


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
        maps: (N, N) in [0, 1], one per position.
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
