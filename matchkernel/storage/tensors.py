"""Safetensors files with a digest of their contents: the common part of weight files and checkpoints."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save as to_bytes
from torch import Tensor

from matchkernel.errors import MatchKernelError, WeightsError
from matchkernel.storage.files import not_safetensors, replacing


def write_tensors(path: str | Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> None:
    """Write tensors (on the CPU, contiguous) and strings, with the sha256 of both, atomically."""
    words = {**metadata, "sha256": digest(metadata, tensors)}
    with replacing(path) as part:
        part.write_bytes(to_bytes(dict(tensors), words))  # save_file would report a full disk as an error of its own


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn any problem with reading into a one-line error that names the file."""
    try:
        yield
    except SafetensorError as error:
        with path.open("rb") as file:
            start = file.read(4)
        raise WeightsError(f"{path}: {not_safetensors(start)} ({error})") from None
    except OSError as error:
        if isinstance(error, MatchKernelError):
            raise
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None


def digest(metadata: Mapping[str, str], tensors: Mapping[str, Tensor]) -> str:
    """sha256 of every other metadata entry, and of the name, dtype, shape and bytes of every tensor."""
    words = {key: value for key, value in metadata.items() if key != "sha256"}
    digest = hashlib.sha256(json.dumps(words, sort_keys=True).encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def first_not_finite(tensors: Mapping[str, Tensor]) -> str | None:
    """The name of a tensor that contains NaN or infinite values, if there is one."""
    return next((name for name, tensor in tensors.items() if not bool(tensor.isfinite().all())), None)
