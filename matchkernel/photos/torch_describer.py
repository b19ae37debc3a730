"""Regions of an image to rows with an engine of torch: the definition on a CPU, or a GPU that also cuts the patches."""

from collections.abc import Callable

import numpy as np
import torch

from matchkernel.geometry.device_sampling import extract_patches_on
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.sampling import Pyramid
from matchkernel.model.describe import describe_piece
from matchkernel.runtime.engine import Engine


def cutter_on(image: np.ndarray, device: str, size: int) -> Callable[[Frames], torch.Tensor]:
    """A function that cuts (b, 1, size, size) bytes at frames, on the device; a GPU is sent the image."""
    place = torch.device(device)
    if place.type == "cuda":
        pixels = torch.tensor(image, device=place)
        return lambda frames: extract_patches_on(pixels, frames, size)[:, None]
    pyramid = Pyramid(image)
    return lambda frames: torch.from_numpy(pyramid.cut(frames, size)[:, None]).to(place)


def rows_on(patches: torch.Tensor, engine: Engine) -> np.ndarray:
    """(b, D) rows of patches, zeros without content."""
    return describe_piece(patches, engine)[0].cpu().numpy()
