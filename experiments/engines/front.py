"""Microseconds per patch of small networks, of the shipped models and of others, beside their matching on validation.

python experiments/engines/front.py SETS --weights WEIGHTS/students --calibrate fountain castle --others BASELINES

One thread, processor time, methods in turns. Ours run in ONNX Runtime, in float32 and in int8; DesDis and HardNet in
torch, and RootSIFT in OpenCV, as they are published. Matching of our models is in results/{students,ship,poses}.json;
that of DesDis is scored here. Writes results/front.json, which the chart of docs/models.md is drawn from.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))
sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from data import RESULTS, sequences_folder
from score import score_sequences
from timing import interleaved_medians, processor, using_threads, versions

import matchkernel
from matchkernel.cli.console import run_script
from matchkernel.data.patch_set import open_patch_set
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.methods import MOVED, baseline
from matchkernel.evaluation.smaller import export_int8
from matchkernel.model.engines.choose import open_engine
from matchkernel.storage.files import write_json

TARGET = RESULTS / "front.json"
PATCHES, REPEATS = 128, 9
DESDIS = ("desdis-8", "desdis-16", "desdis-32")


def main() -> None:
    """Measure all of them in one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--weights", type=Path, required=True, help="folder of small networks")
    parser.add_argument("--calibrate", nargs="+", required=True, help="patch sets of training scenes")
    parser.add_argument("--others", type=Path, required=True, help="folder of desdis-8.pth, ...")
    options = parser.parse_args()
    known = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {"matching": {}}
    patches = np.random.default_rng(0).integers(0, 256, (PATCHES, 32, 32), dtype=np.uint8)
    with using_threads(1), tempfile.TemporaryDirectory() as folder:
        jobs = {**own_jobs(options, patches, Path(folder)), **other_jobs(options, patches)}
        seconds = interleaved_medians(jobs, REPEATS, time.process_time)
    found = {name: round(1e6 * taken / PATCHES, 1) for name, taken in seconds.items()}
    for name, taken in found.items():
        print(f"{name:28} {taken:8.1f} us", flush=True)
    matching = {name: known["matching"].get(name) or matching_of(name, options) for name in DESDIS}
    about = {"processor": processor(), "versions": versions(), "cores": os.cpu_count()}
    write_json(TARGET, {**about, "us": found, "matching": matching})


def own_jobs(options: argparse.Namespace, patches: np.ndarray, folder: Path) -> dict[str, Callable[[], object]]:
    """Our models in both engines; int8 of those outside the package is calibrated here."""
    sets = [open_patch_set(options.sets / name) for name in options.calibrate]
    students = sorted(str(path) for path in options.weights.glob("*.safetensors") if "teacher" not in path.name)
    jobs: dict[str, Callable[[], object]] = {}
    for name in [*matchkernel.available(), *students]:
        model = matchkernel.load(name)
        engines = {"onnx": "onnx", "onnx-int8": "onnx-int8"}
        if name in students:
            engines["onnx-int8"] = str(folder / f"{model.name}.onnx")
            export_int8(model, engines["onnx-int8"], sets)
        for engine, source in engines.items():
            runner = open_engine(model, source, size=32)
            jobs[f"{model.name}, {engine}"] = partial(matchkernel.describe, patches, model, engine=runner)
    return jobs


def other_jobs(options: argparse.Namespace, patches: np.ndarray) -> dict[str, Callable[[], object]]:
    """Others, as they are published."""
    import kornia

    hardnet, floats = kornia.feature.HardNet(pretrained=False).eval(), torch.from_numpy(patches)[:, None].float()

    @torch.inference_mode()
    def describe_by_hardnet() -> None:
        for piece in floats.split(32):
            hardnet(piece)

    jobs: dict[str, Callable[[], object]] = {"kornia HardNet": describe_by_hardnet}
    jobs["rootsift"] = partial(baseline("rootsift").describe, patches)
    return jobs | {name: partial(desdis(name, options).describe, patches) for name in DESDIS}


def desdis(name: str, options: argparse.Namespace) -> Method:
    """One of DESDIS."""
    return baseline(MOVED[name], weights=options.others / f"{name}.pth")


def matching_of(name: str, options: argparse.Namespace) -> float:
    """Matching mAP of another method on the validation sequences."""
    found = score_sequences(desdis(name, options), options.sets / sequences_folder("validation"))
    return float(found["matching"])


if __name__ == "__main__":
    run_script(main)
