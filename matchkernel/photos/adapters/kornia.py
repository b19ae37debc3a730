"""kornia: frames as LAFs, a descriptor for `LAFDescriptor`, and our features with the interface of `LocalFeature`."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.conventions import frames_from_kornia, frames_to_kornia
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.frames import Frames
from matchkernel.model.descriptors import Descriptor, check_patch_size
from matchkernel.photos.extract import Model, describe_detection, open_describer
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.extras import need
from matchkernel.storage.pixels import as_gray
from matchkernel.storage.settings import with_options


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


class LocalFeature(torch.nn.Module):
    """Our keypoints and descriptors with the interface of kornia's `LocalFeature`, such as for `LocalFeatureMatcher`.

    Keypoints, patches and descriptors are those of `matchkernel.extract`.

    Args:
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        detector: how keypoints are found (default: Detector()).
        device: where to run the network (default: the model's device).
        engine: what computes the descriptors (see matchkernel.extract).
        options: fields of Detector, such as keypoints=1000, instead of `detector`.

    Example:
        >>> import torch
        >>> from matchkernel.photos.adapters.kornia import LocalFeature
        >>> lafs, responses, descriptors = LocalFeature("tiny", keypoints=20)(torch.rand(2, 1, 80, 100))
        >>> lafs.shape, responses.shape, descriptors.shape
        (torch.Size([2, 20, 2, 3]), torch.Size([2, 20]), torch.Size([2, 20, 128]))
    """

    def __init__(
        self,
        model: Model = PHOTO_MODEL,
        detector: Detector | None = None,
        *,
        device: str | torch.device | None = None,
        engine: str = "auto",
        **options: Any,
    ) -> None:
        super().__init__()
        self.detector = with_options(detector or Detector(), options)
        self.describer = open_describer(model, device=device, engine=engine)

    def forward(self, img: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Detect and describe, strongest keypoints first.

        Args:
            img: (B, 1 or 3, H, W), floats from 0 to 1 or uint8.
            mask: (B, 1, H, W); keypoints only where it is not 0.

        Returns:
            LAFs (B, N, 2, 3), responses (B, N) and descriptors (B, N, D) on the images' device. N is the largest number
            of keypoints among the images; in the other images, the slots that are left are zeros.
        """
        if img.ndim != 4:
            raise ArgumentError(f"images must be (B, 1 or 3, H, W), got {tuple(img.shape)}; one alone is img[None]")
        found = []
        for number, image in enumerate(img):
            gray = as_gray(image)
            where = None if mask is None else (mask[number, 0] != 0).byte().cpu().numpy()
            keypoints = self.detector.detect(gray, where, device=self.describer.device)
            found.append(describe_detection(gray, keypoints, self.describer, self.detector).to_kornia())
        most = max((parts[1].shape[1] for parts in found), default=0)
        shapes = (0, most, 2, 3), (0, most), (0, most, self.describer.D)
        lafs, responses, descriptors = (
            torch.cat(
                [img.new_zeros(shape, dtype=torch.float32), *(_padded(part, most).to(img.device) for part in parts)]
            )
            for shape, parts in zip(shapes, zip(*found, strict=True) if found else ((), (), ()), strict=True)
        )
        return lafs, responses, descriptors


def _padded(part: Tensor, most: int) -> Tensor:
    """(1, most, ...) of (1, K, ...), zeros behind."""
    return torch.cat([part, part.new_zeros((1, most - part.shape[1], *part.shape[2:]))], 1)
