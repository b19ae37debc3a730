"""How good the poses are that a matcher's matches give on scenes with true cameras."""

from collections.abc import Sequence

import numpy as np
import torch

from matchkernel.errors import ArgumentError
from matchkernel.evaluation.photos.evaluate import Protocol
from matchkernel.evaluation.photos.poses import score_pose
from matchkernel.evaluation.photos.scenes import EvaluationScene
from matchkernel.evaluation.photos.scores import accuracy
from matchkernel.geometry.detect import Detector
from matchkernel.model.context import ContextNetwork
from matchkernel.photos.extract import Describer, extract_with
from matchkernel.photos.features import Features
from matchkernel.photos.match import match
from matchkernel.storage.work import in_threads, spare_threads
from matchkernel.training.matcher.scenes import keypoints_of

KEYPOINTS = 2000


class PoseValidation:
    """Scenes to validate on; features are extracted once.

    Args:
        scenes: with true cameras; none of them may be trained on.
        describer: of the rows.
        device: where the network runs.
        keypoints: the maximum per photo.
    """

    def __init__(
        self, scenes: Sequence[EvaluationScene], describer: Describer, device: torch.device, keypoints: int = KEYPOINTS
    ) -> None:
        for scene in scenes:
            if scene.kind != "poses":
                raise ArgumentError(f"{scene.name}: has homographies; validation needs scenes with cameras")
        self.scenes, self.device = scenes, device
        detector = Detector(keypoints=keypoints)
        self.features = {
            (scene.name, name): extract_with(path, describer, detector)
            for scene in scenes
            for name, path in scene.images.items()
        }
        self.keypoints = {place: keypoints_of(features, device) for place, features in self.features.items()}

    def ratio(self) -> dict[str, float]:
        """Scores of the ratio test."""
        return self._scores({place: match(*self._two(place), filter="ratio").indices for place in self._places()})

    def measure(self, network: ContextNetwork) -> dict[str, float]:
        """mAA up to 5 and 10 degrees, the mean over scenes and of each scene, and matches per pair."""
        matches = {}
        for scene, (a, b) in self._places():
            matches[scene, (a, b)] = network.match(self.keypoints[scene, a], self.keypoints[scene, b])[0].cpu().numpy()
        return self._scores(matches)

    def _places(self) -> list[tuple[str, tuple[str, str]]]:
        return [(scene.name, pair) for scene in self.scenes for pair in scene.pairs]

    def _two(self, place: tuple[str, tuple[str, str]]) -> tuple[Features, Features]:
        scene, (a, b) = place
        return self.features[scene, a], self.features[scene, b]

    def _scores(self, matches: dict[tuple[str, tuple[str, str]], np.ndarray]) -> dict[str, float]:
        protocol, cameras = Protocol(), {scene.name: scene.cameras for scene in self.scenes}

        def errors(place: tuple[str, tuple[str, str]]) -> list[float]:
            (a, b), rows = self._two(place), matches[place]
            (scene, (first, second)), found = place, []
            for seed in range(protocol.repeats):  # MAGSAC's draws depend on the order of the matches
                order = np.random.default_rng(seed).permutation(len(rows))
                ends = a.keypoints[rows[order, 0]], b.keypoints[rows[order, 1]]
                truth = cameras[scene][first], cameras[scene][second]
                found.append(score_pose(*ends, truth, (a.image_size, b.image_size), protocol.pixels).worst)
            return found

        places = self._places()
        found = dict(zip(places, in_threads(errors, places, spare_threads()), strict=True))
        parts = {scene.name: np.concatenate([found[scene.name, pair] for pair in scene.pairs]) for scene in self.scenes}
        scores = {f"{name} maa10": accuracy(part, 10) for name, part in parts.items()}
        for limit in (10, 5):
            scores[f"maa{limit}"] = float(np.mean([accuracy(part, limit) for part in parts.values()]))
        scores["matches"] = float(np.mean([len(rows) for rows in matches.values()]))
        return {name: round(value, 4) for name, value in scores.items()}
