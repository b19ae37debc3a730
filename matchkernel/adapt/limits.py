"""Calibrate distance and ratio of matches on pairs of photos whose cameras are known."""

import numpy as np

from matchkernel.evaluation.photos.calibrate import RATIO, threshold_of
from matchkernel.evaluation.photos.poses import View, relative_pose
from matchkernel.evaluation.photos.scenes import EvaluationScene, PoseCamera
from matchkernel.geometry.detect import Detector
from matchkernel.geometry.two_view import essential_matrix, sampson_distances
from matchkernel.model.descriptors import Descriptor
from matchkernel.photos.extract import extract
from matchkernel.photos.features import Features
from matchkernel.photos.match import match
from matchkernel.storage.work import Progress

PIXELS = 3.0  # a match this near to its epipolar line counts as correct; one in a hundred random matches is
MIN_CORRECT = 100  # matches; with fewer nothing is calibrated
KEYPOINTS = 2000


def calibrate_limits(
    model: Descriptor, scene: EvaluationScene, device: str, progress: Progress
) -> tuple[float | None, float | None]:
    """The limits of distance and ratio that separate correct from wrong matches best; None if too few are correct.

    Args:
        model: the descriptor.
        scene: photos with cameras, and the pairs to match.
        device: where to compute.
        progress: called with the number of photos described and of pairs matched, and their total.
    """
    total, features, parts = len(scene.images) + len(scene.pairs), {}, []
    detector = Detector(keypoints=KEYPOINTS)
    for name, path in scene.images.items():
        features[name] = extract(path, model, detector, device=device, engine="torch")
        progress(len(features), total)
    for a, b in scene.pairs:
        found = match(features[a], features[b])
        points = features[a].keypoints[found.indices[:, 0]], features[b].keypoints[found.indices[:, 1]]
        errors = epipolar_errors(*points, *(_view(scene.cameras[name], features[name]) for name in (a, b)))
        parts.append(np.column_stack([found.distances, errors < PIXELS, found.ratios]))
        progress(len(features) + len(parts), total)
    if sum(float(part[:, 1].sum()) for part in parts) < MIN_CORRECT:
        return None, None
    distance, ratio = threshold_of(parts), threshold_of(parts, RATIO)
    return (None if distance is None else round(distance, 3)), (None if ratio is None else round(ratio, 3))


def epipolar_errors(points_a: np.ndarray, points_b: np.ndarray, a: View, b: View) -> np.ndarray:
    """(M,) Sampson distances of matches in pixels; infinite where a camera does not reach."""
    R, t = relative_pose(a.camera, b.camera)
    E = essential_matrix(R, t)
    return sampson_distances(E, a.rays(points_a), b.rays(points_b)) * (a.focal + b.focal) / 2


def _view(camera: PoseCamera, features: Features) -> View:
    return View(camera, features.image_size)
