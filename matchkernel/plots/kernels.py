"""Pictures of the kernels: on angles, between positions, and under shifts and rotations of the position."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.plots.canvas import BLACK, BLUE, DIVERGING, GRAY, GREEN, ORANGE, new_figure, save_png
from matchkernel.runtime.config import MAX_S
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
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

SHIFT, TURN = "shift of p to the right (half sides)", "turn of p about the centre (degrees)"


def kernel_pictures(folder: str | Path, kappa: float = 8.0, s: int = 2) -> list[Path]:
    """Write kernels.png, position_kernels.png and invariance.png; returns their paths.

    Args:
        folder: where to write; created if it does not exist.
        kappa: concentration of the position kernels; its curve is drawn in addition to that of kappa = 1.
        s: frequencies of the position kernels; drawn in addition to 1, 2, 3.
    """
    if not 0 <= s <= MAX_S:
        raise ArgumentError(f"s must be between 0 and {MAX_S}, got {s}")
    gamma = fourier_coefficients(kappa, s)
    title = f"κ = {kappa:g}, s = {s}"
    folder = Path(folder)
    check_folder(folder)
    figures = {
        "kernels.png": draw_kernel_curves(*kernel_curves(sorted({1.0, kappa}), sorted({1, 2, 3, s}))),
        "position_kernels.png": draw_position_kernels(*position_kernels(gamma), title),
        "invariance.png": draw_invariance(*invariance_curves(gamma), title),
    }
    for name, figure in figures.items():
        save_png(figure, folder / name)
    return [folder / name for name in figures]


def kernel_curves(
    kappas: Sequence[float] = (1.0, 8.0), frequencies: Sequence[int] = (1, 2, 3)
) -> tuple[np.ndarray, dict[float, np.ndarray], dict[float, dict[int, np.ndarray]]]:
    """Degrees, the exact kernel for each kappa, and its truncations for each s."""
    degrees = np.linspace(-180, 180, 721)
    delta = np.deg2rad(degrees)
    exact = {kappa: kernel(delta, kappa) for kappa in kappas}
    truncated = {
        kappa: {s: truncated_kernel(delta, fourier_coefficients(kappa, s)) for s in frequencies} for kappa in kappas
    }
    return degrees, exact, truncated


def position_kernels(gamma: tuple[float, ...]) -> tuple[dict[str, list[np.ndarray]], list[tuple[float, float]]]:
    """For each coordinate system the similarity of four positions with a fine grid of positions."""
    points = [(0.0, 0.0), (0.375, 0.0), (0.5, 0.5), (-0.75, 0.25)]
    place = coordinates(*np.array(points).T)
    maps = {}
    for system in SYSTEMS:
        codes = position_codes(system, positions(64), gamma)
        maps[system] = [codes @ code for code in position_codes(system, place, gamma)]
    return maps, points


def invariance_curves(gamma: tuple[float, ...]) -> tuple[dict[tuple[str, str], np.ndarray], dict[str, np.ndarray]]:
    """The kernel between p and p shifted, and between p and p rotated, for many p of a disc and both systems."""
    random = np.random.default_rng(0)
    radius = 0.15 + 0.8 * random.random((60, 1))
    angle = 2 * math.pi * random.random((60, 1))
    u, v = radius * np.cos(angle), radius * np.sin(angle)
    shift, turn = np.linspace(-1, 1, 121), np.linspace(-180, 180, 121)
    turned = angle + np.deg2rad(turn)
    moved = u + shift
    changed = {
        SHIFT: (moved, np.broadcast_to(v, moved.shape)),
        TURN: (radius * np.cos(turned), radius * np.sin(turned)),
    }
    curves = {}
    for system in SYSTEMS:
        here = position_codes(system, coordinates(u, v), gamma)
        for change, there in changed.items():
            curves[system, change] = (here * position_codes(system, coordinates(*there), gamma)).sum(-1)
    return curves, {SHIFT: shift, TURN: turn}


def draw_kernel_curves(
    degrees: np.ndarray, exact: Mapping[float, np.ndarray], truncated: Mapping[float, Mapping[int, np.ndarray]]
) -> "Figure":
    """k and its truncations over the difference of two angles, one panel per kappa.

    Args:
        degrees: (A,) differences of angles.
        exact: kappa -> (A,) values of k.
        truncated: kappa -> s -> (A,) values of the kernel of s frequencies.
    """
    figure = new_figure(4.6 * len(exact), 3.4)
    panels = figure.subplots(1, len(exact), sharey=True, squeeze=False)[0]
    for axes, kappa in zip(panels, exact, strict=True):
        axes.axhline(0, color=GRAY, linewidth=0.6)
        for (s, values), colour in zip(truncated[kappa].items(), (BLUE, ORANGE, GREEN, GRAY), strict=False):
            axes.plot(degrees, values, color=colour, linewidth=1.5, label=f"s = {s}")
        axes.plot(degrees, exact[kappa], color=BLACK, linewidth=1.5, linestyle=(0, (4, 2)), label="exact")
        axes.set(title=f"κ = {kappa:g}", xlabel="difference of angles (degrees)", xticks=range(-180, 181, 90))
        axes.legend(frameon=False)
    panels[0].set_ylabel("similarity k")
    return figure


def draw_position_kernels(
    rows: Mapping[str, Sequence[np.ndarray]], points: Sequence[tuple[float, float]], title: str
) -> "Figure":
    """Similarity of one position p with every other, one row per coordinate system, one column per p.

    Args:
        rows: name of the system -> a (n, n) map for each p.
        points: (u, v) of each p in the square [-1, 1]^2.
        title: of the sheet.
    """
    figure = new_figure(2.35 * len(points) + 0.9, 2.5 * len(rows))
    panels = figure.subplots(len(rows), len(points), squeeze=False)
    limit = max(float(np.abs(m).max()) for maps in rows.values() for m in maps)
    for line, (name, maps) in zip(panels, rows.items(), strict=True):
        for axes, values, (u, v) in zip(line, maps, points, strict=True):
            image = axes.imshow(
                values, cmap=DIVERGING, vmin=-limit, vmax=limit, extent=(-1, 1, 1, -1), interpolation="nearest"
            )
            axes.plot(u, v, marker="+", color=BLACK, markersize=9, markeredgewidth=1.5)
            axes.set(xticks=(-1, 0, 1), yticks=(-1, 0, 1))
        line[0].set_ylabel("v")
        line[0].set_title(name, loc="left", fontweight="bold")
    for axes in panels[-1]:
        axes.set_xlabel("u")
    figure.suptitle(title)
    figure.colorbar(image, ax=panels, label="similarity of position + with each other", shrink=0.8)
    return figure


def draw_invariance(
    curves: Mapping[tuple[str, str], np.ndarray], changes: Mapping[str, np.ndarray], title: str
) -> "Figure":
    """The kernel between p and p changed, with one line per p; the lines coincide if the kernel does not depend on p.

    Args:
        curves: (system, change) -> (points, A) kernel values.
        changes: change, as the label of the axis -> (A,) amounts.
        title: of the sheet.
    """
    systems = list(dict.fromkeys(system for system, _ in curves))
    figure = new_figure(4.4 * len(changes), 2.7 * len(systems))
    panels = figure.subplots(len(systems), len(changes), sharey=True, squeeze=False)
    for line, system in zip(panels, systems, strict=True):
        for axes, (change, amounts) in zip(line, changes.items(), strict=True):
            _draw_bundle(axes, amounts, curves[system, change])
            axes.set_title(f"{system}: {'the same for every p' if _agree(curves[system, change]) else 'depends on p'}")
            axes.set(xlabel=change, xticks=np.linspace(amounts[0], amounts[-1], 5))
        line[0].set_ylabel("kernel between p and p′")
    figure.suptitle(title)
    return figure


def _draw_bundle(axes: "Axes", amounts: np.ndarray, curves: np.ndarray) -> None:
    axes.axhline(0, color=GRAY, linewidth=0.6)
    colour = BLUE if _agree(curves) else ORANGE
    axes.plot(amounts, curves.T, color=colour, linewidth=0.8, alpha=0.5)


def _agree(curves: np.ndarray) -> bool:
    return bool(np.ptp(curves, axis=0).max() < 1e-9)
