"""The picture of docs/conventions.md: axes, angle, pixel centres, receptive field, Kronecker order, normalisation."""

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from matchkernel.model.backbone import normalize_patches
from matchkernel.model.kernel_view import raw_encodings, receptive_field
from matchkernel.plots.canvas import BLACK, BLUE, GRAY, GREEN, ORANGE, new_figure, save_png
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.runtime.positions import coordinates, feature_map, fourier_coefficients, position_codes, positions
from matchkernel.storage.files import check_output

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PIPELINE = (
    ("patch (N, N)", "any range"),
    ("normalised patch", "mean 0, deviation 1"),
    ("map Φ (n², d), n = N/4", "BatchNorm, ReLU"),
    ("c · vec(ΦᵀF)", "c = 64 / n²"),
    ("M · + m", "BatchNorm"),
    ("descriptor (D)", "length 1"),
)


def conventions_picture(path: str | Path) -> None:
    """Write the picture of docs/conventions.md."""
    check_output(path, suffixes=(".png",))
    figure = new_figure(14, 8.6)
    panels = figure.subplots(2, 3).flat
    for draw in (_draw_pixels, _draw_grid, _draw_receptive_field, _draw_order, _draw_gray, _draw_pipeline):
        draw(next(panels))
    save_png(figure, path)


def encoding_order() -> np.ndarray:
    """(2, 3, 3): the index of phi_c f(x)_i f(y)_j in the encoded vector (d = 2, s = 1), found by its value."""
    gamma = fourier_coefficients(1.0, 1)
    phi, place = np.array([2.0, 3.0]), coordinates(np.array(0.3), np.array(0.8))
    codes = torch.from_numpy(position_codes("cartesian", place, gamma)[None])
    vector = raw_encodings(torch.from_numpy(phi)[None, :, None, None], codes).flatten().numpy()
    products = np.einsum("c,i,j->cij", phi, feature_map(place.x, gamma), feature_map(place.y, gamma))
    return np.abs(products[..., None] - vector).argmin(-1)


def _draw_pixels(axes: "Axes") -> None:
    axes.set_title("pixels: x is the column, y the row,\nthe centre of the first pixel is (0, 0)")
    edges = np.arange(5) - 0.5
    axes.hlines(edges, -0.5, 3.5, color=GRAY, linewidth=0.8)
    axes.vlines(edges, -0.5, 3.5, color=GRAY, linewidth=0.8)
    _dots(axes, np.arange(4), 4)
    for x, y in np.ndindex(4, 4):
        axes.text(x, y + 0.32, f"({x}, {y})", ha="center", fontsize=8, color=BLACK)
    _arrow(axes, (-0.5, -0.9), (3.5, -0.9))
    axes.text(1.5, -1.02, "x, columns", ha="center", va="center")
    _arrow(axes, (-0.9, -0.5), (-0.9, 3.5))
    axes.text(-1.08, 1.5, "y, rows", ha="center", va="center", rotation=90)
    axes.set(xlim=(-1.4, 3.8), ylim=(3.8, -1.4), aspect="equal")
    axes.axis("off")


