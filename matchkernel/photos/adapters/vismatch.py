"""vismatch (before, image-matching-models): our matcher with the interface of its others."""

from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.photos.extract import Model
from matchkernel.photos.matcher import Matcher
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.storage.extras import CORE, need

if TYPE_CHECKING:
    import torch

BaseMatcher: Any = need("vismatch", CORE, "a matcher for vismatch").BaseMatcher


class MatchKernelMatcher(BaseMatcher):
    """A matcher for vismatch: `MatchKernelMatcher()(image0, image1)["matched_kpts0"]`.

    Args:
        device: where to run the network.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        options: fields of MatchSettings or of its Detector, such as keypoints=1000; and vismatch's own, whose names
            begin with ransac_. vismatch verifies the matches itself, by a homography.
    """

    def __init__(self, device: str = "cpu", model: Model = PHOTO_MODEL, **options: Any) -> None:
        own = {name: value for name, value in options.items() if name.startswith("ransac_")}
        super().__init__(device, **own)
        rest = {name: value for name, value in options.items() if name not in own}
        self.matcher = Matcher(model, device=device, geometry="none", **rest)

    def _forward(self, img0: "torch.Tensor", img1: "torch.Tensor") -> tuple[np.ndarray, ...]:
        """Points of both images that match, all keypoints, all descriptors, and a confidence from 0 to 1 per match."""
        found = self.matcher(img0, img1)
        a, b = found.features
        confidence = 1 - found.matches.distances**2 / 4  # (1 + cosine) / 2, as in hloc's files
        return (*found.points, a.keypoints, b.keypoints, a.descriptors, b.descriptors, confidence)
