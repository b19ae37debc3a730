"""kornia: frames as LAFs, and a descriptor for `LAFDescriptor` and `LocalFeature`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.conventions import frames_from_kornia, frames_to_kornia
from matchkernel.geometry.frames import Frames
from matchkernel.model.descriptors import Descriptor, check_patch_size
from matchkernel.storage.extras import need


def lafs_from_frames(frames: Frames) -> Tensor:
    """Frames as kornia's LAFs: (1, K, 2, 3) float32 on the CPU, [A | c] for each region.

    Example:
        >>> import numpy as np
        >>> from matchkernel.geometry.frames import Frames
        >>> from matchkernel.photos.adapters.kornia import lafs_from_frames
        >>> frames = Frames.turned_squares(np.array([[20.0, 30.0]]), np.array([12.0]), np.array([0.0]))
        >>> lafs_from_frames(frames).shape
        torch.Size([1, 1, 2, 3])
    """
    return torch.from_numpy(frames_to_kornia(frames))[None]


def frames_from_lafs(lafs: Tensor | np.ndarray) -> Frames:
    """Convert the LAFs of one image to frames.

    Args:
        lafs: (1, K, 2, 3) as kornia's detectors return them, or (K, 2, 3). A detector returns a fixed K; first drop
            the slots that it did not fill.

    Example:
        >>> import torch
        >>> from matchkernel.photos.adapters.kornia import frames_from_lafs
        >>> len(frames_from_lafs(torch.tensor([[[[12.0, 0.0, 20.0], [0.0, 12.0, 30.0]]]])))
        1
    """
    if not isinstance(lafs, (Tensor, np.ndarray)):
        raise ArgumentTypeError(f"LAFs are a tensor or an array, got {type(lafs).__name__}")
    values = lafs.detach().cpu().numpy() if isinstance(lafs, Tensor) else lafs
    if values.ndim == 4:
        if len(values) != 1:
            raise ArgumentError(
                f"expected the LAFs of one image, got those of {len(values)}: pass them one by one, lafs[i]"
            )
        values = values[0]
    return frames_from_kornia(values)


def laf_descriptor(model: Descriptor, patch_size: int | None = None) -> Any:
    """Wrap the folded copy of a descriptor in kornia's `LAFDescriptor`; it also fits `LocalFeature`.

    The value range of the image does not matter, since every patch is normalised separately. kornia samples the
    patches, so descriptors differ slightly from those of `matchkernel.photos.extract`, which has its own sampler.

    Args:
        model: the descriptor.
        patch_size: side of the patches kornia cuts (default: the size the model was trained at).

    Example:
        >>> import matchkernel, torch
        >>> from matchkernel.photos.adapters.kornia import laf_descriptor
        >>> descriptor = laf_descriptor(matchkernel.load("tiny"))
        >>> lafs = torch.tensor([[[[12.0, 0.0, 32.0], [0.0, 12.0, 32.0]]]])
        >>> descriptor(torch.rand(1, 1, 64, 64), lafs).shape
        torch.Size([1, 1, 128])
    """
    features = need("kornia.feature", "kornia", "using descriptors in kornia")
    size = model.config.patch_size if patch_size is None else patch_size
    check_patch_size(model.config, size)
    return features.LAFDescriptor(model.fold(), patch_size=size, grayscale_descriptor=True)
