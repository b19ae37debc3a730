"""Weight files of published networks: tensors only, checked against the network that they are for."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from matchkernel.errors import WeightsError
from matchkernel.storage.files import check_regular
from matchkernel.storage.tensors import first_not_finite


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
    """Give a network the weights of a file, ready to run.

    Args:
        module: the network.
        state: its weights; all of them and no others.
        path: where they are from, for messages.
        name: of the network, for messages.
    """
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
    bad = first_not_finite(tensors)
    if bad:
        raise WeightsError(f"{path}: contains NaN or infinite values in {bad}")
