"""Match two images: detect, describe, match, verify."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.detect import Detector
from matchkernel.photos.extract import Image, Model, extract_with, open_describer
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.guided import guided_matches
from matchkernel.photos.match import DEFAULT_FILTER, FILTER_HELP, Filter, match, parse_filter
from matchkernel.photos.verify import INLIER_PIXELS, MAX_PIXELS, NAMES, NOT_THE_SAME, Verification, verify
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.files import replacing
from matchkernel.storage.settings import check_ranges, setting, with_options
from matchkernel.storage.work import Progress, Say, recording, stage

if TYPE_CHECKING:
    import torch

STAGES = ("read", "detect", "cut", "describe", "match", "verify")


@dataclass(frozen=True)
class MatchSettings:
    """How two images are matched. Options of commands are derived from these fields."""

    detector: Detector = field(default_factory=Detector)
    mutual: bool = setting(True, about="keep only mutual nearest neighbours")
    filter: Filter = setting(DEFAULT_FILTER, about=FILTER_HELP)
    geometry: Literal["auto", "homography", "fundamental", "none"] = setting(
        "auto", about="model to verify matches with; auto tries a homography and a fundamental matrix"
    )
    pixels: float = setting(INLIER_PIXELS, above=0, high=MAX_PIXELS, about="maximum error of an inlier, in pixels")
    guided: bool = setting(False, about="with the geometry found, match again among keypoints that agree with it")

    def __post_init__(self) -> None:
        object.__setattr__(self, "filter", parse_filter(self.filter))
        check_ranges(self)
        if self.guided and self.geometry == "none":
            raise ArgumentError("guided matching needs a geometry: auto, homography or fundamental, not none")


@dataclass(frozen=True)
class ImageMatches:
    """The features of images A and B, their matches, and which of these agree on one geometry.

    Attributes:
        features: of A and of B.
        matches: index pairs, distances, ratios.
        verification: None if the geometry asked for is "none".
        seconds: by stage: read, detect, cut, describe, match, verify; the first four for both images together.
    """

    features: tuple[Features, Features]
    matches: Matches
    verification: Verification | None
    seconds: dict[str, float]

    @property
    def geometry(self) -> str | None:
        """Of the model: "homography" or "fundamental"; "none" if none was asked for, None if "auto" found none."""
        return "none" if self.verification is None else self.verification.geometry

    @property
    def inliers(self) -> np.ndarray:
        """(M,) bool; all True if geometry is "none"."""
        return np.ones(len(self.matches), bool) if self.verification is None else self.verification.inliers

    @property
    def model(self) -> np.ndarray | None:
        """(3, 3) homography or fundamental matrix, or None."""
        return None if self.verification is None else self.verification.model

    @property
    def points(self) -> tuple[np.ndarray, np.ndarray]:
        """(M, 2) points of A and (M, 2) points of B, one row per match."""
        return self.matches.points(*self.features)

    def one_line(self) -> str:
        """A summary of the result."""
        counts = " and ".join(f"{len(found):,}" for found in self.features)
        text = f"{counts} keypoints ({self.features[0].label}), {len(self.matches):,} matches"
        found = self.verification
        if found is not None and found.geometry is not None and found.model is not None:
            text += f", {int(self.inliers.sum()):,} agree on a {NAMES[found.geometry]} ({found.reason})"
        elif found is not None:
            text += f": {NOT_THE_SAME} ({found.reason})"
        return f"{text}; {sum(self.seconds.values()):.2f} s"

    def to_json(self) -> dict[str, Any]:
        """What `matchkernel match --json` writes.

        keypoints0 and keypoints1 (x, y; the centre of the top-left pixel is 0, 0), matches (index pairs), inliers (one
        boolean per match), geometry (of the model), reason (why this one, or why none), significance (-log10 of how
        many such models chance would give), model (3 x 3 or None), descriptor, engine (None for SIFT) and seconds by
        stage.
        """
        found = self.verification
        return {
            "keypoints0": self.features[0].keypoints.tolist(),
            "keypoints1": self.features[1].keypoints.tolist(),
            "matches": self.matches.indices.tolist(),
            "inliers": self.inliers.tolist(),
            "geometry": self.geometry,
            "reason": "not verified" if found is None else found.reason,
            "significance": None if found is None else found.significance,
            "model": None if self.model is None else self.model.tolist(),
            "descriptor": self.features[0].model,
            "engine": self.features[0].settings.get(ENGINE),
            "seconds": {name: round(self.seconds[name], 6) for name in STAGES},
        }


def match_images(
    a: Image,
    b: Image,
    model: Model = "light-wide",
    settings: MatchSettings | None = None,
    *,
    device: "str | torch.device | None" = None,
    engine: str = "auto",
    say: Say = lambda stage: None,
    progress: Progress | None = None,
    **options: Any,
) -> ImageMatches:
    """Match two images: detect and describe keypoints, match them, and verify the matches by a geometry.

    Args:
        a: file or pixels of image A (see extract).
        b: file or pixels of image B.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        settings: how to match (default: MatchSettings()).
        device: where to run the network and to match (default: the model's device).
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        say: called with the name of each stage.
        progress: called with the number of keypoints described and their total, for each image.
        options: fields of MatchSettings or of its Detector to change, such as keypoints=1000.

    Example:
        >>> from matchkernel import match_images
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> found = match_images(FOLDER / "left.png", FOLDER / "right.png", "light-wide", keypoints=300)
        >>> found.geometry, len(found.matches) > 100
        ('fundamental', True)
        >>> points_a, points_b = (points[found.inliers] for points in found.points)
    """
    chosen = with_options(settings or MatchSettings(), options)
    describer = open_describer(model, device=device, engine=engine)
    chosen.filter.check_recorded(describer.settings)
    with recording() as stages:
        features_a, features_b = (
            extract_with(image, describer, chosen.detector, say=say, progress=progress) for image in (a, b)
        )
    found = match_features(features_a, features_b, chosen, device=describer.device, say=say)
    return replace(found, seconds=found.seconds | stages.seconds)


def match_features(
    a: Features,
    b: Features,
    settings: MatchSettings | None = None,
    *,
    device: "str | torch.device | None" = None,
    say: Say = lambda stage: None,
) -> ImageMatches:
    """Match and verify the features of two images; the detector of the settings is not used.

    Every pair of match_images and of a collection is matched here.
    """
    chosen, verification = settings or MatchSettings(), None
    with recording() as stages:
        say("matching")
        with stage("match"):
            found = match(a, b, mutual=chosen.mutual, filter=chosen.filter, device=device)
        if chosen.geometry != "none":
            say("verifying")
            with stage("verify"):
                points = found.points(a, b)
                verification = verify(*points, chosen.geometry, threshold=chosen.pixels, size_b=b.image_size)
                if chosen.guided:
                    found, verification = _guided(a, b, found, verification, chosen.pixels)
    return ImageMatches((a, b), found, verification, dict.fromkeys(STAGES, 0.0) | stages.seconds)


def _guided(
    a: Features, b: Features, found: Matches, verification: Verification, pixels: float
) -> tuple[Matches, Verification]:
    """Match again with the model and fit it again; the significance stays, because the model chose these matches."""
    if verification.model is None or verification.geometry is None:
        return found, verification
    more = guided_matches(a, b, verification.model, verification.geometry, pixels=pixels, first=found)
    again = verify(*more.points(a, b), verification.geometry, threshold=pixels, size_b=b.image_size)
    if again.inliers.sum() < verification.inliers.sum():
        return found, verification
    return more, replace(again, significance=verification.significance, reason=verification.reason)


def save_csv(found: ImageMatches, path: str | Path) -> None:
    """Write one line per match to a file, atomically: points in A and B, distance, ratio, 1 for an inlier or else 0."""
    numbers = np.column_stack([*found.points, found.matches.distances, found.matches.ratios, found.inliers])
    with replacing(path) as part, part.open("w", encoding="ascii", newline="") as file:
        file.write("x0,y0,x1,y1,distance,ratio,inlier\n")
        np.savetxt(file, numbers, fmt=["%.4f"] * 4 + ["%.6f"] * 2 + ["%d"], delimiter=",")


def save_json(found: ImageMatches, path: str | Path) -> None:
    """Write the result of match_images to a JSON file, atomically.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> from matchkernel import match_images
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> from matchkernel.photos.pipeline import save_json
        >>> found = match_images(FOLDER / "left.png", FOLDER / "right.png", "sift", keypoints=200)
        >>> path = Path("matches.json")
        >>> save_json(found, path)
        >>> sorted(json.loads(path.read_text()))[:4]
        ['descriptor', 'engine', 'geometry', 'inliers']
    """
    with replacing(path) as part:
        part.write_text(json.dumps(found.to_json()) + "\n", encoding="utf-8")
