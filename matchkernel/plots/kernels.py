"""Pictures of the kernels: on angles, between positions, and under shifts and rotations of the position."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.plots.canvas import BLACK, BLUE, DIVERGING, GRAY, GREEN, ORANGE, new_figure, save_png
from matchkernel.runtime.config import MAX_KAPPA, MAX_S
from matchkernel.runtime.positions import (
    SYSTEMS,
    coordinates,
    fourier_coefficients,
    kernel,
    position_codes,
    positions,
    truncated_kernel,
)
from matchkernel.storage.files import check_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHIFT, TURN = "shift of p to the right (half sides)", "turn of p about the centre (degrees)"
AMOUNTS = {SHIFT: np.linspace(-1, 1, 121), TURN: np.linspace(-180, 180, 121)}
POINTS = ((0.0, 0.0), (0.375, 0.0), (0.5, 0.5), (-0.75, 0.25))  # positions (u, v) in the square [-1, 1]^2


def kernel_pictures(folder: str | Path, kappa: float = 8.0, s: int = 2) -> list[Path]:
    """Write kernels.png, position_kernels.png and invariance.png to a folder; returns their paths.

    Those of positions are drawn for this kappa and s; the curves of the kernel also for kappa = 1 and s = 1, 2, 3.
    """
    if not 0 < kappa <= MAX_KAPPA:
        raise ArgumentError(f"kappa must be above 0 and at most {MAX_KAPPA:g}, got {kappa}")
    if not 0 <= s <= MAX_S:
        raise ArgumentError(f"s must be between 0 and {MAX_S}, got {s}")
    gamma = fourier_coefficients(kappa, s)
    title = f"κ = {kappa:g}, s = {s}"
    check_folder(folder)
    figures = {
        "kernels.png": draw_kernel_curves({1.0, kappa}, {1, 2, 3, s}),
        "position_kernels.png": draw_position_kernels(gamma, title),
        "invariance.png": draw_invariance(gamma, title),
    }
    for name, figure in figures.items():
        save_png(figure, Path(folder) / name)
    return [Path(folder) / name for name in figures]


def draw_kernel_curves(kappas: Iterable[float] = (1.0, 8.0), frequencies: Iterable[int] = (1, 2, 3)) -> "Figure":
    """The kernel k and its truncations over the difference of two angles, one panel per kappa."""
    degrees, kappas = np.linspace(-180, 180, 721), sorted(kappas)
    figure = new_figure(4.6 * len(kappas), 3.4)
    panels = figure.subplots(1, len(kappas), sharey=True, squeeze=False)[0]
    for axes, kappa in zip(panels, kappas, strict=True):
        axes.axhline(0, color=GRAY, linewidth=0.6)
        for s, colour in zip(sorted(frequencies), (BLUE, ORANGE, GREEN, GRAY), strict=False):
            values = truncated_kernel(np.deg2rad(degrees), fourier_coefficients(kappa, s))
            axes.plot(degrees, values, color=colour, linewidth=1.5, label=f"s = {s}")
        exact = kernel(np.deg2rad(degrees), kappa)
        axes.plot(degrees, exact, color=BLACK, linewidth=1.5, linestyle=(0, (4, 2)), label="exact")
        axes.set(title=f"κ = {kappa:g}", xlabel="difference of angles (degrees)", xticks=range(-180, 181, 90))
        axes.legend(frameon=False)
    panels[0].set_ylabel("similarity k")
    return figure


def position_kernels(gamma: tuple[float, ...]) -> dict[str, list[np.ndarray]]:
    """For each coordinate system the similarity of each of POINTS with a fine grid of positions."""
    place, maps = coordinates(*np.array(POINTS).T), {}
    for system in SYSTEMS:
        codes = position_codes(system, positions(64), gamma)
        maps[system] = [codes @ code for code in position_codes(system, place, gamma)]
    return maps


def draw_position_kernels(gamma: tuple[float, ...], title: str) -> "Figure":
    """Similarity of one position p with every other, one row per coordinate system, one column per p."""
    rows = position_kernels(gamma)
    figure = new_figure(2.35 * len(POINTS) + 0.9, 2.5 * len(rows))
    panels = figure.subplots(len(rows), len(POINTS), squeeze=False)
    limit = max(float(np.abs(m).max()) for maps in rows.values() for m in maps)
    look: dict[str, Any] = {"cmap": DIVERGING, "vmin": -limit, "vmax": limit, "extent": (-1, 1, 1, -1)}
    for line, (name, maps) in zip(panels, rows.items(), strict=True):
        for axes, values, (u, v) in zip(line, maps, POINTS, strict=True):
            image = axes.imshow(values, **look, interpolation="nearest")
            axes.plot(u, v, marker="+", color=BLACK, markersize=9, markeredgewidth=1.5)
            axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        line[0].set_ylabel("v")
        line[0].set_title(name, loc="left", fontweight="bold")
    for axes in panels[-1]:
        axes.set_xlabel("u")
    figure.suptitle(title)
    figure.colorbar(image, ax=panels, label="similarity of position + with each other", shrink=0.8)
    return figure


def invariance_curves(gamma: tuple[float, ...]) -> dict[tuple[str, str], np.ndarray]:
    """The kernel between p and p shifted, and between p and p rotated, for many p of a disc and both systems."""
    random = np.random.default_rng(0)
    radius = 0.15 + 0.8 * random.random((60, 1))
    angle = 2 * math.pi * random.random((60, 1))
    u, v = radius * np.cos(angle), radius * np.sin(angle)
    moved, turned = u + AMOUNTS[SHIFT], angle + np.deg2rad(AMOUNTS[TURN])
    changed = {
        SHIFT: (moved, np.broadcast_to(v, moved.shape)),
        TURN: (radius * np.cos(turned), radius * np.sin(turned)),
    }
    curves = {}
    for system in SYSTEMS:
        here = position_codes(system, coordinates(u, v), gamma)
        for change, there in changed.items():
            curves[system, change] = (here * position_codes(system, coordinates(*there), gamma)).sum(-1)
    return curves


def draw_invariance(gamma: tuple[float, ...], title: str) -> "Figure":
    """The kernel between p and p changed, one line per p; the lines coincide if the kernel does not depend on p."""
    curves = invariance_curves(gamma)
    figure = new_figure(4.4 * len(AMOUNTS), 2.7 * len(SYSTEMS))
    panels = figure.subplots(len(SYSTEMS), len(AMOUNTS), sharey=True, squeeze=False)
    for axes, ((system, change), values) in zip(panels.flat, curves.items(), strict=True):
        amounts, is_same = AMOUNTS[change], np.ptp(values, axis=0).max() < 1e-9
        axes.axhline(0, color=GRAY, linewidth=0.6)
        axes.plot(amounts, values.T, color=BLUE if is_same else ORANGE, linewidth=0.8, alpha=0.5)
        axes.set_title(f"{system}: {'the same for every p' if is_same else 'depends on p'}")
        axes.set(xlabel=change, xticks=np.linspace(amounts[0], amounts[-1], 5))
    for axes in panels[:, 0]:
        axes.set_ylabel("kernel between p and p′")
    figure.suptitle(title)
    return figure
