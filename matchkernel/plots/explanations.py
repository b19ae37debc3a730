"""Pictures that explain the method, computed from the library itself and drawn by plots/."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from matchkernel.errors import ArgumentError, FileError
from matchkernel.model.backbone import normalize_patches
from matchkernel.model.config import MAX_S
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.encoding import SYSTEMS, position_codes
from matchkernel.model.kernel_view import display_map, raw_encodings, receptive_field, similarity_map
from matchkernel.model.positions import coordinates, positions
from matchkernel.model.von_mises import feature_map, fourier_coefficients, kernel, truncated_kernel
from matchkernel.plots.canvas import save_png
from matchkernel.plots.conventions import draw_conventions
from matchkernel.plots.kernels import draw_invariance, draw_kernel_curves, draw_position_kernels
from matchkernel.plots.similarity import draw_similarity_maps

SHIFT, TURN = "shift of p to the right (half sides)", "turn of p about the centre (degrees)"


def kernel_pictures(folder: str | Path, kappa: float = 8.0, s: int = 2) -> list[Path]:
    """Write kernels.png, position_kernels.png and invariance.png; returns their paths.

    Args:
        folder: where to write; made if it is not there.
        kappa: concentration of the position kernels; its curve is drawn too, beside kappa = 1.
        s: frequencies of the position kernels; drawn too, beside 1, 2, 3.
    """
    if not 0 <= s <= MAX_S:
        raise ArgumentError(f"s must be between 0 and {MAX_S}, got {s}")
    gamma = fourier_coefficients(kappa, s)
    title = f"κ = {kappa:g}, s = {s}"
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise FileError(f"{folder}: cannot be made a folder ({error.strerror})") from None
    figures = {
        "kernels.png": draw_kernel_curves(*kernel_curves(sorted({1.0, kappa}), sorted({1, 2, 3, s}))),
        "position_kernels.png": draw_position_kernels(*position_kernels(gamma), title),
        "invariance.png": draw_invariance(*invariance_curves(gamma), title),
    }
    for name, figure in figures.items():
        save_png(figure, folder / name)
    return [folder / name for name in figures]


def conventions_picture(path: str | Path) -> None:
    """Write the picture of docs/conventions.md."""
    rows, columns = torch.meshgrid(torch.arange(32.0), torch.arange(32.0), indexing="ij")
    patch = 120 + 40 * torch.sin(columns / 3) + 25 * torch.cos(rows / 5 + columns / 9)
    seen = normalize_patches(patch[None, None])[0, 0]
    cells = positions(8).x[0] / (math.pi / 2)
    save_png(
        draw_conventions(cells.numpy(), receptive_field(2, 5), encoding_order(), patch.numpy(), seen.numpy()), path
    )


def encoding_order() -> np.ndarray:
    """(2, 3, 3): where phi_c f(x)_i f(y)_j stands in the encoded vector (d = 2, s = 1), found by its value."""
    gamma = fourier_coefficients(1.0, 1)
    phi = torch.tensor([2.0, 3.0], dtype=torch.float64)
    place = coordinates(torch.tensor(0.3, dtype=torch.float64), torch.tensor(0.8, dtype=torch.float64))
    vector = raw_encodings(phi[None, :, None, None], position_codes("cartesian", place, gamma)[None]).flatten()
    products = torch.einsum("c,i,j->cij", phi, feature_map(place.x, gamma), feature_map(place.y, gamma))
    return (products[..., None] - vector).abs().argmin(-1).numpy()


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
        raise ArgumentError(f"two (N, N) patches of one size are wanted, got {shapes}")
    if not all(bool(patch.isfinite().all()) and bool(patch.min() < patch.max()) for patch in (patch_a, patch_b)):
        raise ArgumentError("a patch without content (empty, constant or not finite) has no similarity to show")
    pair = resize_patches(torch.stack([patch_a, patch_b])[:, None], model.config.patch_size)
    near, middle, far = (round(share * (model.config.n - 1)) for share in (0.2, 0.5, 0.8))
    cells = [(near, near), (near, far), (middle, middle), (far, near), (far, far)]
    maps = [display_map(similarity_map(model, pair[0], pair[1], *cell)).cpu().numpy() for cell in cells]
    boxes = [receptive_field(*cell) for cell in cells]
    a, b = (patch[0].cpu().numpy() for patch in pair)
    save_png(draw_similarity_maps(a, b, maps, boxes), path)


def kernel_curves(
    kappas: Sequence[float] = (1.0, 8.0), frequencies: Sequence[int] = (1, 2, 3)
) -> tuple[np.ndarray, dict[float, np.ndarray], dict[float, dict[int, np.ndarray]]]:
    """Degrees, the exact kernel for each kappa, and its truncations for each s."""
    degrees = torch.linspace(-180, 180, 721, dtype=torch.float64)
    delta = degrees.deg2rad()
    exact = {kappa: kernel(delta, kappa).numpy() for kappa in kappas}
    truncated = {
        kappa: {s: truncated_kernel(delta, fourier_coefficients(kappa, s)).numpy() for s in frequencies}
        for kappa in kappas
    }
    return degrees.numpy(), exact, truncated


def position_kernels(gamma: tuple[float, ...]) -> tuple[dict[str, list[np.ndarray]], list[tuple[float, float]]]:
    """For each coordinate system the similarity of four positions with a fine grid of positions."""
    points = [(0.0, 0.0), (0.375, 0.0), (0.5, 0.5), (-0.75, 0.25)]
    place = coordinates(*torch.tensor(points, dtype=torch.float64).unbind(1))
    maps = {}
    for system in SYSTEMS:
        codes = position_codes(system, positions(64), gamma)
        maps[system] = [(codes @ code).numpy() for code in position_codes(system, place, gamma)]
    return maps, points


def invariance_curves(gamma: tuple[float, ...]) -> tuple[dict[tuple[str, str], np.ndarray], dict[str, np.ndarray]]:
    """The kernel between p and p shifted, and p and p turned, for many p of a disc, for both systems."""
    generator = torch.Generator().manual_seed(0)
    radius = 0.15 + 0.8 * torch.rand(60, 1, dtype=torch.float64, generator=generator)
    angle = 2 * math.pi * torch.rand(60, 1, dtype=torch.float64, generator=generator)
    u, v = radius * angle.cos(), radius * angle.sin()
    shift = torch.linspace(-1, 1, 121, dtype=torch.float64)
    turn = torch.linspace(-180, 180, 121, dtype=torch.float64)
    turned = angle + turn.deg2rad()
    changed = {SHIFT: (u + shift, v.expand(-1, len(shift))), TURN: (radius * turned.cos(), radius * turned.sin())}
    curves = {}
    for system in SYSTEMS:
        here = position_codes(system, coordinates(u, v), gamma)
        for change, there in changed.items():
            curves[system, change] = (here * position_codes(system, coordinates(*there), gamma)).sum(-1).numpy()
    return curves, {SHIFT: shift.numpy(), TURN: turn.numpy()}