def _draw_grid(axes: "Axes") -> None:
    axes.set_title("positions: u, v reach ±1 at the borders;\nθ turns from +x to +y (clockwise on the screen)")
    _box(axes, -1, -1, 1, 1, BLACK, 1.2)
    cells = positions(8).x[0] / (math.pi / 2)
    _dots(axes, cells, 4)
    angle = np.linspace(0, math.radians(50), 40)
    x, y = np.cos(angle), np.sin(angle)
    axes.plot(0.45 * x, 0.45 * y, color=ORANGE, linewidth=2)
    _arrow(axes, (0, 0), (0.9, 0))
    _arrow(axes, (0, 0), (0.9 * x[-1], 0.9 * y[-1]))
    _arrow(axes, (0.445 * x[-4], 0.445 * y[-4]), (0.45 * x[-1], 0.45 * y[-1]), ORANGE)
    axes.text(0.53, 0.26, "θ", color=ORANGE, fontsize=14)
    axes.text(0.5, 0.75, "r", fontsize=12)
    axes.set(xlim=(-1.15, 1.15), ylim=(1.15, -1.15), aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    axes.set(xlabel="u    (x = u π/2)", ylabel="v    (y = v π/2)")


def _draw_receptive_field(axes: "Axes") -> None:
    left, top, right, bottom = receptive_field(DescriptorConfig(), 2, 5)
    side, middle = right - left + 1, ((left + right) // 2, (top + bottom) // 2)
    axes.set_title(
        f"receptive field: cell (row 2, column 5), from 0,\nsees {side} × {side} pixels around pixel {middle}"
    )
    _box(axes, -0.5, -0.5, 31.5, 31.5, BLACK, 1.2)
    _dots(axes, 4 * np.arange(8), 3)
    _box(axes, left - 0.5, top - 0.5, right + 0.5, bottom + 0.5, ORANGE, 1.8)
    axes.plot(*middle, marker="s", color=ORANGE, markersize=8)
    axes.set(xlim=(-5, 36), ylim=(36, -5), aspect="equal", xticks=range(0, 32, 4), yticks=range(0, 32, 4))
    axes.set(xlabel="x (pixels)", ylabel="y (pixels)")


def _draw_order(axes: "Axes") -> None:
    axes.set_title("Kronecker order φ ⊗ f(first) ⊗ f(second):\nplace in the encoded vector (d = 2, s = 1)")
    names, order = ("1", "cos", "sin"), encoding_order()
    for (channel, i, j), index in np.ndenumerate(order):
        colour = (BLUE, GREEN)[channel]
        axes.text(j + 4 * channel, i, str(index), ha="center", va="center", color=colour, fontsize=12)
    for k, name in enumerate(names):
        axes.text(-0.85, k, name, ha="center", va="center", fontsize=9)
        for channel in range(2):
            axes.text(k + 4 * channel, -0.75, name, ha="center", fontsize=9)
    for channel, colour in enumerate((BLUE, GREEN)):
        axes.text(1 + 4 * channel, -1.3, f"channel {channel + 1}:  second →", ha="center", color=colour)
    axes.text(-1.6, 1, "first ↓", rotation=90, va="center")
    axes.set(xlim=(-2, 7), ylim=(3, -2))
    axes.axis("off")


def _draw_gray(axes: "Axes") -> None:
    axes.set_title("input: every patch by itself,\n(x - mean) / (std + 1e-7)")
    axes.axis("off")
    rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    patch = 120 + 40 * torch.sin(columns / 3) + 25 * torch.cos(rows / 5 + columns / 9)
    seen = normalize_patches(patch[None, None])[0, 0]
    for left, image in ((0.0, patch.numpy()), (0.55, seen.numpy())):
        inset = axes.inset_axes((left, 0.2, 0.45, 0.7))
        inset.imshow(image, cmap="gray")
        inset.set(xticks=(), yticks=(), xlabel=f"mean {image.mean():.0f}, std {image.std(ddof=1):.0f}")


def _draw_pipeline(axes: "Axes") -> None:
    axes.set_title("what happens to the scale")
    axes.axis("off")
    for k, (name, scale) in enumerate(PIPELINE):
        axes.text(0.02, 0.93 - 0.16 * k, name, fontsize=11, color=BLACK)
        axes.text(0.55, 0.93 - 0.16 * k, scale, fontsize=10, color=BLUE)
    axes.set(xlim=(0, 1), ylim=(0, 1))


def _dots(axes: "Axes", places: np.ndarray, size: float) -> None:
    x, y = np.meshgrid(places, places)
    axes.plot(x.ravel(), y.ravel(), linestyle="", marker="o", color=BLUE, markersize=size)


def _box(axes: "Axes", left: float, top: float, right: float, bottom: float, colour: str, width: float) -> None:
    corners = (left, right, right, left, left), (top, top, bottom, bottom, top)
    axes.plot(*corners, color=colour, linewidth=width)


def _arrow(axes: "Axes", start: tuple[float, float], end: tuple[float, float], colour: str = BLACK) -> None:
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.4})
