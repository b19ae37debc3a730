"""What baselines that are PyTorch networks share."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.evaluation.baselines.baseline import RESIZED, Baseline
from matchkernel.storage.files import file_hash


class UnitRows(nn.Module):
    """Divide every row by its length."""

    def forward(self, rows: Tensor) -> Tensor:
        """(K, D) -> (K, D)."""
        return nnf.normalize(rows)


def network_baseline(name: str, module: nn.Module, size: int, path: Path, told: dict[str, str]) -> Baseline:
    """A baseline that runs a network on patches with gray levels 0 to 255.

    Args:
        name: what to call it.
        module: (K, 1, size, size) -> (K, D).
        size: side of its patches.
        path: its weight file.
        told: where the network is from: what to record beside the patch and the weights.
    """
    compute = forward(module)
    settings = {
        "patch": f"{size} px, {RESIZED}; gray levels 0 to 255",
        **told,
        "weights": path.name,
        "sha256": file_hash(path),
    }
    parameters = sum(parameter.numel() for parameter in module.parameters())
    dimension = compute(torch.zeros(1, 1, size, size)).shape[1]
    return Baseline(name, "l2", dimension, parameters, False, size, settings, compute)


def forward(module: nn.Module) -> Callable[[Tensor], np.ndarray]:
    """Run a network without gradients."""

    @torch.no_grad()
    def compute(piece: Tensor) -> np.ndarray:
        return module(piece).numpy()

    return compute
