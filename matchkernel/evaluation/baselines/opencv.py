"""Descriptors of OpenCV and its contrib modules, each on one upright keypoint in the middle of a patch."""

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor

from matchkernel.errors import MissingExtraError
from matchkernel.evaluation.method import RESIZED, Method, patch_method
from matchkernel.geometry.sift import SIFT_SIZE_OF_65, patch_sift, to_rootsift
from matchkernel.storage.extras import need

VGG_REGIONS = 68  # pooling regions of OpenCV's VGG_120


def sift() -> Method:
    """SIFT over the region of HPatches' baseline, as OpenCV returns it (rows of length 512, whole numbers)."""
    rows, settings = _sift()
    return patch_method("sift", 65, rows, settings)


def rootsift() -> Method:
    """RootSIFT (Arandjelovic and Zisserman 2012): the root of SIFT with unit sum."""
    rows, settings = _sift()
    settings["after"] = "divided by the sum, then the square root"
    return patch_method("rootsift", 65, lambda batch: to_rootsift(rows(batch)), settings)


def orb() -> Method:
    """ORB's 256 tests, not rotated, because the patch is already upright.

    The learned test pattern exists for patches of 31 px only (for another patchSize OpenCV draws a random one), so the
    patch is resized to 31 px. OpenCV drops keypoints closer to the border than edgeThreshold, 31 px by default, which
    covers the whole patch; with 0 it keeps them, and extends the patch by reflection where the blur needs it.
    """
    cv2 = _load()
    extractor = cv2.ORB_create(nlevels=1, edgeThreshold=0, patchSize=31, WTA_K=2)
    settings = {
        "library": f"OpenCV {cv2.__version__}",
        "patch": f"31 px, {RESIZED}",
        "keypoint": "KeyPoint(15, 15, 31, 0)",
        "call": "ORB_create(nlevels=1, edgeThreshold=0, patchSize=31, WTA_K=2)",
    }
    return patch_method("orb", 31, _one_by_one(extractor, (15, 15, 31, 0), 32), settings, is_binary=True)


def brief() -> Method:
    """BRIEF with 512 tests, the maximum in OpenCV (with 256 tests, rank 1 as given below is 1.6 points lower).

    Its tests lie within 24 px of the centre, each between means over 9 x 9 px, and OpenCV drops points closer to the
    border than 28 px. No source states how large the patch under them should be, so the side was chosen among 21, 25,
    29, 33, 37, 41, 49, 57 and 65 px on the validation sequences (rank 1 of the first 400 patches of six sequences, e1
    and h1: .65 and .34 with 29 px; .41 and .15 with 57 px, where the tests end at the border of the patch). The border
    of the patch is repeated around it.
    """
    cv2 = _load()
    extractor = _contrib("brief", "BriefDescriptorExtractor_create")(bytes=64)
    settings = {
        "library": f"OpenCV {cv2.__version__}",
        "patch": f"29 px, {RESIZED}; its border repeated 14 times",
        "keypoint": "KeyPoint(28, 28, 31, 0)",
        "call": "BriefDescriptorExtractor_create(bytes=64)",
    }
    return patch_method("brief", 29, _one_by_one(extractor, (28, 28, 31, 0), 64, 14), settings, is_binary=True)


def beblid() -> Method:
    """BEBLID (Suarez et al. 2020): 512 boosted differences of box means, learned on patches of 32 px."""
    return _boxes("beblid", "BEBLID")


def teblid() -> Method:
    """TEBLID (Suarez et al. 2021): as BEBLID, learned with triplets of hard negatives."""
    return _boxes("teblid", "TEBLID")


def vgg() -> Method:
    """VGG (Simonyan et al. 2014): learned pooling regions of gradients and a learned projection to 120 numbers."""
    cv2 = _load()
    extractor = _contrib("vgg", "VGG_create")(use_scale_orientation=False)
    settings = {
        "library": f"OpenCV {cv2.__version__}",
        "patch": f"64 px, {RESIZED}",
        "keypoint": "KeyPoint(32, 32, 1, 0)",
        "call": "VGG_create(use_scale_orientation=False)",
    }
    learned = 120 * VGG_REGIONS * 8  # the projection, of eight directions in each region
    compute = _one_by_one(extractor, (32, 32, 1, 0), 120)
    return patch_method("vgg", 64, compute, settings, parameters=learned, hand_crafted=False)


def _boxes(name: str, kind: str) -> Method:
    """A descriptor of 512 bits that compare two boxes each: four coordinates, a radius and a threshold.

    Args:
        name: of the baseline.
        kind: its name in cv2.xfeatures2d.
    """
    cv2 = _load()
    extractor = _contrib(name, f"{kind}_create")(1.0, getattr(cv2.xfeatures2d, f"{kind}_SIZE_512_BITS"))
    settings = {
        "library": f"OpenCV {cv2.__version__}",
        "patch": f"32 px, {RESIZED}",
        "keypoint": "KeyPoint(16, 16, 32, -1)",
        "call": f"{kind}_create(1.0, {kind}_SIZE_512_BITS)",
    }
    compute = _one_by_one(extractor, (16, 16, 32, -1), 64)
    return patch_method(name, 32, compute, settings, parameters=6 * 512, hand_crafted=False, is_binary=True)


def _contrib(name: str, function: str) -> Callable[..., Any]:
    """A function of OpenCV's contrib modules."""
    module = getattr(_load(), "xfeatures2d", None)
    if not hasattr(module, function):
        raise MissingExtraError(
            f"{name} needs opencv-contrib-python-headless, installed after any other OpenCV: "
            "pip install --force-reinstall --no-deps opencv-contrib-python-headless"
        )
    return getattr(module, function)


def _sift() -> tuple[Callable[[Tensor], np.ndarray], dict[str, str]]:
    cv2 = _load()
    settings = {
        "library": f"OpenCV {cv2.__version__}",
        "patch": f"65 px, {RESIZED}",
        "keypoint": f"KeyPoint(32, 32, {SIFT_SIZE_OF_65}, 0)",
        "call": "SIFT_create()",
    }
    return lambda batch: patch_sift(batch[:, 0].round().byte().numpy()), settings


def _one_by_one(
    extractor: Any, keypoint: tuple[float, ...], width: int, border: int = 0
) -> Callable[[Tensor], np.ndarray]:
    """Rows of patches, each a separate image: side by side in one image they would blur into each other."""
    point = _load().KeyPoint(*keypoint)

    def compute(batch: Tensor) -> np.ndarray:
        rows = np.zeros((len(batch), width), np.float32)
        images = np.pad(batch[:, 0].round().byte().numpy(), [(0, 0), (border, border), (border, border)], "edge")
        for row, image in zip(rows, images, strict=True):
            found = extractor.compute(image, [point])[1] if image.min() < image.max() else None
            if found is not None:  # None means that the keypoint was dropped at the border; it counts as not described
                row[:] = found[0]
        return rows

    return compute


def _load() -> Any:
    return need("cv2", "baselines", "describing with sift, rootsift, orb, brief, vgg, beblid or teblid")
