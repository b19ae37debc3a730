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

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def conventions_picture(path: str | Path) -> None:
    """Write the picture of docs/conventions.md."""
    rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    patch = 120 + 40 * torch.sin(columns / 3) + 25 * torch.cos(rows / 5 + columns / 9)
    seen = normalize_patches(patch[None, None])[0, 0]
    cells = positions(8).x[0] / (math.pi / 2)
    box = receptive_field(DescriptorConfig(), 2, 5)
    save_png(draw_conventions(cells, box, encoding_order(), patch.numpy(), seen.numpy()), path)


def encoding_order() -> np.ndarray:
    """(2, 3, 3): the index of phi_c f(x)_i f(y)_j in the encoded vector (d = 2, s = 1), found by its value."""
    gamma = fourier_coefficients(1.0, 1)
    phi, place = np.array([2.0, 3.0]), coordinates(np.array(0.3), np.array(0.8))
    codes = torch.from_numpy(position_codes("cartesian", place, gamma)[None])
    vector = raw_encodings(torch.from_numpy(phi)[None, :, None, None], codes).flatten().numpy()
    products = np.einsum("c,i,j->cij", phi, feature_map(place.x, gamma), feature_map(place.y, gamma))
    return np.abs(products[..., None] - vector).argmin(-1)


def draw_conventions(
    cells: np.ndarray, box: tuple[int, int, int, int], order: np.ndarray, before: np.ndarray, after: np.ndarray
) -> "Figure":
    """All conventions on one sheet.

    Args:
        cells: (n,) positions u of the cell centres of a map.
        box: left, top, right, bottom pixel of the receptive field of cell (2, 5) of a 32 px patch.
        order: (d, first, second) index of each product in the encoded vector, d = 2, s = 1.
        before: (N, N) gray patch.
        after: (N, N) the same patch as the network sees it.
    """
    figure = new_figure(14, 8.6)
    panels = figure.subplots(2, 3)
    _draw_pixels(panels[0, 0])
    _draw_grid(panels[0, 1], cells)
    _draw_receptive_field(panels[0, 2], box)
    _draw_order(panels[1, 0], order)
    _draw_gray(panels[1, 1], before, after)
    _draw_pipeline(panels[1, 2])
    return figure


def _draw_pixels(axes: "Axes") -> None:
    axes.set_title("pixels: x is the column, y the row,\nthe centre of the first pixel is (0, 0)")
    for edge in np.arange(5) - 0.5:
        axes.plot((-0.5, 3.5), (edge, edge), color=GRAY, linewidth=0.8)
        axes.plot((edge, edge), (-0.5, 3.5), color=GRAY, linewidth=0.8)
    for x in range(4):
        for y in range(4):
            axes.plot(x, y, marker="o", color=BLUE, markersize=4)
            axes.text(x, y + 0.32, f"({x}, {y})", ha="center", fontsize=8, color=BLACK)
    _arrow(axes, (-0.5, -0.9), (3.5, -0.9), "x, columns")
    _arrow(axes, (-0.9, -0.5), (-0.9, 3.5), "y, rows", rotation=90)
    axes.set(xlim=(-1.4, 3.8), ylim=(3.8, -1.4), aspect="equal")
    axes.axis("off")


def _draw_grid(axes: "Axes", cells: np.ndarray) -> None:
    axes.set_title("positions: u, v reach ±1 at the borders;\nθ turns from +x to +y (clockwise on the screen)")
    axes.plot((-1, 1, 1, -1, -1), (-1, -1, 1, 1, -1), color=BLACK, linewidth=1.2)
    u, v = np.meshgrid(cells, cells)
    axes.plot(u.ravel(), v.ravel(), linestyle="", marker="o", color=BLUE, markersize=4)
    angle = np.linspace(0, math.radians(50), 40)
    axes.plot(0.45 * np.cos(angle), 0.45 * np.sin(angle), color=ORANGE, linewidth=2)
    _arrow(axes, (0, 0), (0.9, 0), "")
    _arrow(axes, (0, 0), (0.9 * math.cos(angle[-1]), 0.9 * math.sin(angle[-1])), "")
    _arrow(
        axes,
        (0.445 * math.cos(angle[-4]), 0.445 * math.sin(angle[-4])),
        (0.45 * math.cos(angle[-1]), 0.45 * math.sin(angle[-1])),
        "",
        ORANGE,
    )
    axes.text(0.53, 0.26, "θ", color=ORANGE, fontsize=14)
    axes.text(0.5, 0.75, "r", fontsize=12)
    axes.set(
        xlim=(-1.15, 1.15), ylim=(1.15, -1.15), aspect="equal", xlabel="u    (x = u π/2)", ylabel="v    (y = v π/2)"
    )
    axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))


