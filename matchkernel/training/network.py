"""A descriptor in training: its layout, precision and kernels for the device."""

import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.model.precision import has_bfloat16
from matchkernel.runtime.config import DescriptorConfig
from matchkernel.training.grouped_norm import group_statistics


def prepare_for_training(model: Descriptor, *, groups: int, fuse: bool = False) -> None:
    """Prepare a model for training, in place; the names and shapes of its tensors do not change.

    Args:
        model: the descriptor, on its device.
        groups: number of parts of a batch with separate BatchNorm statistics: 2 for anchors and positives.
        fuse: run convolutions with their BatchNorms and ReLUs, and encodings, by kernels of our own (GPU, bfloat16).
    """
    group_statistics(model, groups)
    if fuse:
        from matchkernel.training.fused_layers import FusedEncoding, FusedLayers, can_encode  # needs triton

        for backbone in model.backbones:
            assert isinstance(backbone, Backbone)
            backbone.layers = FusedLayers(*backbone.layers)
        for k, aggregation in enumerate(model.aggregations):
            if isinstance(aggregation, SpatialEncoding) and can_encode(aggregation, model.config.d):
                model.aggregations[k] = FusedEncoding(aggregation)
    model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    model.train()


def is_half_precision(precision: str, device: torch.device) -> bool:
    """Whether a run computes in bfloat16: if requested or on a GPU, provided that the device supports it."""
    if precision == "bf16" and not has_bfloat16(device):
        warnings.warn("this CPU has no bfloat16 arithmetic: training in float32", RuntimeWarning, stacklevel=2)
        return False
    return precision == "bf16" or (precision == "auto" and device.type == "cuda")


def can_fuse(config: DescriptorConfig, device: torch.device, *, is_half: bool) -> bool:
    """Whether the fused layers can run here: on a GPU, in bfloat16, for convolutions like the paper's."""
    if device.type != "cuda" or not is_half or importlib.util.find_spec("triton") is None:
        return False
    from matchkernel.training.fused_layers import have_kernels

    return have_kernels(config)


@contextmanager
def torch_settings(device: torch.device) -> Iterator[None]:
    """Settings of torch for training; the caller's random numbers and cuDNN settings are restored at the end."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    before = cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = True, False, False
        try:
            yield
        finally:
            cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = before
