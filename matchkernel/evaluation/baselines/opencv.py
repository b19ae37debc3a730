"""Descriptors of OpenCV and its contrib modules, each on one upright keypoint in the middle of a patch."""

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
    settings = _settings(65, (32, 32, SIFT_SIZE_OF_65, 0), "SIFT_create()")
    return patch_method("sift", 65, _sift_rows, settings)


def rootsift() -> Method:
    """RootSIFT (Arandjelovic and Zisserman 2012): the root of SIFT with unit sum."""
    settings = _settings(65, (32, 32, SIFT_SIZE_OF_65, 0), "SIFT_create()")
    settings["after"] = "divided by the sum, then the square root"
    return patch_method("rootsift", 65, lambda batch: to_rootsift(_sift_rows(batch)), settings)


def orb() -> Method:
    """ORB's 256 tests, not rotated, because the patch is already upright.

    The learned test pattern exists for patches of 31 px only (for another patchSize OpenCV draws a random one), so the
    patch is resized to 31 px. OpenCV drops keypoints closer to the border than edgeThreshold, 31 px by default, which
    covers the whole patch; with 0 it keeps them, and extends the patch by reflection where the blur needs it.
    """
    extractor = _load().ORB_create(nlevels=1, edgeThreshold=0, patchSize=31, WTA_K=2)
    call = "ORB_create(nlevels=1, edgeThreshold=0, patchSize=31, WTA_K=2)"
    return _at_keypoint("orb", extractor, call, 31, (15, 15, 31, 0), is_binary=True)


def brief() -> Method:
    """BRIEF with 512 tests, the maximum in OpenCV (with 256 tests, rank 1 as given below is 1.6 points lower).

    Its tests lie within 24 px of the centre, each between means over 9 x 9 px, and OpenCV drops points closer to the
    border than 28 px. No source states how large the patch under them should be, so the side was chosen among 21, 25,
    29, 33, 37, 41, 49, 57 and 65 px on the validation sequences (rank 1 of the first 400 patches of six sequences, e1
    and h1: .65 and .34 with 29 px; .41 and .15 with 57 px, where the tests end at the border of the patch). The border
    of the patch is repeated around it.
    """
    extractor = _contrib("brief").BriefDescriptorExtractor_create(bytes=64)
    call = "BriefDescriptorExtractor_create(bytes=64)"
    return _at_keypoint("brief", extractor, call, 29, (28, 28, 31, 0), border=14, is_binary=True)


def beblid() -> Method:
    """BEBLID (Suarez et al. 2020): 512 boosted differences of box means, learned on patches of 32 px."""
    return _boxes("beblid", "BEBLID")


def teblid() -> Method:
    """TEBLID (Suarez et al. 2021): as BEBLID, learned with triplets of hard negatives."""
    return _boxes("teblid", "TEBLID")


def vgg() -> Method:
    """VGG (Simonyan et al. 2014): learned pooling regions of gradients and a learned projection to 120 numbers."""
    extractor = _contrib("vgg").VGG_create(use_scale_orientation=False)
    learned = 120 * VGG_REGIONS * 8  # the projection, of eight directions in each region
    return _at_keypoint("vgg", extractor, "VGG_create(use_scale_orientation=False)", 64, (32, 32, 1, 0), learned)


def _boxes(name: str, kind: str) -> Method:
    """512 bits that compare two boxes each: four coordinates, a radius and a threshold.

    Args:
        name: of the baseline.
        kind: its name in cv2.xfeatures2d.
    """
    module = _contrib(name)
    extractor = getattr(module, f"{kind}_create")(1.0, getattr(module, f"{kind}_SIZE_512_BITS"))
    call = f"{kind}_create(1.0, {kind}_SIZE_512_BITS)"
    return _at_keypoint(name, extractor, call, 32, (16, 16, 32, -1), 6 * 512, is_binary=True)


def _at_keypoint(
    name: str,
    extractor: Any,
    call: str,
    size: int,
    keypoint: tuple[float, ...],
    learned: int = 0,
    *,
    border: int = 0,
    is_binary: bool = False,
) -> Method:
    """A method that describes each patch as a separate image: side by side they would blur into each other."""
    point, width = _load().KeyPoint(*keypoint), extractor.descriptorSize()

    def compute(batch: Tensor) -> np.ndarray:
        rows = np.zeros((len(batch), width), np.float32)
        images = np.pad(batch[:, 0].round().byte().numpy(), [(0, 0), (border, border), (border, border)], "edge")
        for row, image in zip(rows, images, strict=True):
            found = extractor.compute(image, [point])[1] if image.min() < image.max() else None
            if found is not None:  # None means that the keypoint was dropped at the border; it counts as not described
                row[:] = found[0]
        return rows

    settings = _settings(size, keypoint, call)
    if border:
        settings["patch"] += f"; its border repeated {border} times"
    return patch_method(
        name, size, compute, settings, parameters=learned, hand_crafted=not learned, is_binary=is_binary
    )


def _settings(size: int, keypoint: tuple[float, ...], call: str) -> dict[str, str]:
    return {
        "library": f"OpenCV {_load().__version__}",
        "patch": f"{size} px, {RESIZED}",
        "keypoint": f"KeyPoint{keypoint}",
        "call": call,
    }


def _sift_rows(batch: Tensor) -> np.ndarray:
    return patch_sift(batch[:, 0].round().byte().numpy())


def _contrib(name: str) -> Any:
    """OpenCV's contrib modules."""
    module = getattr(_load(), "xfeatures2d", None)
    if not hasattr(module, "BriefDescriptorExtractor_create"):
        raise MissingExtraError(
            f"{name} needs opencv-contrib-python-headless, installed after any other OpenCV: "
            "pip install --force-reinstall --no-deps opencv-contrib-python-headless"
        )
    return module


def _load() -> Any:
    return need("cv2", "baselines", "describing with sift, rootsift, orb, brief, vgg, beblid or teblid")
