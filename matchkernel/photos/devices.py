"""Where the photo path computes: on a CPU without torch, on a GPU with it."""

import sys
from ctypes.util import find_library
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from matchkernel.errors import MissingExtraError
from matchkernel.storage.extras import need

if TYPE_CHECKING:
    import torch

CPU = "cpu"
DRIVERS = ("/dev/nvidiactl", "/dev/nvmap", "/dev/dxg", "/dev/kfd")  # NVIDIA, its boards, Windows' Linux, AMD


def open_place(device: "str | torch.device | None") -> str:
    """The name of a usable device, or a one-line error: "cpu", "cuda:0", ...

    Args:
        device: None is the CPU; "auto" a GPU if torch is installed and finds one, otherwise the CPU. Torch is imported
            only for other devices than the CPU.
    """
    if device is None or str(device).partition(":")[0] == CPU or (device == "auto" and not may_have_gpu()):
        return CPU
    try:
        need("torch", "torch", f"device {device}")
    except MissingExtraError:
        if device == "auto":
            return CPU  # a torch that is broken does not stop photos
        raise
    from matchkernel.model.devices import open_device

    return str(open_device(device))


def may_have_gpu() -> bool:
    """Whether torch is installed and a GPU's driver is loaded, so that it is worth the seconds to import torch."""
    if find_spec("torch") is None:
        return False
    if sys.platform == "win32":
        return find_library("nvcuda") is not None
    return any(Path(driver).exists() for driver in DRIVERS)
