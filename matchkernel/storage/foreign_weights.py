"""Weight files of other people's networks: tensors only, checked against the network that they are for."""

import pickle
import struct
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from matchkernel.errors import WeightsError
from matchkernel.storage.files import check_regular
from matchkernel.storage.tensors import first_not_finite


def read_content(path: Path) -> Any:
    """What a file of torch.save contains, or one named .safetensors; code in it is never executed."""
    with _readable(path):
        return torch.load(path, weights_only=True, map_location="cpu")


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


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn any problem with reading a file into a one-line error that names it."""
    check_regular(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch warns about pickles that it then refuses
            yield
    except OSError as error:
        raise WeightsError(f"{path}: cannot be read ({error.strerror or error})") from None
    except pickle.UnpicklingError:
        # PyTorch's message is a page long and recommends loading it with code allowed.
        raise WeightsError(f"{path}: damaged, or contains more than tensors (code in it is never executed)") from None
    except SafetensorError as error:  # PyTorch reads files of this name with safetensors
        raise WeightsError(f"{path}: damaged, or not a safetensors file, as its name says{_reason(error)}") from None
    except RuntimeError as error:
        raise WeightsError(f"{path}: damaged, or not a file of torch.save{_reason(error)}") from None
    except (ValueError, EOFError, LookupError, TypeError, AttributeError, AssertionError, struct.error):
        # From within the unpickler: their messages, such as a bare number, mean nothing to a user.
        raise WeightsError(f"{path}: damaged, or not a file of torch.save") from None


def _reason(error: Exception) -> str:
    """The first line of an error's message in brackets; nothing if it has none."""
    first = next(iter(str(error).splitlines()), "").strip()[:120]
    return f" ({first})" if first else ""
