"""Match two images: detect, describe, match, verify."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from matchkernel.errors import ArgumentError
from matchkernel.geometry.cameras import check_intrinsics
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.epipolar import Pose, estimate_pose
from matchkernel.photos.extract import Describer, Image, Model, extract_with, open_describer
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.guided import guided_matches
from matchkernel.photos.match import DEFAULT_FILTER, FILTER_HELP, Filter, align_matches, match, parse_filter
from matchkernel.photos.verify import INLIER_PIXELS, MAX_PIXELS, NAMES, NOT_THE_SAME, Geometry, Verification, verify
from matchkernel.runtime.config import PHOTO_MODEL
from matchkernel.runtime.onnx import ENGINE
from matchkernel.storage.files import replacing
from matchkernel.storage.pixels import as_gray
from matchkernel.storage.settings import check_ranges, setting, with_options
from matchkernel.storage.work import InTurn, Progress, Say, in_threads, recording, spare_threads, stage

if TYPE_CHECKING:
    import torch

POSE_NOISE = 0.5  # pixels, as in `evaluate photos`
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
        if self.guided and not self.mutual:
            raise ArgumentError("guided matches are mutual: leave out guided or no-mutual")


@dataclass(frozen=True, repr=False)
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

    @property
    def inlier_points(self) -> tuple[np.ndarray, np.ndarray]:
        """(N, 2) points of A and (N, 2) points of B of the matches that agree."""
        a, b = self.points
        return a[self.inliers], b[self.inliers]

    def pose(self, K_a: np.ndarray, K_b: np.ndarray | None = None, *, noise: float = POSE_NOISE) -> Pose | None:
        """How camera B stands to camera A: x_B = R x_A + t with t of length 1; None if the matches do not tell.

        It is estimated from all matches, not from the inliers alone (see geometry.epipolar.estimate_pose).

        Args:
            K_a: (3, 3) intrinsics of camera A, without distortion: [[fx, 0, cx], [0, fy, cy], [0, 0, 1]] in pixels,
                (0, 0) at the centre of the top-left one. COLMAP's cx and cy are larger by 0.5.
            K_b: those of camera B (default: the same).
            noise: expected error of right matches in pixels.
        """
        cameras = [check_intrinsics(K) for K in (K_a, K_a if K_b is None else K_b)]
        rays = [
            np.linalg.solve(K, np.column_stack([points, np.ones(len(points))]).T)[:2].T
            for K, points in zip(cameras, self.points, strict=True)
        ]
        focal = float(np.mean([K[[0, 1], [0, 1]] for K in cameras]))
        frames = (
            self.features[0].frames[self.matches.indices[:, 0]],
            self.features[1].frames[self.matches.indices[:, 1]],
        )
        return estimate_pose(rays[0], rays[1], noise / focal, ratios=self.matches.ratios, frames=frames)

    def __repr__(self) -> str:
        return f"<ImageMatches: {self.one_line()}>"

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

        keypoints0 and keypoints1 (x, y; the centre of the top-left pixel is 0, 0), matches (index pairs), aligned1 (x,
        y in B of each match, if points were aligned), inliers (one boolean per match), geometry (of the model), reason
        (why this one, or why none), significance (-log10 of how many such models chance would give), model (3 x 3 or
        None), descriptor, engine (None for SIFT) and seconds by stage.
        """
        found = self.verification
        return {
            "keypoints0": self.features[0].keypoints.tolist(),
            "keypoints1": self.features[1].keypoints.tolist(),
            "matches": self.matches.indices.tolist(),
            **({} if self.matches.aligned is None else {"aligned1": self.matches.aligned.tolist()}),
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
    a: Image | Features,
    b: Image | Features,
    model: Model = PHOTO_MODEL,
    settings: MatchSettings | None = None,
    *,
    device: "str | torch.device | None" = None,
    engine: str = "auto",
    align: bool = False,
    say: Say = lambda stage: None,
    progress: Progress | None = None,
    **options: Any,
) -> ImageMatches:
    """Match two images: detect and describe keypoints, match them, and verify the matches by a geometry.

    Args:
        a: image A: a file, its bytes, a PIL image, an array or a tensor (see as_gray); or its Features, so that an
            image of many pairs is extracted once.
        b: image B.
        model: a Descriptor, a name of trained weights, a weight file, "sift" or "rootsift".
        settings: how to match (default: MatchSettings()).
        device: where to run the network and to match (default: the model's device).
        engine: what computes the descriptors: "auto", "torch", "onnx", "onnx-int8", "cuda-half" or an .onnx file.
        align: move the points of B by fractions of a pixel, until their regions look like those of A.
        say: called with the name of each stage.
        progress: called with the number of keypoints described and their total, for each image.
        options: fields of MatchSettings or of its Detector to change, such as keypoints=1000.

    Example:
        >>> from matchkernel import match_images
        >>> from matchkernel.data.sample_pair import FOLDER
        >>> found = match_images(FOLDER / "left.png", FOLDER / "right.png", keypoints=300)
        >>> found.geometry, len(found.matches) > 100
        ('fundamental', True)
        >>> points_a, points_b = found.inlier_points
    """
    chosen = with_options(settings or MatchSettings(), options)
    if isinstance(a, Features) and isinstance(b, Features):
        if chosen.detector != (settings or MatchSettings()).detector:
            raise ArgumentError("options of the detector have no effect on features, which are there: leave them out")
        images = photos_to_align(a, b, chosen) if align else None
        return match_features(a, b, chosen, device=device, align=images, say=say)
    describer = open_describer(model, device=device, engine=engine)
    chosen.filter.check_recorded(describer.name, describer.settings)
    with recording() as stages:
        with stage("read"):
            images = photos_to_align(a, b, chosen) if align else None
        features_a, features_b = _extract_both(images or (a, b), describer, chosen.detector, say, progress)
    found = match_features(features_a, features_b, chosen, device=describer.device, align=images, say=say)
    return replace(found, seconds=found.seconds | stages.seconds)


