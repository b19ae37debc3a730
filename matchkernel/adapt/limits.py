"""Calibrate distance and ratio of matches on pairs of photos whose cameras are known."""

import numpy as np

from matchkernel.evaluation.photos.poses import relative_pose
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera, Size
from matchkernel.evaluation.photos.scores import RATIO, threshold_of
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.two_view import essential_matrix, sampson_distances
from matchkernel.model.descriptors import Descriptor
from matchkernel.photos.extract import extract
from matchkernel.photos.match import match
from matchkernel.storage.work import Progress

PIXELS = 3.0  # a match this near to its epipolar line counts as correct; one in a hundred random matches is
MIN_CORRECT = 100  # matches; with fewer nothing is calibrated
KEYPOINTS = 2000


def calibrate_limits(
    model: Descriptor, scene: EvaluationScene, device: str, progress: Progress
) -> tuple[float | None, float | None]:
    """The limits of distance and ratio that separate correct from wrong matches best; None if too few are correct."""
    total, features, parts = len(scene.images) + len(scene.pairs), {}, []
    detector = Detector(keypoints=KEYPOINTS)
    for name, path in scene.images.items():
        features[name] = extract(path, model, detector, device=device, engine="torch")
        progress(len(features), total)
    for a, b in scene.pairs:
        found = match(features[a], features[b])
        points = found.points(features[a], features[b])
        cameras = scene.cameras[a], scene.cameras[b]
        errors = epipolar_errors(*points, cameras, (features[a].image_size, features[b].image_size))
        parts.append(np.column_stack([found.distances, errors < PIXELS, found.ratios]))
        progress(len(features) + len(parts), total)
    if sum(float(part[:, 1].sum()) for part in parts) < MIN_CORRECT:
        return None, None
    distance, ratio = threshold_of(parts), threshold_of(parts, RATIO)
    return (None if distance is None else round(distance, 3)), (None if ratio is None else round(ratio, 3))


def epipolar_errors(
    points_a: np.ndarray, points_b: np.ndarray, cameras: tuple[PoseCamera, PoseCamera], sizes: tuple[Size, Size]
) -> np.ndarray:
    """(M,) Sampson distances of matches in pixels; infinite where a camera does not reach."""
    (a, b), (size_a, size_b) = cameras, sizes
    E = essential_matrix(*relative_pose(a, b))
    rays = a.rays(points_a, size_a), b.rays(points_b, size_b)
    return sampson_distances(E, *rays) * (a.focal(size_a) + b.focal(size_b)) / 2