def _draw_receptive_field(axes: "Axes", box: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = box
    side, middle = right - left + 1, ((left + right) // 2, (top + bottom) // 2)
    axes.set_title(
        f"receptive field: cell (row 2, column 5), from 0,\nsees {side} × {side} pixels around pixel {middle}"
    )
    axes.plot((-0.5, 31.5, 31.5, -0.5, -0.5), (-0.5, -0.5, 31.5, 31.5, -0.5), color=BLACK, linewidth=1.2)
    centres = 4 * np.arange(8)
    x, y = np.meshgrid(centres, centres)
    axes.plot(x.ravel(), y.ravel(), linestyle="", marker="o", color=BLUE, markersize=3)
    x0, y0, x1, y1 = left - 0.5, top - 0.5, right + 0.5, bottom + 0.5
    axes.plot((x0, x1, x1, x0, x0), (y0, y0, y1, y1, y0), color=ORANGE, linewidth=1.8)
    axes.plot(*middle, marker="s", color=ORANGE, markersize=8)
    axes.set(
        xlim=(-5, 36),
        ylim=(36, -5),
        aspect="equal",
        xlabel="x (pixels)",
        ylabel="y (pixels)",
        xticks=range(0, 32, 4),
        yticks=range(0, 32, 4),
    )


def _draw_order(axes: "Axes", order: np.ndarray) -> None:
    axes.set_title("Kronecker order φ ⊗ f(first) ⊗ f(second):\nplace in the encoded vector (d = 2, s = 1)")
    names = ("1", "cos", "sin")
    for channel, colour in ((0, BLUE), (1, GREEN)):
        for i in range(3):
            for j in range(3):
                axes.text(
                    j + 4 * channel, i, str(order[channel, i, j]), ha="center", va="center", color=colour, fontsize=12
                )
        for k in range(3):
            axes.text(k + 4 * channel, -0.75, names[k], ha="center", fontsize=9)
        axes.text(1 + 4 * channel, -1.3, f"channel {channel + 1}:  second →", ha="center", color=colour)
    for k in range(3):
        axes.text(-0.85, k, names[k], ha="center", va="center", fontsize=9)
    axes.text(-1.6, 1, "first ↓", rotation=90, va="center")
    axes.set(xlim=(-2, 7), ylim=(3, -2))
    axes.axis("off")


def _draw_gray(axes: "Axes", before: np.ndarray, after: np.ndarray) -> None:
    axes.set_title("input: every patch by itself,\n(x - mean) / (std + 1e-7)")
    axes.axis("off")
    for left, image, label in (
        (0.0, before, f"mean {before.mean():.0f}, std {before.std(ddof=1):.0f}"),
        (0.55, after, f"mean {after.mean():.0f}, std {after.std(ddof=1):.0f}"),
    ):
        inset = axes.inset_axes((left, 0.2, 0.45, 0.7))
        inset.imshow(image, cmap="gray")
        inset.set(xticks=(), yticks=(), xlabel=label)


def _draw_pipeline(axes: "Axes") -> None:
    axes.set_title("what happens to the scale")
    axes.axis("off")
    steps = (
        ("patch (N, N)", "any range"),
        ("normalised patch", "mean 0, deviation 1"),
        ("map Φ (n², d), n = N/4", "BatchNorm, ReLU"),
        ("c · vec(ΦᵀF)", "c = 64 / n²"),
        ("M · + m", "BatchNorm"),
        ("descriptor (D)", "length 1"),
    )
    for k, (name, scale) in enumerate(steps):
        axes.text(0.02, 0.93 - 0.16 * k, name, fontsize=11, color=BLACK)
        axes.text(0.55, 0.93 - 0.16 * k, scale, fontsize=10, color=BLUE)
    axes.set(xlim=(0, 1), ylim=(0, 1))


def _arrow(
    axes: "Axes",
    start: tuple[float, float],
    end: tuple[float, float],
    label: str,
    colour: str = BLACK,
    rotation: int = 0,
) -> None:
    axes.annotate("", xy=end, xytext=start, arrowprops={"arrowstyle": "->", "color": colour, "linewidth": 1.4})
    if label:
        middle = np.add(start, end) / 2 - (0, 0.12) if rotation == 0 else np.add(start, end) / 2 - (0.18, 0)
        axes.text(middle[0], middle[1], label, ha="center", va="center", rotation=rotation)
