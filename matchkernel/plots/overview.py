"""A patch on its way through a model, as in the paper's Figure 1: map, position codes, their product, descriptor."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.model.kernel_view import encodings_by_system
from matchkernel.model.precision import unit_rows
from matchkernel.plots.canvas import BLACK, BLUE, DIVERGING, GRAY, mathtext, new_figure, plain, save_png
from matchkernel.plots.example_patches import check_content
from matchkernel.runtime.config import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANNELS = 16  # of the map, drawn
NAMES = {"cartesian": ("x", "y"), "polar": ("ρ", "θ")}


@dataclass(frozen=True)
class Branch:
    """One coordinate system of a model, with a patch in it."""

    system: str
    phi: np.ndarray  # (d, n, n) map Phi
    codes: np.ndarray  # (P, n, n) columns of F, the weighted position codes
    product: np.ndarray  # (d, P) c Phi^T F, scaled as the model does


def overview_picture(
    path: str | Path, model: Descriptor, patch: Tensor, name: str = "", system: str | None = None
) -> None:
    """Write the picture of a model that encodes positions, with any settings, and an (N, N) patch of any size.

    `system`, "cartesian" or "polar", is one half of a combined model, which is then drawn alone.
    """
    if not VARIANTS[model.config.variant].systems:
        raise ArgumentError(f"{model.name or 'the model'} is {model.config.variant!r}, which encodes no positions")
    check_content(patch)
    sized = resize_patches(patch[None, None].float(), model.config.patch_size)
    branches, descriptor = trace(model, sized)
    half = f", {system} half" if system else ""
    if system is not None:
        branches = [branch for branch in branches if branch.system == system]
        descriptor = unit_rows(encodings_by_system(model, sized)[system].sum(1))[0].double().numpy()
    formula = mathtext(VARIANTS[system or model.config.variant].symbol)
    title = f"{plain(name or model.name or model.config.variant)}{half}: {formula}, s = {model.config.s}"
    norm = bool(model.config.encoding_norm)
    save_png(draw_overview(sized[0, 0].numpy(), branches, descriptor, title, norm=norm), path)


@torch.no_grad()
def trace(model: Descriptor, patch: Tensor) -> tuple[list[Branch], np.ndarray]:
    """The intermediate results of each branch for a (1, 1, N, N) patch, and the (D,) descriptor."""
    folded = model.fold()
    maps = folded.feature_maps(patch)
    branches = []
    for encoding, phi in zip(folded.aggregations, maps, strict=True):
        assert isinstance(encoding, SpatialEncoding)  # of a model that encodes positions
        n, d = phi.shape[-1], phi.shape[1]
        codes = encoding.position_matrix(n).T.reshape(-1, n, n)
        product = encoding(phi).reshape(d, -1)
        branches.append(Branch(encoding.system, *(part.double().numpy() for part in (phi[0], codes, product))))
    return branches, folded(patch)[0].double().numpy()


def draw_overview(
    patch: np.ndarray, branches: list[Branch], descriptor: np.ndarray, title: str, *, norm: bool = False
) -> "Figure":
    """From left to right: patch, map, position codes, product, descriptor; a row for each coordinate system.

    `norm`: each product is normalised before M.
    """
    figure = new_figure(14, 3.3 * len(branches) + 0.4)
    grid = figure.add_gridspec(len(branches), 5, width_ratios=(2.4, 2.6, 2.6, 1.9, 3.0), wspace=0.1)
    N, D, is_one = len(patch), len(descriptor), len(branches) == 1
    patch_axes, descriptor_axes = figure.add_subplot(grid[:, 0]), figure.add_subplot(grid[:, 4])
    patch_axes.imshow(patch, cmap="gray")
    patch_axes.set(xticks=(), yticks=(), title="patch a", xlabel=f"{N} × {N}")
    for row, branch in enumerate(branches):
        phi_axes, codes_axes, product_axes = (figure.add_subplot(grid[row, column]) for column in (1, 2, 3))
        (d, n, _), P, (first, second) = branch.phi.shape, len(branch.codes), NAMES[branch.system]
        symbol = "φ" if np.array_equal(branch.phi, branches[0].phi) else "φ̃"
        strongest = np.sort(np.argsort(-branch.phi.sum((1, 2)), kind="stable")[:CHANNELS])
        _tiles(phi_axes, branch.phi[strongest], "magma", low=0.0)
        phi_axes.set_title(f"map Φ = {symbol}(a)")
        phi_axes.set_xlabel(f"{n} × {n} × {d} ({len(strongest)} channels shown)", fontsize=9)
        _label(phi_axes, "⊗", (1, 0.5), (16, 0), ha="left", fontsize=17)
        _tiles(codes_axes, branch.codes, DIVERGING)
        codes_axes.set_title(rf"F: $w_p f({first}_p) \otimes f({second}_p)$")
        codes_axes.set_xlabel(f"{n} × {n} × {P}, fixed", fontsize=9)
        _arrow(codes_axes, "Σ over\npositions")
        limit = float(np.abs(branch.product).max()) or 1.0
        look: dict[str, Any] = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit, "interpolation": "nearest"}
        product_axes.imshow(branch.product, aspect="auto", **look)
        product_axes.set(xticks=(), yticks=(), title="ΦᵀF")
        product_axes.set_xlabel(f"{d} × {P} = {d * P:,} numbers", fontsize=9)
        if is_one:
            _arrow(patch_axes, symbol)
            _arrow(product_axes, "ℓ2,\nM, m,\nℓ2" if norm else "M, m,\nℓ2")
        else:
            _arrow_between(patch_axes, 0.85 - 0.7 * row / (len(branches) - 1), phi_axes)
            _label(phi_axes, symbol, (0, 0.5), (-24, 6), ha="right")
            _arrow_between(product_axes, 0.5, descriptor_axes)
            _label(product_axes, "ℓ2" if norm else "", (1, 0.5), (16, 0), ha="left")
    if not is_one:
        _label(descriptor_axes, "joined:\nM, m,\nℓ2", (0, 0.5), (-32, 0), ha="right")
    descriptor_axes.bar(np.arange(D), descriptor, width=1.0, color=BLUE)
    descriptor_axes.axhline(0, color=GRAY, linewidth=0.6)
    descriptor_axes.set(xlim=(-1, D), xticks=(0, D - 1), xticklabels=(1, D), title="descriptor ψ, length 1")
    descriptor_axes.yaxis.tick_right()
    descriptor_axes.spines[["top", "left"]].set_visible(False)
    figure.suptitle(title, fontsize=12)
    return figure


def _tiles(axes: "Axes", images: np.ndarray, colours: str, low: float | None = None) -> None:
    """(K, n, n) images in a square of tiles, with one scale for all."""
    count, n = len(images), images.shape[-1]
    side = int(np.ceil(np.sqrt(count)))
    sheet = np.full((side * (n + 1) - 1, side * (n + 1) - 1), np.nan)
    for k, image in enumerate(images):
        top, left = (n + 1) * (k // side), (n + 1) * (k % side)
        sheet[top : top + n, left : left + n] = image
    limit = float(np.abs(images).max()) or 1.0
    axes.imshow(sheet, cmap=colours, vmin=-limit if low is None else low, vmax=limit, interpolation="nearest")
    axes.set(xticks=(), yticks=())
    axes.spines[:].set_visible(False)


def _arrow_between(start: "Axes", height: float, end: "Axes") -> None:
    """An arrow from the right edge of a panel, at a share of its height, to the middle of the left edge of another."""
    style = {"arrowstyle": "->", "color": BLACK, "linewidth": 1.6, "shrinkA": 8, "shrinkB": 6}
    ends: dict[str, Any] = {"xycoords": end.transAxes, "textcoords": start.transAxes}
    end.annotate("", (0, 0.5), (1, height), **ends, arrowprops=style, annotation_clip=False)


def _arrow(axes: "Axes", label: str) -> None:
    """An arrow with a label from the right edge of a panel towards the next."""
    style = {"arrowstyle": "<-", "color": BLACK, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 8}
    _label(axes, "", (1, 0.5), (46, 0), ha="center", va="bottom", arrowprops=style)
    _label(axes, label, (1, 0.5), (26, 6), ha="center", va="bottom")


def _label(axes: "Axes", text: str, point: tuple[float, float], offset: tuple[float, float], **look: Any) -> None:
    """Write text beside a point of a panel; the point is in shares of width and height, the offset in 1/72 inch."""
    units: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points"}
    axes.annotate(text, point, offset, **units, annotation_clip=False, **{"va": "center", "fontsize": 10, **look})
