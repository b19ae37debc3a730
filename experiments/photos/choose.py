"""Score the candidates of a step of docs/photos.md, and write what was measured.

    python experiments/photos/choose.py keypoints DATA --weights BASELINES --workers 16

DATA holds `scenes/<scene>/` with images/ and sparse/ (see `matchkernel evaluate photos`). BASELINES holds other
people's weights (desdis-8.pth, desdis-16.pth, desdis-32.pth, keynet.pth, AffNet.pth, OriNet.pth) and further weights
of ours (*.safetensors, for the step `models`). A step reads what the steps before it have measured. What is in the file
of results is not measured again; `--seconds 540` starts nothing new after nine minutes. Steps: keypoints, filters,
models, frames, final; `final --split test`, once; and `students`, the small networks in the folder of weights.
"""

import argparse
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import candidates as tables
import numpy as np
from candidates import DESDIS, MOST_PAIRS, SCENES, SMALLER_DESDIS, Candidate
from measured import RESULTS, Measured, compact, read
from rules import calibrated_ratio, taken_filters, taken_model

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError
from matchkernel.evaluation.methods import MOVED
from matchkernel.evaluation.photos.evaluate import evaluate_photos
from matchkernel.evaluation.photos.scenes import EvaluationScene, read_scene
from matchkernel.evaluation.photos.work import MethodSpec, Protocol
from matchkernel.photos.describers import open_describer
from matchkernel.photos.filters import THRESHOLD

NETWORKS = ("keynet", "affnet", "orinet")  # fields of Detector that name a file of BASELINES
GUIDED = "guided:"  # filter of guided matching, with the ratio of the first matches
STEPS = ("keypoints", "filters", "models", "frames", "final", "students")


def main() -> None:
    """Score what is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("data", type=Path)
    parser.add_argument("--weights", type=Path, default=Path(), help="folder of weights")
    parser.add_argument("--split", choices=("validation", "test"), default="validation", help="of the step final")
    parser.add_argument("--groups", nargs="+", choices=("training", "validation"), help="only these groups of scenes")
    parser.add_argument("--most-pairs", type=int, default=MOST_PAIRS, help="of a training scene")
    parser.add_argument("--only", nargs="+", default=[""], help="only candidates whose name contains one of these")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder of results, read and written")
    parser.add_argument("--work", type=Path, help="folder that keeps features for a later run")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--batch", type=int, default=6, help="candidates between two writes of the results")
    parser.add_argument("--seconds", type=float, default=np.inf, help="start nothing new after so many")
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    name = "test" if (options.step, options.split) == ("final", "test") else options.step
    target = read(name, options.results)
    if name == "final":
        target.rows = {**read("frames", options.results).rows, **target.rows}  # which are rows of this table too
    score(candidates_of(options), target, options, end)
    if options.step == "filters" and time.monotonic() < end:
        score(combined(target, options), target, options, end)


def candidates_of(options: argparse.Namespace) -> list[Candidate]:
    """The candidates of a step; those of later steps follow from what the steps before took."""
    if options.step == "keypoints":
        return tables.keypoints()
    if options.step == "filters":
        return tables.filters(tables.MEASURED_AT)
    names = sorted(path.stem for path in options.weights.glob("*.safetensors"))
    if options.step == "models":
        return tables.models(names)
    if options.step == "students":
        return tables.students(taken_model(options.results).changes, names)
    if options.step == "frames":
        return tables.frames(taken_model(options.results))
    return final_rows(options.results)


def final_rows(results: Path | None = None) -> list[Candidate]:
    """The rows of the tables of all methods, with the limits that were calibrated on validation."""
    return tables.final(taken_model(results), taken_filters(results))


def combined(found: Measured, options: argparse.Namespace) -> list[Candidate]:
    """Filters that combine the ratio calibrated on the results so far with other tests."""
    keypoints = tables.MEASURED_AT
    ratios = {method: calibrated_ratio(found, method, keypoints) for method in tables.FILTERED}
    distances = {
        m: open_describer(m, engine="torch").settings[THRESHOLD] for m in ("sift", "rootsift", *tables.DECIDE_FILTERS)
    }
    return tables.combined_filters(keypoints, ratios, distances)


def score(wanted: list[Candidate], target: Measured, options: argparse.Namespace, end: float) -> None:
    """Score those of the candidates that have no results, several at a time, by group of scenes."""
    groups = [options.split] if options.step == "final" else options.groups or ("training", "validation")
    missing: dict[str, list[Candidate]] = defaultdict(list)
    for candidate in wanted:
        for group in groups:
            chosen = any(part in candidate.key for part in options.only)
            on_group = options.step == "final" or group in candidate.groups
            if chosen and on_group and not target.has(candidate.key, SCENES[group]):
                missing[group].append(candidate)
    for group, part in missing.items():
        scenes = [scene_of(options, name, group) for name in SCENES[group]]
        target.about = about(target, scenes)
        options.results.mkdir(parents=True, exist_ok=True)
        for start in range(0, len(part), options.batch):
            if time.monotonic() > end:
                print(f"time is up: {len(part) - start} candidates on {group} scenes are left", flush=True)
                return
            batch, began = part[start : start + options.batch], time.monotonic()
            specs = [spec_of(candidate, options) for candidate in batch]
            for candidate, result in zip(
                batch, evaluate_photos(scenes, specs, work=options.work, workers=options.workers), strict=True
            ):
                target.add(candidate.key, compact(result))
                target.about["versions"] = result["versions"]
                mean = 100 * result["mean"]["maa10"]["mean"]
                print(f"{group}: {candidate.key}: {mean:.1f}", flush=True)
            target.write()
            took = time.monotonic() - began
            print(f"{group}: {start + len(batch)} of {len(part)}, {took / len(batch):.0f} s each", flush=True)


def scene_of(options: argparse.Namespace, name: str, group: str) -> EvaluationScene:
    """A scene; of a training scene some of its pairs."""
    return read_scene(options.data / "scenes" / name, most_pairs=options.most_pairs if group == "training" else None)


def spec_of(candidate: Candidate, options: argparse.Namespace) -> MethodSpec:
    """What evaluate_photos is given."""
    method = candidate.method
    file = options.weights / f"{method}.safetensors"
    is_desdis = method in (DESDIS, *SMALLER_DESDIS)
    text = f"{MOVED[method]}:{options.weights / method}.pth" if is_desdis else str(file) if file.is_file() else method
    networks = {name: str(options.weights / candidate.changes[name]) for name in NETWORKS if name in candidate.changes}
    detector = replace(candidate.detector, **networks)
    if candidate.filter.startswith(GUIDED):
        first = f"ratio:{candidate.filter.removeprefix(GUIDED)}"
        return MethodSpec(text, detector, first, options.device, guided=True)
    return MethodSpec(text, detector, candidate.filter, options.device)


def about(target: Measured, scenes: list[EvaluationScene]) -> dict[str, Any]:
    """What was measured: the protocol and the number of images and pairs of each scene."""
    sizes = {scene.name: {"images": len(scene.images), "pairs": len(scene.pairs)} for scene in scenes}
    known = target.about.get("scenes", {})
    other = next((name for name in sizes if known.get(name, sizes[name]) != sizes[name]), None)
    if other is not None:
        raise FileError(f"{target.path}: was measured with {known[other]} of {other}, here are {sizes[other]}")
    return {**target.about, "protocol": vars(Protocol()), "scenes": {**known, **sizes}}


if __name__ == "__main__":
    run_script(main)
