"""Where to compute: a device by its name."""

import torch

from matchkernel.errors import ArgumentError, short_message


def open_device(device: str | torch.device | None) -> torch.device:
    """A usable device, or a one-line error: "cpu", "cuda", ...; "auto" is a GPU if there is one, None is the CPU."""
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.empty(0, device=device or "cpu").device
    except (RuntimeError, AssertionError, ValueError, TypeError) as error:
        raise ArgumentError(f"device {device!r} cannot be used: {short_message(error)}") from None
    if found.type == "meta":
        raise ArgumentError("device 'meta' holds no numbers to compute with")
    return found
