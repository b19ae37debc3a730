"""Score poses with AffNet's shapes, with one orientation per position, or with aligned points, against the default.

    python experiments/photos/shapes.py DATA --affnet AffNet.pth --work WORK --only AffNet --most-photos 16
    python experiments/photos/shapes.py DATA --work WORK --only aligned

DATA holds `scenes/<scene>/` with images/ and sparse/ (see `matchkernel evaluate photos`). WORK keeps features and
scored pairs. Prints a row for each variant and filter, and differences to the default: over all scenes, over those that
no setting of the alignment was chosen on, and over validation. `--seconds 12` prints processor times of so many pairs
instead: both photos described, matched, aligned, one pose estimated.
"""

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from matchkernel.evaluation.photos.evaluate import Protocol, evaluate_photos, pose_errors, threads
from matchkernel.evaluation.photos.methods import MethodSpec
from matchkernel.evaluation.photos.scenes import EvaluationScene, read_scene
from matchkernel.evaluation.photos.scores import scores_by_scene
from matchkernel.evaluation.uncertainty import estimate, paired_difference
from matchkernel.geometry.detect import Detector
from matchkernel.photos.match import align_matches
from matchkernel.storage.images import read_gray

VALIDATION = ("sceaux", "british_museum")
KEPT_APART = ("truck", "statue", "street")
FILTERS = ("ratio", "context")
CHOSEN_ON = ("castle", "brandenburg", "liberty", "lund_door", "fox")  # by the rule, for settings of the alignment
VARIANTS = ("AffNet", "one orientation", "aligned")
KEYPOINTS, MOST_PAIRS = 2000, 30  # of a photo, of a training scene
Scores = Mapping[str, np.ndarray]


def main() -> None:
    """Score what is missing in WORK, and print tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--only", nargs="+", default=list(VARIANTS), choices=VARIANTS, help="variants")
    parser.add_argument("--affnet", type=Path, help="weight file of AffNet")
    parser.add_argument("--work", type=Path, required=True, help="folder that keeps features and scored pairs")
    parser.add_argument("--most-photos", type=int, help="leave out training scenes with more photos than these")
    parser.add_argument("--seconds", type=int, help="number of pairs of the validation scenes to time")
    options = parser.parse_args()
    if options.seconds:
        print_seconds([read_scene(options.data / "scenes" / name) for name in VALIDATION], options.seconds)
        return
    base = Detector(keypoints=KEYPOINTS)
    detectors = {
        "AffNet": replace(base, affnet=options.affnet),
        "one orientation": replace(base, orientations="one"),
    }
    variants = {name: detectors.get(name, base) for name in ("default", *options.only)}
    scenes, found = read_all(options.data, options.most_photos), {}
    for name, detector in variants.items():
        specs = [
            MethodSpec("light-wide", detector, kept, engine="onnx-int8", aligned=name == "aligned") for kept in FILTERS
        ]
        results = evaluate_photos(scenes, specs, work=options.work, threads_each=2, say=print)
        print(f"{name}: {results[0]['seconds']}", flush=True)
        for kept, result in zip(FILTERS, results, strict=True):
            found[name, kept] = result["scenes"]
        for limit in ("maa10", "maa5"):
            parts = {key: scores_by_scene(part, limit) for key, part in found.items()}
            done = [key for key in variants if (key, FILTERS[0]) in parts]
            parts |= {(key, "both"): mean_of([parts[key, kept] for kept in FILTERS]) for key in done}
            print_table(limit, parts)


def read_all(data: Path, most_photos: int | None = None) -> list[EvaluationScene]:
    """The scenes of validation with all pairs, then those of training with some."""
    scenes = [read_scene(data / "scenes" / name) for name in VALIDATION]
    for path in sorted((data / "scenes").iterdir()):
        photos = len(list((path / "images").iterdir()))
        if path.name not in (*VALIDATION, *KEPT_APART) and (most_photos is None or photos <= most_photos):
            scenes.append(read_scene(path, most_pairs=MOST_PAIRS))
    return scenes


def print_seconds(scenes: list[EvaluationScene], count: int) -> None:
    """Medians of the processor time of the stages of a pair, in one thread; pairs are spread over the scenes."""
    method = MethodSpec("light-wide", Detector(keypoints=KEYPOINTS), engine="onnx-int8").open()
    pairs = [(scene, pair) for scene in scenes for pair in scene.pairs]
    rows = []
    with threads(1):
        for scene, pair in [pairs[0], *(pairs[k * len(pairs) // count] for k in range(count))]:
            images = [read_gray(scene.images[name]) for name in pair]
            times = [time.process_time()]
            a, b = (method.extract(image, "") for image in images)
            times.append(time.process_time())
            found = method.match(a, b)
            times.append(time.process_time())
            found = align_matches(found, a, b, *images)
            times.append(time.process_time())
            pose_errors(a, b, found, scene.truth(pair), Protocol(repeats=1))
            times.append(time.process_time())
            rows.append([*np.diff(times), len(found)])
    for name, value in zip(("describe", "match", "align", "estimate", "matches"), np.median(rows[1:], 0), strict=True):
        print(f"{name}: {value:.3f}")  # the first pair opens the engine and does not count


def mean_of(parts: list[Scores]) -> Scores:
    """The mean of several scores of each pair."""
    return {scene: np.mean([part[scene] for part in parts], 0) for scene in parts[0]}


def print_table(limit: str, parts: dict[tuple[str, str], Scores]) -> None:
    """A row for each variant and filter: scores on V and T, and differences to the first variant."""
    print(f"\n{limit}: variant, filter, V, T, V and T, differences on V and T [95 %], without CHOSEN_ON, on V")
    first = next(iter(parts))[0]
    for (name, kept), scores in parts.items():
        groups = [
            [scene for scene in scores if (scene in VALIDATION) == is_validation] for is_validation in (True, False)
        ]
        means = [estimate({scene: scores[scene] for scene in group}) for group in (*groups, [*scores])]
        row = [name, kept, *(mean.text(1, 100) for mean in means)]
        if name != first:
            for group in ([*scores], [scene for scene in scores if scene not in CHOSEN_ON], groups[0]):
                mine, theirs = ({scene: one[scene] for scene in group} for one in (scores, parts[first, kept]))
                found = paired_difference(mine, theirs)
                row.append(f"{found.interval_text()} ± {100 * (found.std or 0):.1f}")
        print(" | ".join(row), flush=True)


if __name__ == "__main__":
    main()
