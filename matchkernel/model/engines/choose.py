"""Open an engine by name; `auto` takes the fastest one that fits the model and the machine."""

from contextlib import suppress

import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError, MatchKernelError
from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor, check_model
from matchkernel.model.engines.cuda_engine import open_cuda_half
from matchkernel.model.precision import open_device, unit_rows
from matchkernel.model.weights import weights_of
from matchkernel.runtime.config import AUTO, CUDA_HALF, TORCH
from matchkernel.runtime.onnx import ENGINE, Engine, UnfitError, check_name, open_onnx, runs_on_cpu
from matchkernel.runtime.weights import FoldedNetwork, Weights, fold

# On a CPU 64 patches of 32 x 32, whose activations stay in the cache; batches of 512 take about twice as long
# (benchmarks/describe.py). A GPU needs more to be kept busy.
CPU_PIXELS, GPU_PIXELS = 2**16, 2**21


class TorchEngine:
    """PyTorch, on any device: the definition of the descriptors, which other engines are measured against.

    Args:
        model: the descriptor; a folded copy is used.
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


def open_engine(
    model: Descriptor, engine: str = TORCH, *, size: int | None = None, device: str | torch.device | None = None
) -> Engine:
    """Make an engine for a model, to be used for many patches.

    Args:
        model: the descriptor; later changes of it do not reach the engine.
        engine: "torch", the definition; "onnx" or "onnx-int8" on a CPU, "cuda-half" on a GPU; an .onnx file that
            `matchkernel export` made from this model; "auto": on a CPU onnx-int8 if the package has int8 ranges for
            these weights, else onnx; on a GPU cuda-half; torch where these cannot be used.
        size: side of the patches (default: the size the model was trained at).
        device: where to compute (default: the model's device; "auto": a GPU if there is one and the engine can use it).

    Example:
        >>> import matchkernel, numpy as np
        >>> from matchkernel.model.engines.choose import open_engine
        >>> model = matchkernel.load("tiny")
        >>> engine = open_engine(model, "onnx")
        >>> patches = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
        >>> matchkernel.describe(patches, model, engine=engine).shape
        (5, 128)
    """
    check_model(model)
    check_name(engine)
    size = model.config.patch_size if size is None else size
    on_cpu = runs_on_cpu(engine)
    if device == "auto" and on_cpu:
        device = "cpu"
    place = open_device(next(model.parameters()).device if device is None else device)
    if on_cpu and place.type != "cpu":
        raise UnfitError(f"engine {engine} runs on the CPU, not on {place}")
    if engine == AUTO:
        with suppress(MatchKernelError):  # the engine that is used is named in every output
            if place.type == "cpu":
                return open_onnx(_weights(model), AUTO, size)
            if place.type == "cuda":
                return open_cuda_half(model, size, place)
    if engine in (AUTO, TORCH):
        return TorchEngine(model, size, place)
    return open_cuda_half(model, size, place) if engine == CUDA_HALF else open_onnx(_weights(model), engine, size)


def folded_network(model: Descriptor, size: int) -> FoldedNetwork:
    """What a descriptor, folded or not, computes at inference for patches of this size."""
    return fold(_weights(model), size)


def _weights(model: Descriptor) -> Weights:
    for network in model.backbones:
        convolutions_of(network)  # refuses other layers
    return weights_of(model)


def convolutions_of(network: nn.Module) -> list[nn.Conv2d]:
    """The convolutions of a network, each followed by ReLU, perhaps after BatchNorm; other networks are refused."""
    assert isinstance(network, Backbone)
    skipped = (nn.Identity, nn.BatchNorm2d)
    layers = [layer for layer in network.layers if not isinstance(layer, skipped)]
    found = [layer for layer in layers[::2] if isinstance(layer, nn.Conv2d)]
    if 2 * len(found) != len(layers) or not all(isinstance(layer, nn.ReLU) for layer in layers[1::2]):
        kinds = ", ".join(sorted({type(layer).__name__ for layer in layers}))
        raise ArgumentError(
            f"a network of other layers than convolutions with ReLU cannot be written as ONNX ({kinds})"
        )
    return found
