"""Before and after: what adapted weights gain over their base, with bootstrap intervals, and the verdict.

Everything is measured on the test part, which neither training nor any choice has seen. A gain is one where the 95 %
interval of the difference lies above 0. Adapted weights are kept if retrieval on the test patches gains and nothing
measured on the test part got worse.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.adapt.learn import ENOUGH, MOST_MINUTES, Learned
from matchkernel.data.patch_set import PatchSet
from matchkernel.data.split import Counts
from matchkernel.evaluation.patch_sets import average_precisions
from matchkernel.evaluation.photos.evaluate import evaluate_photos
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.scenes import EvaluationScene
from matchkernel.evaluation.photos.scores import difference
from matchkernel.evaluation.uncertainty import INTERVAL, MIN_PAIRS, fpr95_by_points, interval_by_points
from matchkernel.geometry.detect import Detector
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import Descriptor
from matchkernel.photos.nearest import find_nearest
from matchkernel.runtime.weights import available
from matchkernel.storage.work import Progress

QUERIES, DRAWS = 3000, 1000
KEYPOINTS = 2000
NO_GAIN = 0.01  # of retrieval mAP: photos need no adapting if the interval of the gain ends there or below
RETRIEVAL, MATCHING, HARD, POSES = "retrieval mAP", "found first", "FPR@95, hard negatives", "pose mAA(10°)"


@dataclass(frozen=True)
class Gain:
    """A measure of some data before and after, from 0 to 1; low and high are the 95 % interval of after - before."""

    measure: str
    place: str
    before: float
    after: float
    low: float
    high: float
    lower_is_better: bool = False

    @property
    def verdict(self) -> str:
        """ "better", "worse" or "within noise"."""
        low, high = (-self.high, -self.low) if self.lower_is_better else (self.low, self.high)
        return "better" if low > 0 else "worse" if high < 0 else "within noise"

    def text(self) -> str:
        """One line: `retrieval mAP 81.2 -> 84.0 (+2.8, 95 % interval +1.9 to +3.6): better`."""
        before, after, low, high = (100 * value for value in (self.before, self.after, self.low, self.high))
        change = f"{after - before:+.2f}, 95 % interval {low:+.2f} to {high:+.2f}"
        return f"{self.measure} {before:.2f} -> {after:.2f} ({change}): {self.verdict}"

    def to_json(self) -> dict[str, Any]:
        """For a file."""
        return {**asdict(self), "verdict": self.verdict}


@dataclass(frozen=True)
class Adapted:
    """The result of an adaptation."""

    folder: Path
    counts: dict[str, Counts]
    learned: Learned
    gains: list[Gain] = field(default_factory=list)  # on the test part, retrieval first; none if nothing improved
    elsewhere: list[Gain] = field(default_factory=list)  # on other data: what was forgotten
    weights: Path | None = None  # None if the base is kept
    model: str = "light-wide"  # the weights before
    seen: str = ""  # name of the scene, if the weights before were trained on it

    @property
    def is_better(self) -> bool:
        """True if retrieval on the test part gains and nothing measured there got worse."""
        verdicts = [gain.verdict for gain in self.gains]
        return verdicts[:1] == ["better"] and "worse" not in verdicts

    @property
    def verdict(self) -> str:
        """Which weights to use, what was measured, whether that is fair, and what would be a fairer try."""
        score, learned = self.gains[0] if self.gains else None, self.learned
        fair = f" No fair test: {unfair(self.model, self.seen)}." if self.seen else ""
        few = "" if learned.is_enough or self.is_better else ", too few to tell,"
        worse = [gain.measure for gain in self.gains if gain.verdict == "worse"]
        is_open = score is not None and not worse and learned.is_enough and score.high > NO_GAIN
        if score is None:
            first, last = learned.first_map, learned.last_map
            change = f"made them {'slightly ' * (last > first - 0.02)}worse" if last < first else "changed nothing"
            did = f"{learned.step:,} updates{few} {change} on validation ({100 * first:.1f} → {100 * last:.1f})."
        else:
            interval = f"95 % interval {100 * score.low:+.1f} to {100 * score.high:+.1f}"
            noise = f"within noise{f', too few points to tell ({interval})' * is_open}"
            end = f"but {' and '.join(worse)} got worse" if worse else noise
            end = "and nothing measured there got worse" if self.is_better else end
            best, after, before = f"{learned.best_step:,}", f"{100 * score.after:.1f}", f"{100 * score.before:.1f}"
            did = f"Of {learned.step:,} updates{few} the weights after update {best} were best on validation; on photos"
            did += f" held out their retrieval is {after} instead of {before}, {end}."
        if self.is_better:
            return f"Use the adapted weights.{fair} {did}"
        keep = f"Keep {'the shipped weights' if self.model in available() else Path(self.model).name}"
        if learned.is_enough:
            if is_open:
                return f"{keep}.{fair} {did} A fairer try: more photos."
            return f"{keep}{': your photos need no adapting' * (not worse)}.{fair} {did}"
        again = "more `--minutes`, best on a GPU"
        if learned.step < ENOUGH and learned.fair_minutes <= MOST_MINUTES:
            again = f"the same command with `--minutes {learned.fair_minutes}` (about {ENOUGH} updates), or a GPU"
        return f"{keep}.{fair} {did} A fairer try: {again}."


def unfair(model: str, scene: str) -> str:
    """Said of a scene on which the weights before were trained."""
    return f"{model} was trained on {scene}, so 'before' is too good, and a gain says little about other photos"


def no_poses(scene: EvaluationScene) -> str:
    """Why poses of these test photos are not scored; empty if they are."""
    photos, pairs = len(scene.images), len(scene.pairs)
    made = f"the {photos} test photos make {pairs} pair{'s' * (pairs != 1)} that show the same place"
    return "" if pairs >= MIN_PAIRS else f"Poses are not scored: {made}, and {MIN_PAIRS} are needed; more photos help."


def describe_set(model: Descriptor, patch_set: PatchSet, device: str) -> np.ndarray:
    """(K, D) rows of a set's patches."""
    return np.asarray(describe(np.asarray(patch_set.patches), model, device=device, resize=True))


