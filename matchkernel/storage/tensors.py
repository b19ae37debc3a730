"""Tensors of torch in safetensors files with a digest: the common part of weight files and checkpoints."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor

from matchkernel.storage.files import replacing
from matchkernel.storage.stored import KINDS, Stored, digest

_KINDS = {getattr(torch, name): kind for kind, name in KINDS.items()}


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors (on the CPU, contiguous) and strings, with the sha256 of both, atomically."""
    strings = {**metadata, "sha256": digest(metadata, as_stored(tensors))}
    with replacing(path) as part:
        part.write_bytes(to_bytes(dict(tensors), strings))  # save_file would report a full disk as an error of its own


def as_stored(tensors: Mapping[str, Tensor]) -> dict[str, Stored]:
    """Tensors (on the CPU, contiguous) as a file would hold them; the memory is shared."""
    return {
        name: Stored(_KINDS[tensor.dtype], tuple(tensor.shape), tensor.reshape(-1).view(torch.uint8).numpy().data)
        for name, tensor in tensors.items()
    }


def as_tensor(stored: Stored) -> Tensor:
    """A tensor of a file, in memory of its own."""
    dtype = getattr(torch, KINDS[stored.kind])
    if not len(stored.data):
        return torch.empty(stored.shape, dtype=dtype)
    return torch.frombuffer(bytearray(stored.data), dtype=dtype).reshape(stored.shape)


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that contains NaN or infinite values, if there is one."""
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)
