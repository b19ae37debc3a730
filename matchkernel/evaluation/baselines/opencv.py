"""Descriptors of OpenCV and its contrib modules, each on one upright keypoint in the middle of a patch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from matchkernel.errors import MissingExtraError
from matchkernel.evaluation.method import RESIZED, Method, patch_method
from matchkernel.geometry.sift import SIFT_SIZE_OF_65, patch_sift, to_rootsift
from matchkernel.storage.extras import need

VGG_REGIONS = 68  # pooling regions of OpenCV's VGG_120


@dataclass(frozen=True)
class Extractor:
    """A descriptor of OpenCV."""

    function: str  # of cv2 or cv2.xfeatures2d, that makes it
    size: int  # side of its patches
    keypoint: tuple[float, ...]  # x, y, size and angle
    arguments: tuple[float | str, ...] = ()  # of the function; a string is the name of a constant in the same module
    options: Mapping[str, Any] = field(default_factory=dict)  # of the function
    learned: int = 0  # parameters
    border: int = 0  # pixels that the border of the patch is repeated around it
    is_binary: bool = True


def _boxes(kind: str) -> Extractor:
    """512 bits, learned on patches of 32 px, each from two boxes: four coordinates, a radius and a threshold."""
    return Extractor(f"{kind}_create", 32, (16, 16, 32, -1), (1.0, f"{kind}_SIZE_512_BITS"), learned=6 * 512)


EXTRACTORS = {
    # ORB's 256 tests, not rotated, because the patch is already upright. The learned test pattern exists for patches of
    # 31 px only (for another patchSize OpenCV draws a random one), so the patch is resized to 31 px. OpenCV drops
    # keypoints closer to the border than edgeThreshold, 31 px by default, which covers the whole patch; with 0 it keeps
    # them, and extends the patch by reflection where the blur needs it.
    "orb": Extractor(
        "ORB_create", 31, (15, 15, 31, 0), options={"nlevels": 1, "edgeThreshold": 0, "patchSize": 31, "WTA_K": 2}
    ),
    # BRIEF with 512 tests, the maximum in OpenCV (with 256 tests, rank 1 as given below is 1.6 points lower). Its tests
    # lie within 24 px of the centre, each between means over 9 x 9 px, and OpenCV drops points closer to the border
    # than 28 px. No source states how large the patch under them should be, so the side was chosen among 21, 25, 29,
    # 33, 37, 41, 49, 57 and 65 px on the validation sequences (rank 1 of the first 400 patches of six sequences, e1 and
    # h1: .65 and .34 with 29 px; .41 and .15 with 57 px, where the tests end at the border of the patch).
    "brief": Extractor("BriefDescriptorExtractor_create", 29, (28, 28, 31, 0), options={"bytes": 64}, border=14),
    # Simonyan et al. 2014: learned pooling regions of gradients, each of eight directions, and a learned projection.
    "vgg": Extractor(
        "VGG_create", 64, (32, 32, 1, 0), options={"use_scale_orientation": False},
        learned=120 * VGG_REGIONS * 8, is_binary=False,
    ),
    "beblid": _boxes("BEBLID"),  # Suarez et al. 2020: boosted differences of box means
    "teblid": _boxes("TEBLID"),  # Suarez et al. 2021: the same, learned with triplets of hard negatives
}  # fmt: skip
OPENCV = ("sift", "rootsift", *EXTRACTORS)


def opencv(name: str) -> Method:
    """One of OPENCV.

    SIFT covers the region of HPatches' baseline; its rows are as OpenCV returns them, whole numbers of length 512.
    RootSIFT (Arandjelovic and Zisserman 2012) is the root of SIFT with unit sum.
    """
    cv2 = need("cv2", "baselines", f"describing with {', '.join(OPENCV)}")
    if name in EXTRACTORS:
        return _at_keypoint(name, EXTRACTORS[name], cv2)
    settings = _settings(cv2, 65, (32, 32, SIFT_SIZE_OF_65, 0), "SIFT_create()")
    if name == "sift":
        return patch_method(name, 65, _sift_rows, settings)
    settings["after"] = "divided by the sum, then the square root"
    return patch_method(name, 65, lambda batch: to_rootsift(_sift_rows(batch)), settings)


def _at_keypoint(name: str, kind: Extractor, cv2: Any) -> Method:
    """A method that describes each patch as a separate image: side by side they would blur into each other."""
    module = cv2 if name == "orb" else getattr(cv2, "xfeatures2d", None)
    if not hasattr(module, kind.function):
        raise MissingExtraError(
            f"{name} needs opencv-contrib-python-headless, installed after any other OpenCV: "
            "pip install --force-reinstall --no-deps opencv-contrib-python-headless"
        )
    arguments = [getattr(module, value) if isinstance(value, str) else value for value in kind.arguments]
    extractor = getattr(module, kind.function)(*arguments, **kind.options)
    point, width = cv2.KeyPoint(*kind.keypoint), extractor.descriptorSize()
    around = [(0, 0), (kind.border, kind.border), (kind.border, kind.border)]

    def compute(batch: Tensor) -> np.ndarray:
        rows = np.zeros((len(batch), width), np.float32)
        images = np.pad(batch[:, 0].round().byte().numpy(), around, "edge")
        for row, image in zip(rows, images, strict=True):
            found = extractor.compute(image, [point])[1] if image.min() < image.max() else None
            if found is not None:  # None means that the keypoint was dropped at the border; it counts as not described
                row[:] = found[0]
        return rows

    written = [*map(str, kind.arguments), *(f"{key}={value}" for key, value in kind.options.items())]
    settings = _settings(cv2, kind.size, kind.keypoint, f"{kind.function}({', '.join(written)})")
    if kind.border:
        settings["patch"] += f"; its border repeated {kind.border} times"
    options: dict[str, Any] = {"parameters": kind.learned, "hand_crafted": not kind.learned}
    return patch_method(name, kind.size, compute, settings, is_binary=kind.is_binary, **options)


def _settings(cv2: Any, size: int, keypoint: tuple[float, ...], call: str) -> dict[str, str]:
    patch, point = f"{size} px, {RESIZED}", f"KeyPoint{keypoint}"
    return {"library": f"OpenCV {cv2.__version__}", "patch": patch, "keypoint": point, "call": call}


def _sift_rows(batch: Tensor) -> np.ndarray:
    return patch_sift(batch[:, 0].round().byte().numpy())