def retrieval_gain(rows: Sequence[np.ndarray], patch_set: PatchSet, place: str) -> Gain:
    """Mean average precision of each patch against all others, of the (K, D) rows before and after."""
    (queries, before), (_, after) = (average_precisions(part, patch_set.labels, queries=QUERIES) for part in rows)
    low, high = interval_by_points(after - before, patch_set.labels[queries], DRAWS)
    return Gain(RETRIEVAL, place, float(before.mean()), float(after.mean()), low, high)


def matching_gain(rows: Sequence[np.ndarray], patch_set: PatchSet, place: str) -> Gain | None:
    """How often the nearest patch of another photo that shows the point is of that point, bootstrap over points.

    None if the set does not record photos, or no point is seen by two.
    """
    photos = patch_set.columns.get("photo")
    if photos is None:
        return None
    points = np.unique(patch_set.labels, return_inverse=True)[1]
    found: list[np.ndarray] = []
    for part in rows:
        asked = [_found_first(part, points, photos, one, two) for one, two in permutations(np.unique(photos), 2)]
        found.append(np.concatenate(asked) if asked else np.empty((0, 2)))
    before, after = found
    if not len(before):
        return None
    low, high = interval_by_points(after[:, 1] - before[:, 1], before[:, 0], DRAWS)
    return Gain(MATCHING, place, float(before[:, 1].mean()), float(after[:, 1].mean()), low, high)


def _found_first(rows: np.ndarray, points: np.ndarray, photos: np.ndarray, one: int, two: int) -> np.ndarray:
    """(Q, 2) the point of each patch of one photo that the other photo shows, and whether it is found there."""
    there = np.flatnonzero(photos == two)
    here = np.flatnonzero(photos == one)
    here = here[np.isin(points[here], points[there])]
    if not len(here):
        return np.empty((0, 2))
    nearest = find_nearest(rows[here], rows[there], wants_second=False).index
    return np.column_stack([points[here], points[there[nearest]] == points[here]]).astype(float)


def hard_gain(rows: Sequence[np.ndarray], patch_set: PatchSet, place: str) -> Gain | None:
    """FPR@95 of the pairs with similar negatives, bootstrap over points; None if the set has no such pairs."""
    name = next((name for name in sorted(patch_set.pairs) if name.startswith("m50hard")), None)
    if name is None or not len(patch_set.pairs[name]):
        return None
    pairs = patch_set.pairs[name]
    points = np.unique(patch_set.labels, return_inverse=True)[1]
    is_match = pairs[:, 2] == 1
    found = []
    for part in rows:
        distances = np.linalg.norm(part[pairs[:, 0]] - part[pairs[:, 1]], axis=1)
        found.append(
            fpr95_by_points(
                distances[is_match],
                points[pairs[is_match, 0]],
                distances[~is_match],
                points[pairs[~is_match, :2]],
                DRAWS // 5,
            )
        )
    before, after = found
    low, high = np.percentile(after[1:] - before[1:], INTERVAL)
    return Gain(HARD, place, float(before[0]), float(after[0]), float(low), float(high), lower_is_better=True)


def pose_gain(
    weights: Sequence[str], scene: EvaluationScene, work: Path, device: str, progress: Progress
) -> Gain | None:
    """Relative poses of pairs of the scene, bootstrap over pairs; None if it has fewer than MIN_PAIRS.

    Weights are names or files, before and after; features and scored pairs are kept in the folder `work`.
    """
    if no_poses(scene):
        return None
    specs = [
        MethodSpec(text, Detector(keypoints=KEYPOINTS), device=device, name=name)
        for text, name in zip(weights, ("before", "after"), strict=True)
    ]
    before, after = evaluate_photos([scene], specs, work=work, progress=progress)
    change = difference(after, before, "maa10")
    one, two = (float(result["mean"]["maa10"]["mean"]) for result in (before, after))
    return Gain(POSES, f"{len(scene.pairs)} test pairs", one, two, change.low, change.high)