def _extract_both(
    images: tuple[Image | Features, Image | Features],
    describer: Describer,
    detector: Detector,
    say: Say,
    progress: Progress | None,
) -> list[Features]:
    """The features of A and B, extracted at the same time where `photos_at_once` says so, reported one by one."""
    turns = InTurn(), InTurn()
    turns[0].begin()

    def extracted(image: Image | Features, turn: InTurn) -> Features:
        if isinstance(image, Features):
            return image
        report = None if progress is None else turn.delayed(progress)
        return extract_with(image, describer, detector, say=turn.delayed(say), progress=report)

    pending = sum(not isinstance(image, Features) for image in images)
    found = []
    threads = photos_at_once(pending, describer, detector)
    for features in in_threads(lambda pair: extracted(*pair), zip(images, turns, strict=True), threads):
        found.append(features)
        turns[1].begin()
    return found


def photos_at_once(count: int, describer: Describer, detector: Detector) -> int:
    """How many of so many photos to extract at the same time: networks of torch keep all cores busy with one."""
    return min(count, spare_threads()) if describer.takes_one_core and not detector.has_networks else 1


def photos_to_align(a: Image | Features, b: Image | Features, settings: MatchSettings) -> tuple[np.ndarray, np.ndarray]:
    """Both photos in gray, to align their points; refused if this cannot be."""
    if settings.guided:
        raise ArgumentError("guided matches cannot be aligned: leave out align or guided")
    if isinstance(a, Features) or isinstance(b, Features):
        raise ArgumentError("points are aligned by the pixels around them: pass both photos, not features")
    return as_gray(a), as_gray(b)


def match_features(
    a: Features,
    b: Features,
    settings: MatchSettings | None = None,
    *,
    device: "str | torch.device | None" = None,
    align: tuple[np.ndarray, np.ndarray] | None = None,
    say: Say = lambda stage: None,
) -> ImageMatches:
    """Match and verify the features of two images; the detector of the settings is not used.

    Every pair of match_images and of a collection is matched here. With the two gray images as `align`, points of B are
    aligned with those of A.
    """
    chosen, verification = settings or MatchSettings(), None
    with recording() as stages:
        say("matching")
        with stage("match"):
            found = match(a, b, mutual=chosen.mutual, filter=chosen.filter, device=device)
            found = found if align is None else align_matches(found, a, b, *align)
        if chosen.geometry != "none":
            say("verifying")
            with stage("verify"):
                verification = _verified(a, b, found, chosen.geometry, chosen.pixels)
                if chosen.guided:
                    found, verification = _guided(a, b, found, verification, chosen)
    return ImageMatches((a, b), found, verification, dict.fromkeys(STAGES, 0.0) | stages.seconds)


def _verified(a: Features, b: Features, found: Matches, geometry: Geometry, pixels: float) -> Verification:
    frames = a.frames[found.indices[:, 0]], b.frames[found.indices[:, 1]]
    size, ratios = b.image_size, found.ratios
    return verify(*found.points(a, b), geometry, threshold=pixels, size_b=size, ratios=ratios, frames=frames)


def _guided(
    a: Features, b: Features, found: Matches, verification: Verification, chosen: MatchSettings
) -> tuple[Matches, Verification]:
    """Match again with the model and fit it again; the significance stays, because the model chose these matches."""
    model, geometry = verification.model, verification.geometry
    if model is None or geometry is None:
        return found, verification
    limits = chosen.filter if (chosen.filter.ratio, chosen.filter.distance) != (None, None) else None
    more = guided_matches(a, b, model, geometry, pixels=chosen.pixels, filter=limits, first=found)
    again = _verified(a, b, more, geometry, chosen.pixels)
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
