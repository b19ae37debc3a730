"""PyTorch, on any device: the definition of the descriptors, which other engines are measured against."""

import torch
from torch import Tensor

from matchkernel.model.descriptors import Descriptor
from matchkernel.model.precision import unit_rows
from matchkernel.runtime.engine import ENGINE, TORCH

# On a CPU 64 patches of 32 x 32, whose activations stay in the cache; batches of 512 take about twice as long
# (benchmarks/describe.py). A GPU needs more to be kept busy.
CPU_PIXELS, GPU_PIXELS = 2**16, 2**21


class TorchEngine:
    """A folded copy of the model.

    Args:
        model: the descriptor; it is not changed.
        size: side of the patches.
        device: where to compute.
    """

    name, takes_one_core = TORCH, False

    def __init__(self, model: Descriptor, size: int, device: torch.device) -> None:
        self.size = size
        self.model = model.fold(device=device)
        weight = next(self.model.parameters())
        self.device = str(weight.device)
        self.dtype = "float64" if weight.dtype == torch.float64 else "float32"
        self.batch_pixels = CPU_PIXELS if self.device == "cpu" else GPU_PIXELS
        self.settings = {ENGINE: self.name}

    @torch.no_grad()
    def __call__(self, patches: Tensor) -> Tensor:
        """The rows of patches."""
        rows: Tensor = self.model(patches)
        is_half = rows.dtype in (torch.float16, torch.bfloat16)
        return unit_rows(rows.float()) if is_half else rows  # half precision rounds the length
