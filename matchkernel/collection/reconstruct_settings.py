"""How images are reconstructed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from matchkernel.colmap.model import CAMERA_MODELS
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.features import Store
from matchkernel.photos.match import DEFAULT_FILTER, Filter, parse_filter
from matchkernel.storage.settings import check_ranges

Mapper = Literal["incremental", "global"]


@dataclass(frozen=True)
class ReconstructSettings:
    """How images are reconstructed.

    Attributes:
        detector: how keypoints are found (default: COLMAP's own limits on their number and contrast).
        filter: test that matches must pass, or a string such as "ratio:0.85" (see photos.match.Filter).
        pairs: which images are matched (see choice.parse_choice); "auto": all pairs of up to 120 images, each
            with the 20 most similar ones of more.
        single_camera: all images were taken by one camera with one focal length.
        camera_model: of COLMAP.
        camera_params: known intrinsics of the model, such as "1200,640,480,0"; they are then kept as they are.
        mapper: "global" needs COLMAP 4.
        store: how descriptors are stored.
    """

    detector: Detector = COLMAP_LIKE
    filter: Filter = DEFAULT_FILTER
    pairs: str = "auto"
    single_camera: bool = False
    camera_model: str = "SIMPLE_RADIAL"
    camera_params: str | None = None
    mapper: Mapper = "incremental"
    store: Store = "float32"

    def __post_init__(self) -> None:
        object.__setattr__(self, "filter", parse_filter(self.filter))
        check_ranges(self)
        if self.camera_model not in CAMERA_MODELS:
            raise ArgumentError(f"camera_model must be one of {', '.join(CAMERA_MODELS)}, got {self.camera_model!r}")
        if self.camera_params is not None:
            _check_params(self.camera_model, self.camera_params)


def _check_params(model: str, text: str) -> None:
    try:
        numbers = [float(part) for part in text.split(",")]
    except ValueError:
        numbers = []
    if len(numbers) != CAMERA_MODELS[model] or not np.isfinite(numbers).all():
        raise ArgumentError(
            f"camera_params of {model} must be {CAMERA_MODELS[model]} numbers with commas between them, got {text!r}"
        )
