"""OpenCV: an object with the methods of `cv2.Feature2D`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.geometry.conventions import frames_from_opencv
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import Model, extract, open_describer
from matchkernel.storage.extras import need_opencv
from matchkernel.storage.pixels import ImageLike, as_gray
from matchkernel.storage.settings import with_options

if TYPE_CHECKING:
    import torch


class DescriptorExtractor:
    """SIFT's keypoints with another descriptor and OpenCV's interface: a replacement for `cv2.SIFT_create()`.

    Arrays of colours are BGR, as `cv2.imread` returns them; other images are as everywhere (see as_gray). It has
    OpenCV's methods but is not a `cv2.Feature2D`: C++ code would not see the methods of a Python subclass.

    Args:
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        detector: how keypoints are found (default: Detector()).
        device: where to run the network (default: the model's device).
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        options: fields of Detector, such as keypoints=1000, instead of `detector`. Sigma is half of a keypoint's size.

    Example:
        >>> import numpy as np
        >>> image = np.random.default_rng(0).integers(0, 256, (120, 160), dtype=np.uint8)
        >>> keypoints, descriptors = DescriptorExtractor("tiny", keypoints=20).detectAndCompute(image)
        >>> len(keypoints), descriptors.shape
        (20, (20, 128))
    """

    def __init__(
        self,
        model: Model,
        detector: Detector | None = None,
        *,
        device: "str | torch.device | None" = None,
        engine: str = "auto",
        **options: Any,
    ) -> None:
        self.detector = with_options(detector or Detector(), options)
        self.describer = open_describer(model, device=device, engine=engine)

    def detect(self, image: ImageLike, mask: np.ndarray | None = None) -> tuple[Any, ...]:
        """Detect SIFT keypoints, strongest first; with a mask, (H, W) uint8, only where it is not 0."""
        gray = self._gray(image)
        if mask is not None and not isinstance(mask, np.ndarray):
            raise ArgumentTypeError(f"a mask must be a numpy array, got {type(mask).__name__}")
        if mask is not None and (mask.shape != gray.shape or mask.dtype != np.uint8):
            raise ArgumentError(f"a mask must be uint8 of shape {gray.shape}, got {mask.dtype} of shape {mask.shape}")
        return tuple(self.detector.detect_points(gray, mask, device=self.describer.device))

    def compute(
        self, image: ImageLike, keypoints: Sequence[Any], descriptors: None = None
    ) -> tuple[tuple[Any, ...], np.ndarray | None]:
        """Describe keypoints: returns the described ones, in the given order, and (N, D) float32 unit rows or None.

        A keypoint whose region has a single gray value is dropped, as OpenCV's own extractors drop what they cannot
        describe. An angle of -1 means upright.
        """
        KeyPoint = need_opencv().KeyPoint
        if not isinstance(keypoints, Sequence) or not all(isinstance(point, KeyPoint) for point in keypoints):
            raise ArgumentTypeError("keypoints must be a list or tuple of cv2.KeyPoint objects")
        rows = np.array([(*point.pt, point.size, point.angle) for point in keypoints], np.float64).reshape(-1, 4)
        frames = frames_from_opencv(rows, self.detector.magnification)
        features = extract(self._gray(image), self.describer, self.detector, frames=frames)
        kept = np.asarray(features.descriptors.any(1))
        points = tuple(point for point, keep in zip(keypoints, kept.tolist(), strict=True) if keep)
        return points, features.descriptors[kept] if points else None

    def detectAndCompute(
        self,
        image: ImageLike,
        mask: np.ndarray | None = None,
        descriptors: None = None,
        useProvidedKeypoints: bool = False,
    ) -> tuple[tuple[Any, ...], np.ndarray | None]:
        """Detect and describe: keypoints, strongest first, and their (N, D) float32 unit rows, None without keypoints.

        `descriptors` is not used, as new ones are returned; pass keypoints of your own to `compute`.
        """
        if useProvidedKeypoints:
            raise ArgumentError("detectAndCompute takes no keypoints from Python: call compute(image, keypoints)")
        return self.compute(image, self.detect(image, mask))

    def descriptorSize(self) -> int:
        """D, the length of a row."""
        return self.describer.D

    def descriptorType(self) -> int:
        """cv2.CV_32F."""
        return int(need_opencv().CV_32F)

    def defaultNorm(self) -> int:
        """cv2.NORM_L2, for matchers."""
        return int(need_opencv().NORM_L2)

    def empty(self) -> bool:
        """Always False, as in cv2.Feature2D: the extractor is ready for use."""
        return False

    def getDefaultName(self) -> str:
        """A name for logs."""
        return f"matchkernel.{self.describer.name}"

    def _gray(self, image: ImageLike) -> np.ndarray:
        if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[2] not in (3, 4) or not image.size:
            return as_gray(image)
        if image.dtype != np.uint8:
            return as_gray(image[..., 2::-1])
        cv2 = need_opencv()
        return np.asarray(cv2.cvtColor(image, cv2.COLOR_BGR2GRAY if image.shape[2] == 3 else cv2.COLOR_BGRA2GRAY))
