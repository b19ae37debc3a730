"""Time photos and pairs by number of keypoints, to be shown beside the poses of results/keypoints.json.

    python experiments/photos/keypoint_seconds.py DATA
    python experiments/photos/keypoint_seconds.py DATA --matchers --results experiments/results/matcher_seconds.json

Processor time of one thread on the first photos of the validation scenes, methods in turn, the median. Extracting is
detection and description; a pair is two photos extracted, matched, and its pose estimated. Results go to
experiments/results/keypoint_seconds.json. With --matchers, the methods are those of the step `matchers` of
candidates.json. Peers need the packages of `matchkernel evaluate photos`.
"""

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from estimators import write
from run import STEPS, Candidate

from matchkernel.evaluation.photos.evaluate import Protocol, pose_errors, threads
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.scenes import EvaluationScene, read_scene
from matchkernel.geometry.detect import Detector
from matchkernel.photos.match import align_matches
from matchkernel.storage.images import read_colour, read_gray

RESULTS = Path(__file__).parents[1] / "results" / "keypoint_seconds.json"
BUDGETS = (500, 1000, 2000, 4000, 8000)
METHODS = (
    ("rootsift", "auto", "ratio"),
    ("tiny", "onnx-int8", "ratio"),
    ("light-wide", "onnx-int8", "ratio"),
    ("light-wide", "onnx-int8", "context"),
    ("aliked-n16+lightglue", "torch", "ratio"),
)
PEER_BUDGET = 2000  # the only one at which a peer is timed


def main() -> None:
    """Time every method at every number of keypoints."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--rounds", type=int, default=2, help="how often every pair is measured")
    parser.add_argument("--budgets", nargs="+", type=int, default=BUDGETS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--matchers", action="store_true", help="the methods of the table of matchers")
    options = parser.parse_args()
    scenes = [read_scene(options.data / "scenes" / name) for name in ("sceaux", "british_museum")]
    found: dict[str, list[list[float]]] = {}
    with threads(1):
        for _ in range(options.rounds):
            for key, spec, protocol in matchers() if options.matchers else by_budget(options.budgets):
                for scene in scenes:
                    found.setdefault(key, []).append(seconds(spec, scene, protocol))
    stages = ("extract", "match", "estimate")
    rows = {key: dict(zip(stages, np.median(times, 0).round(3).tolist(), strict=True)) for key, times in found.items()}
    write(options.results, {"format": 1, "rounds": options.rounds, "rows": rows})
    print(json.dumps(rows, indent=1))


def by_budget(budgets: Sequence[int]) -> Iterator[tuple[str, MethodSpec, Protocol]]:
    """METHODS at every number of keypoints."""
    for budget in budgets:
        for name, engine, kept in METHODS if budget == PEER_BUDGET else METHODS[:-1]:
            spec = MethodSpec(name, Detector(keypoints=budget), kept, engine=engine)
            yield f"{name} {kept} {budget}", spec, Protocol(repeats=1)


def matchers() -> Iterator[tuple[str, MethodSpec, Protocol]]:
    """The rows of the table of matchers."""
    for one in (Candidate(*row) for row in STEPS["matchers"]):
        yield one.key, one.spec(Path(), "cpu"), replace(one.protocol, repeats=1)


def seconds(spec: MethodSpec, scene: EvaluationScene, protocol: Protocol) -> list[float]:
    """Processor time to extract from one photo, to match the first pair, and to estimate its pose once."""
    method, (a, b) = spec.open(), scene.pairs[0]
    files = [scene.images[name] for name in (a, b)]
    pixels, gray = [read_colour(path) for path in files], [read_gray(path) for path in files]
    start = time.process_time()
    features = [method.extract(image, name) for image, name in zip(pixels, (a, b), strict=True)]
    extracted = time.process_time()
    matches = method.match(*features)
    matches = align_matches(matches, *features, *gray) if spec.aligned else matches
    matched = time.process_time()
    pose_errors(*features, matches, scene.truth((a, b)), protocol)
    return [(extracted - start) / 2, matched - extracted, time.process_time() - matched]


if __name__ == "__main__":
    main()
