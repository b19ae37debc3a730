"""How images are reconstructed."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from matchkernel.colmap.model import CAMERA_MODELS
from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import COLMAP_LIKE, Detector
from matchkernel.photos.features import Store
from matchkernel.photos.match import DEFAULT_FILTER, FILTER_HELP, Filter, parse_filter
from matchkernel.storage.settings import check_ranges, setting

Mapper = Literal["incremental", "global"]


@dataclass(frozen=True)
class ReconstructSettings:
    """How images are reconstructed. Options of commands are derived from these fields."""

    detector: Detector = COLMAP_LIKE
    filter: Filter = setting(DEFAULT_FILTER, about=FILTER_HELP)
    pairs: str = setting(
        "auto",
        about="what to match: all, top:20 (each with the 20 most similar), sequential:10 (neighbours by name), "
        "a file of pairs, or several joined by + (auto: all of up to 120 images, top:20 of more)",
    )
    single_camera: bool = setting(False, about="all images were taken by one camera")
    camera_model: str = setting("SIMPLE_RADIAL", about="COLMAP's name of the camera model")
    camera_params: str | None = setting(
        None, about="known intrinsics of the camera model, such as 1200,640,480,0; they are kept"
    )
    mapper: Mapper = setting("incremental", about="global needs COLMAP 4")
    store: Store = setting("float32", about="how descriptors are stored in features files")

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
