"""Similarity maps as in the paper's Figure 2: positions of one patch (rows) against another, by model (columns)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.kernel_view import display_map, encodings_by_system, position_encodings, receptive_field
from matchkernel.model.weights import load
from matchkernel.plots.canvas import ORANGE, mathtext, new_figure, plain, save_png
from matchkernel.plots.example_patches import check_content
from matchkernel.runtime.config import STRIDE, VARIANTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

POSITIONS = ((0.2, 0.2), (0.8, 0.3), (0.5, 0.5), (0.3, 0.8))  # x, y as shares of the patch
MAX_COLUMNS, MAX_ROWS = 12, 12
LONGEST, FITTING = 30, 18  # characters of a name that are shown above a column, and that fit there at full size
SIDE = 1.45  # inches of a panel


def shown_name(weights: str, model: Descriptor) -> str:
    """What a picture calls a model opened by name or path: the final weights of a run by the run's folder."""
    name = Path(weights).absolute().parent.name if model.name == "final" else model.name or model.config.variant
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"


@dataclass(frozen=True)
class MapColumn:
    """A column of the picture: a model, or the half of it that encodes one coordinate system."""

    model: Descriptor
    title: str
    system: str | None = None

    @classmethod
    def open(cls, name: str) -> "MapColumn":
        """Open trained weights by name or path; `NAME:cartesian` and `NAME:polar` are halves of a combined model."""
        weights, _, system = name.rpartition(":")
        if not weights or system not in ("cartesian", "polar"):
            weights, system = name, ""
        model = load(weights)
        config = model.config
        if system and system not in VARIANTS[config.variant].systems:
            raise ArgumentError(f"{name}: {weights} has no {system} half, it is {config.variant!r}")
        s = "" if config.s is None else f", s = {config.s}"
        half = f", {system} half" if system else ""
        symbol = mathtext(VARIANTS[config.variant].symbol)
        return cls(model, f"{symbol}{s}{half}\n{plain(shown_name(weights, model))}", system or None)

    def cell(self, position: tuple[float, float]) -> tuple[int, int]:
        """Row and column, from 0, of the cell in whose share of the patch a position lies."""
        n = self.model.config.n
        x, y = (min(int(share * n), n - 1) for share in position)
        return y, x

    def maps(self, patches: Tensor, positions: Sequence[tuple[float, float]]) -> list[np.ndarray]:
        """(N, N) in [0, 1] for each position, S_p(q) scaled map by map [M20].

        Args:
            patches: (2, 1, N, N) floats, patch a and patch b, of any N.
            positions: x, y as shares.
        """
        sized, n = resize_patches(patches, self.model.config.patch_size), self.model.config.n
        if self.system:
            a, b = encodings_by_system(self.model, sized, weighted=False)[self.system]
        else:
            a, b = position_encodings(self.model, sized, weighted=False)
        places = [row * n + column for row, column in map(self.cell, positions)]
        return [display_map((b @ a[place]).reshape(n, n)).cpu().numpy() for place in places]


def similarity_picture(
    path: str | Path,
    columns: Sequence[MapColumn],
    patch_a: Tensor,
    patch_b: Tensor,
    positions: Sequence[tuple[float, float]] = POSITIONS,
) -> None:
    """Write similarity maps of positions of patch a against patch b, both resized to each model's patch size.

    Positions are x, y of each row, as shares of patch a from its left and upper border.
    """
    check_content(patch_a, patch_b)
    if not (0 < len(columns) <= MAX_COLUMNS and 0 < len(positions) <= MAX_ROWS):
        raise ArgumentError(f"give 1 to {MAX_COLUMNS} models and 1 to {MAX_ROWS} positions")
    if not all(0 <= share <= 1 for position in positions for share in position):
        raise ArgumentError("a position is x, y with both from 0 to 1")
    save_png(draw_similarity_maps(columns, torch.stack([patch_a, patch_b])[:, None], positions), path)


def draw_similarity_maps(
    columns: Sequence[MapColumn], patches: Tensor, positions: Sequence[tuple[float, float]]
) -> "Figure":
    """A row for each position: patch a with its receptive field in the first model, then its map in each model."""
    figure = new_figure(SIDE * (len(columns) + 1) + 0.7, SIDE * (len(positions) + 1) + 0.5)
    panels = figure.subplots(len(positions) + 1, len(columns) + 1, squeeze=False)
    for axes in panels.flat:
        axes.set(xticks=(), yticks=())
    config = columns[0].model.config
    patch_a, patch_b = resize_patches(patches, config.patch_size)[:, 0].cpu().numpy()
    panels[0, 0].set_axis_off()
    panels[0, 1].set_ylabel("patch b", fontsize=9)
    panels[1, 0].set_title("patch a,\nfield of p", fontsize=9)
    for axes, position in zip(panels[1:, 0], positions, strict=True):
        row, column = columns[0].cell(position)
        # The part of the field that lies in the patch; a pixel is drawn half a unit around its centre.
        box = np.add(receptive_field(config, row, column), (-0.5, -0.5, 0.5, 0.5))
        x0, y0, x1, y1 = np.clip(box, -0.5, len(patch_a) - 0.5)
        axes.imshow(patch_a, cmap="gray")
        axes.plot((x0, x1, x1, x0, x0), (y0, y0, y1, y1, y0), color=ORANGE, linewidth=1.5)
        axes.set_ylabel(f"row {row + 1}, column {column + 1}", fontsize=8)
    size = min(9, 9 * FITTING / max(len(column.title.rpartition("\n")[2]) for column in columns))
    for (top, *below), model in zip(panels[:, 1:].T, columns, strict=True):
        top.imshow(patch_b, cmap="gray")
        top.set_title(model.title, fontsize=size)
        for axes, found, position in zip(below, model.maps(patches, positions), positions, strict=True):
            image = axes.imshow(found, cmap="viridis", vmin=0, vmax=1)
            y, x = (STRIDE * cell for cell in model.cell(position))
            axes.plot(x, y, "+", color=ORANGE, markersize=9, mew=2)
    bar = figure.colorbar(image, ax=panels[1:, 1:], ticks=(0, 1), shrink=0.6, aspect=30)
    bar.set_label("similarity to p, scaled map by map (+: p)", fontsize=9)
    return figure
