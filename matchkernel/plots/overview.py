"""A patch on its way through a model, as in the paper's Figure 1: map, position codes, their product, descriptor."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.plots.canvas import BLACK, BLUE, DIVERGING, GRAY, mathtext, new_figure, save_png
from matchkernel.runtime.config import VARIANTS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHANNELS = 16  # of the map, drawn
NAMES = {"cartesian": ("x", "y"), "polar": ("ρ", "θ")}


@dataclass(frozen=True)
class Branch:
    """One coordinate system of a model, with a patch in it.

    Attributes:
        system: its name.
        phi: (d, n, n) map Phi.
        codes: (P, n, n) columns of F, the weighted position codes.
        product: (d, P) c Phi^T F, scaled as the model does.
    """

    system: str
    phi: np.ndarray
    codes: np.ndarray
    product: np.ndarray


def overview_picture(path: str | Path, model: Descriptor, patch: Tensor, name: str = "") -> None:
    """Write the picture of a model that encodes positions.

    Args:
        path: PNG to write.
        model: `cartesian`, `polar`, `combined` or `dual`, with any settings.
        patch: (N, N) floats; resized to the model's patch size.
        name: of the model in the title (default: its own).
    """
    if not VARIANTS[model.config.variant].systems:
        raise ArgumentError(f"{model.name or 'the model'} is {model.config.variant!r}, which encodes no positions")
    if patch.ndim != 2 or patch.shape[0] != patch.shape[1]:
        raise ArgumentError(f"expected an (N, N) patch, got shape {tuple(patch.shape)}")
    if not bool(patch.isfinite().all()) or bool((patch == patch.flatten()[0]).all()):
        raise ArgumentError("the patch is constant, or has pixels that are not finite; choose another by --patch")
    sized = resize_patches(patch[None, None].float(), model.config.patch_size)
    branches, descriptor = follow(model, sized)
    symbol = mathtext(VARIANTS[model.config.variant].symbol)
    title = f"{name or model.name or model.config.variant}: {symbol}, s = {model.config.s}"
    norm = bool(model.config.encoding_norm)
    save_png(draw_overview(sized[0, 0].numpy(), branches, descriptor, title, norm=norm), path)


@torch.no_grad()
def follow(model: Descriptor, patch: Tensor) -> tuple[list[Branch], np.ndarray]:
    """What a model computes of a (1, 1, N, N) patch on the way to its (D,) descriptor."""
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

    Args:
        patch: (N, N) gray.
        branches: one for each coordinate system.
        descriptor: (D,) of length 1.
        title: of the sheet.
        norm: whether each product is normalised before M.
    """
    figure = new_figure(14, 3.3 * len(branches) + 0.4)
    grid = figure.add_gridspec(len(branches), 5, width_ratios=(2.4, 2.6, 2.6, 1.9, 3.0), wspace=0.1)
    N, D = len(patch), len(descriptor)
    whole = figure.add_subplot(grid[:, 0])
    whole.imshow(patch, cmap="gray")
    whole.set(xticks=(), yticks=(), title="patch a", xlabel=f"{N} × {N}")
    products: list[Axes] = []
    for row, branch in enumerate(branches):
        d, n = branch.phi.shape[:2]
        P, (first, second) = len(branch.codes), NAMES[branch.system]
        tilde = "φ̃" if row and branch.phi is not branches[0].phi and _differ(branches) else "φ"
        axes = figure.add_subplot(grid[row, 1])
        strongest = np.sort(np.argsort(-branch.phi.sum((1, 2)), kind="stable")[:CHANNELS])
        _tiles(axes, branch.phi[strongest], "magma", low=0.0)
        axes.set_title(f"map Φ = {tilde}(a)")
        if len(branches) == 1:
            _arrow(whole, tilde)
        else:
            _arrow_between(whole, 0.85 - 0.7 * row / (len(branches) - 1), axes)
            _label(axes, tilde, (-24, 6))
        axes.set_xlabel(f"{n} × {n} × {d} ({len(strongest)} channels shown)", fontsize=9)
        _label(axes, "⊗", (16, 0), right=True, size=17)
        axes = figure.add_subplot(grid[row, 2])
        _tiles(axes, branch.codes, DIVERGING)
        axes.set_title(f"F: w f({first}) ⊗ f({second})")
        axes.set_xlabel(f"{n} × {n} × {P}, fixed", fontsize=9)
        _arrow(axes, "Σ over\npositions")
        axes = figure.add_subplot(grid[row, 3])
        limit = float(np.abs(branch.product).max()) or 1.0
        axes.imshow(branch.product, cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto", interpolation="nearest")
        axes.set(xticks=(), yticks=(), title="ΦᵀF")
        axes.set_xlabel(f"{d} × {P} = {d * P:,} numbers", fontsize=9)
        products.append(axes)
    axes = figure.add_subplot(grid[:, 4])
    _arrows_to_descriptor(products, axes, norm=norm)
    axes.bar(np.arange(D), descriptor, width=1.0, color=BLUE)
    axes.axhline(0, color=GRAY, linewidth=0.6)
    axes.set(xlim=(-1, D), xticks=(0, D - 1), xticklabels=(1, D), title="descriptor ψ, length 1")
    axes.yaxis.tick_right()
    axes.spines[["top", "left"]].set_visible(False)
    figure.suptitle(title, fontsize=12)
    return figure


def _differ(branches: list[Branch]) -> bool:
    return not all(np.array_equal(branch.phi, branches[0].phi) for branch in branches)


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


def _arrows_to_descriptor(products: list["Axes"], descriptor: "Axes", *, norm: bool) -> None:
    """What is done with the products: together, if there are two."""
    if len(products) == 1:
        _arrow(products[0], "ℓ2,\nM, m,\nℓ2" if norm else "M, m,\nℓ2")
        return
    for axes in products:
        _arrow_between(axes, 0.5, descriptor)
        _label(axes, "ℓ2" if norm else "", (16, 0), right=True)
    _label(descriptor, "joined:\nM, m,\nℓ2", (-32, 0))


def _arrow_between(start: "Axes", height: float, end: "Axes") -> None:
    """An arrow from the right edge of a panel, at a share of its height, to the middle of the left edge of another."""
    end.annotate(
        "",
        (0, 0.5),
        (1, height),
        xycoords=end.transAxes,
        textcoords=start.transAxes,
        arrowprops={"arrowstyle": "->", "color": BLACK, "linewidth": 1.6, "shrinkA": 8, "shrinkB": 6},
        annotation_clip=False,
    )


def _label(axes: "Axes", text: str, offset: tuple[float, float], *, right: bool = False, size: float = 10) -> None:
    """Words beside the middle of the left or of the right edge of a panel, so many points away."""
    axes.annotate(
        text,
        (1 if right else 0, 0.5),
        offset,
        xycoords="axes fraction",
        textcoords="offset points",
        annotation_clip=False,
        ha="left" if right else "right",
        va="center",
        fontsize=size,
    )


def _arrow(axes: "Axes", label: str) -> None:
    """An arrow from the right edge of a panel towards the next."""
    style = {"arrowstyle": "<-", "color": BLACK, "linewidth": 1.6, "shrinkA": 0, "shrinkB": 8}
    for text, offset, arrow in (("", (46, 0), style), (label, (26, 6), None)):
        axes.annotate(
            text,
            (1, 0.5),
            offset,
            xycoords="axes fraction",
            textcoords="offset points",
            arrowprops=arrow,
            annotation_clip=False,
            ha="center",
            va="bottom",
            fontsize=10,
        )
