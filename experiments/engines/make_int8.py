"""Make the files of int8 ranges of the package, and measure what int8 loses.

python experiments/engines/make_int8.py SETS --calibrate fountain castle [--sequences homography_validation]
                                        [--pair A.jpg B.jpg] [--only NAME ...] [--torch]

SETS holds the patch sets that paper/data.py cuts. Calibration is on training scenes, the scores are on the validation
sequences, and the two photos, of a validation scene, are matched with 2,000 keypoints each. Writes
`<name>.int8.json` beside the weights, and results/int8.json. What was measured for the same weights and the same
ranges is not measured again; scores of torch's rows are those in the cards of the weights, unless --torch is given.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))
from data import GROUPS, RESULTS
from score import score_sequences

import matchkernel
from matchkernel.cli.console import run_script
from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.smaller import calibrate_int8
from matchkernel.model.describe import describe
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.choose import open_engine
from matchkernel.photos.extract import extract
from matchkernel.photos.match import match
from matchkernel.runtime.config import INT8
from matchkernel.runtime.onnx import ranges_file
from matchkernel.runtime.weights import SHIPPED
from matchkernel.storage.files import write_json

TARGET = RESULTS / "int8.json"
TASKS = ("verification", "matching", "retrieval")
KEYPOINTS = 2000
FILTERS = ("none", "ratio")


def scores_of(model: Descriptor, engine: str, sequences: Path) -> dict[str, float]:
    """The HPatches tasks, as shares."""
    opened = open_engine(model, engine)

    def compute(patches: np.ndarray, progress: Any) -> np.ndarray:
        return describe(patches, model, resize=True, engine=opened, progress=progress)

    found = score_sequences(Method(model.name, "l2", {}, compute), sequences)
    return {task: found[task] for task in TASKS}


def recorded_scores(model: Descriptor) -> dict[str, float]:
    """The same scores of torch's rows from the card of the weights; empty if it does not have them."""
    metrics = model.card.metrics
    names = {task: f"validation_{task}" for task in TASKS}
    return {task: metrics[name] / 100 for task, name in names.items() if name in metrics}


def agreement(model: Descriptor, photos: Sequence[Path]) -> dict[str, float]:
    """Filter -> share of the mutual matches of torch and of int8 that both have (twice the common ones by all)."""
    features = [
        [extract(photo, model, keypoints=KEYPOINTS, engine=engine) for photo in photos] for engine in ("torch", INT8)
    ]
    shares = {}
    for name in FILTERS:
        ours, theirs = ({tuple(pair) for pair in match(*both, filter=name).indices.tolist()} for both in features)
        shares[name] = 2 * len(ours & theirs) / max(len(ours) + len(theirs), 1)
    return shares


def make(name: str, options: argparse.Namespace, known: dict[str, Any]) -> dict[str, Any]:
    """Make the file of a model, and measure it unless the results are known."""
    model = matchkernel.load(name)
    made = calibrate_int8(model, [open_patch_set(options.sets / part) for part in options.calibrate])
    made.ranges.write(ranges_file(name))
    found: dict[str, Any] = {
        "weights": made.ranges.state_sha256,
        "ranges": made.ranges.sha256,
        "calibrate": options.calibrate,
        "cosine": made.cosine,
        "lowest_cosine": made.lowest_cosine,
        "scene_map": {"torch": made.torch_map / 100, INT8: made.int8_map / 100},
    }
    same_weights, same_ranges = (known.get(key) == found[key] for key in ("weights", "ranges"))

    def measured(key: str, is_known: bool, measure: Callable[[], Any]) -> Any:
        return known[key] if is_known and key in known else measure()

    if options.sequences:
        sequences = options.sets / options.sequences
        told = recorded_scores(model)
        has_all = len(told) == len(TASKS) and not options.torch
        found["torch"] = (
            told if has_all else measured("torch", same_weights, partial(scores_of, model, "torch", sequences))
        )
        found[INT8] = measured(INT8, same_ranges, partial(scores_of, model, INT8, sequences))
    if options.pair:
        found["photos"] = [photo.name for photo in options.pair]
        found["agreement"] = measured("agreement", same_ranges, partial(agreement, model, options.pair))
    return found


def line(name: str, found: dict[str, Any]) -> str:
    """A row of the table that is printed."""
    words = [f"{name:12} cosine {found['cosine']:.5f}"]
    if "torch" in found:
        words += [f"{task} {100 * found['torch'][task]:.2f} -> {100 * found[INT8][task]:.2f}" for task in TASKS]
    if "agreement" in found:
        words += [f"matches agree to {100 * found['agreement']['none']:.1f} %"]
    return "  ".join(words)


def main() -> None:
    """Make all files, or some."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--calibrate", nargs="+", required=True, help="patch sets of training scenes")
    parser.add_argument("--sequences", default="", help="set of sequences to score, such as homography_validation")
    parser.add_argument("--pair", nargs=2, type=Path, help="two photos of a validation scene")
    parser.add_argument("--only", nargs="*", default=matchkernel.available(), help="names of weights")
    parser.add_argument("--torch", action="store_true", help="score torch's rows again instead of trusting the cards")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args()
    wrong = set(options.calibrate) & set(GROUPS["validation"])
    if wrong:
        raise ArgumentError(f"{min(wrong)} is for validation: calibrate on training scenes")
    results = json.loads(options.target.read_text(encoding="utf-8")) if options.target.exists() else {}
    results = {name: found for name, found in results.items() if name in matchkernel.available()}
    for name in options.only:
        results[name] = make(name, options, results.get(name, {}))
        print(line(name, results[name]), flush=True)
        write_json(options.target, dict(sorted(results.items())))
    total = sum(path.stat().st_size for path in SHIPPED.iterdir())
    print(f"all files of {SHIPPED.name}/: {total / 1e6:.2f} MB")


if __name__ == "__main__":
    run_script(main)
