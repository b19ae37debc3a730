"""Tensors of torch in files: ours, which are safetensors with a digest, and published weights of other networks."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as to_bytes
from torch import Tensor, nn

from matchkernel.errors import WeightsError
from matchkernel.storage.arrays import KINDS, Stored, digest
from matchkernel.storage.files import check_regular, replacing

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


def read_content(path: Path) -> Any:
    """What a file of torch.save contains, or one named .safetensors; code in it is never executed."""
    check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about pickles that it then refuses
            return torch.load(path, weights_only=True, map_location="cpu")
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
    except Exception:  # PyTorch's messages are a page long, recommend to allow code, or are a bare number
        raise WeightsError(
            f"{path}: damaged, or not weights that torch.save or safetensors wrote (code in it is never executed)"
        ) from None


def read_state(path: Path) -> dict[str, Any]:
    """The state_dict in a file of torch.save, alone or as the entry `state_dict` of a checkpoint."""
    content = read_content(path)
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise WeightsError(f"{path}: holds a {type(content).__name__}, not a state_dict")
    return content


def fill(module: nn.Module, state: Mapping[str, Any], path: Path, name: str) -> nn.Module:
    """Give a network all its weights and no others, ready to run; messages name their file and the network."""
    try:
        module.load_state_dict(state, strict=True)
    except (RuntimeError, TypeError, AttributeError) as error:
        first, *others = str(error).splitlines() or [type(error).__name__]
        reason = (others or [first])[0].strip()[:160]  # PyTorch's first line only names the class
        raise WeightsError(f"{path}: not weights of {name} ({reason})") from None
    check_finite(module.state_dict(), path)
    return module.eval()


def check_finite(tensors: dict[str, Tensor], path: Path) -> None:
    """Refuse NaN and infinite values."""
    if bad := first_not_finite(tensors):
        raise WeightsError(f"{path}: contains NaN or infinite values in {bad}")
