"""How good the poses are that a matcher's matches give on scenes with true cameras."""

from collections.abc import Sequence

import numpy as np
import torch

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.evaluate import Protocol, pose_errors
from matchkernel.evaluation.photos.scenes import EvaluationScene
from matchkernel.evaluation.photos.scores import accuracy
from matchkernel.geometry.detect import Detector
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.extract import Describer, extract_with
from matchkernel.photos.features import Matches
from matchkernel.photos.match import match
from matchkernel.storage.work import in_threads, spare_threads
from matchkernel.training.matcher.scenes import keypoints_of

KEYPOINTS = 2000  # the maximum per photo


class PoseValidation:
    """Scenes with true cameras, none of them trained on; features are extracted once."""

    def __init__(self, scenes: Sequence[EvaluationScene], describer: Describer, device: torch.device) -> None:
        for scene in scenes:
            if scene.kind != "poses":
                raise ArgumentError(f"{scene.name}: has homographies; validation needs scenes with cameras")
        self.pairs = [((scene.name, a), (scene.name, b)) for scene in scenes for a, b in scene.pairs]
        self.truths = [scene.truth(pair) for scene in scenes for pair in scene.pairs]
        detector, images = Detector(keypoints=KEYPOINTS), [(scene, name) for scene in scenes for name in scene.images]
        self.features = {
            (scene.name, name): extract_with(scene.images[name], describer, detector) for scene, name in images
        }
        self.keypoints = {place: keypoints_of(features, device) for place, features in self.features.items()}

    def ratio_test(self) -> dict[str, float]:
        """Scores of mutual nearest neighbours that pass the ratio test."""
        return self._scores([match(self.features[a], self.features[b], filter="ratio") for a, b in self.pairs])

    def measure(self, network: ContextNetwork) -> dict[str, float]:
        """mAA up to 5 and 10 degrees, the mean over scenes and of each scene, and matches per pair."""
        found = [network.match(self.keypoints[a], self.keypoints[b]) for a, b in self.pairs]
        parts = [(one.indices, one.distances.double(), one.ratios.double()) for one in found]
        return self._scores([Matches(*(tensor.cpu().numpy() for tensor in part)) for part in parts])

    def _scores(self, matches: Sequence[Matches]) -> dict[str, float]:
        protocol = Protocol()

        def errors(number: int) -> list[float]:
            (a, b), truth = self.pairs[number], self.truths[number]
            assert isinstance(truth, tuple)
            found = pose_errors(self.features[a], self.features[b], matches[number], truth, protocol)
            return [error.worst for error in found]

        by_scene: dict[str, list[float]] = {}
        numbers = range(len(self.pairs))
        for number, found in zip(numbers, in_threads(errors, numbers, spare_threads()), strict=True):
            by_scene.setdefault(self.pairs[number][0][0], []).extend(found)
        scores = {f"{scene} maa10": accuracy(found, 10) for scene, found in by_scene.items()}
        for limit in (10, 5):
            scores[f"maa{limit}"] = float(np.mean([accuracy(found, limit) for found in by_scene.values()]))
        scores["matches"] = float(np.mean([len(found) for found in matches]))
        return {name: round(value, 4) for name, value in scores.items()}
