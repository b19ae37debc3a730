"""Open an engine by name; `auto` takes the fastest one that fits the model and the machine."""

import torch

from matchkernel.errors import MatchKernelError
from matchkernel.model.descriptors import Descriptor, check_model
from matchkernel.model.devices import open_device
from matchkernel.model.engines.cuda_engine import open_cuda_half
from matchkernel.model.engines.folded import check_layers, folded_network, weights_of
from matchkernel.model.engines.torch_engine import TorchEngine
from matchkernel.runtime.engine import AUTO, CUDA_HALF, ONNX, TORCH, Engine, UnfitError, check_name, runs_on_cpu
from matchkernel.runtime.onnx_engine import check_kind, no_ranges, open_float, open_onnx


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
        return _fastest(model, size, place)
    if engine == TORCH:
        return TorchEngine(model, size, place)
    if engine == CUDA_HALF:
        return open_cuda_half(model, size, place)
    return _on_cpu(model, engine, size)


def _on_cpu(model: Descriptor, engine: str, size: int) -> Engine:
    check_layers(model)
    if not model.is_folded:
        return open_onnx(weights_of(model), engine, size)
    if engine in (AUTO, ONNX):
        check_kind("F64" if next(model.parameters()).dtype == torch.float64 else "F32")
        return open_float(folded_network(model, size), model.name)
    raise UnfitError(no_ranges(model.name))


def _fastest(model: Descriptor, size: int, place: torch.device) -> Engine:
    try:
        if place.type == "cpu":
            return _on_cpu(model, AUTO, size)
        if place.type == "cuda":
            return open_cuda_half(model, size, place)
    except MatchKernelError:
        pass  # the engine that is used is named in every output
    return TorchEngine(model, size, place)
