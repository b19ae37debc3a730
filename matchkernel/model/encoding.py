"""Encode features together with their positions: the aggregation vec(Phi^T F)."""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from matchkernel.model.precision import exact_type, widened
from matchkernel.runtime.positions import position_matrix


class SpatialEncoding(nn.Module):
    """Encode every feature together with its position and sum over the map: c vec(Phi^T F) [M12].

    c = 64 / n^2 gives the paper's plain sum at n = 8 and the same scale at every n. With `unit_norm` the vector
    is normalised instead, and multiplied by the square root of its dimension: its mean square is 1. F is stored for
    maps of side n; for another side it is computed in the forward pass, since it contains nothing learned.

    Shape: (B, d, n, n) -> (B, d * P), channel slow, then first, then second coordinate.
    """

    F: Tensor  # (n * n, P): row p is the weighted position code of cell p, row-major

    def __init__(
        self, system: str, n: int, gamma: Sequence[float], *, grid: str, center_weight: bool, unit_norm: bool
    ) -> None:
        super().__init__()
        self.system, self.n, self.gamma = system, n, tuple(gamma)
        self.grid, self.center_weight, self.unit_norm = grid, center_weight, unit_norm
        place = torch.get_default_device()
        self.register_buffer("F", self.position_matrix(n).to(place, torch.get_default_dtype()), persistent=False)

    def position_matrix(self, n: int, *, weighted: bool = True, device: torch.device | None = None) -> Tensor:
        """F for a map of side n, in float64 where the device has it; `weighted=False` leaves w_p out."""
        center_weight = self.center_weight and weighted
        F = position_matrix(self.system, n, self.gamma, grid=self.grid, center_weight=center_weight)
        return torch.from_numpy(F).to(exact_type(device)).to(device or "cpu")

    def unit_factor(self, encoded: Tensor) -> Tensor:
        """(B, 1) factors that give vectors mean square 1; a zero vector stays zero."""
        norm: Tensor = widened(encoded).norm(dim=-1, keepdim=True).clamp_min(1e-12)
        return math.sqrt(encoded.shape[-1]) / norm

    def forward(self, phi: Tensor) -> Tensor:
        """c vec(Phi^T F), or the vector of mean square 1."""
        encoded = self.sum_of(phi)
        return (encoded * self.unit_factor(encoded)).to(phi.dtype) if self.unit_norm else encoded

    def sum_of(self, phi: Tensor) -> Tensor:
        """c vec(Phi^T F)."""
        n = phi.shape[-1]
        F = self.F if n == self.n else self.position_matrix(n, device=phi.device)
        F = F.to(phi.dtype) * (64 / n**2)  # c, applied to a few values rather than to every vector
        return (phi.flatten(2) @ F).flatten(1)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "SpatialEncoding":
        # F is a formula, not data: after .double(), .half() or .to_empty() it is computed again, so that it is
        # never the rounded or uninitialised copy of another precision or device.
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.F = self.position_matrix(self.n, device=self.F.device).to(self.F.dtype)
        return self

    def extra_repr(self) -> str:
        """The settings, for print(model)."""
        return (
            f"{self.system}, n={self.n}, s={len(self.gamma) - 1}, grid={self.grid}, center_weight={self.center_weight}"
        )
