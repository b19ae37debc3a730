"""Score third-party descriptors on the patches of the experiments; parts with results are not scored again.

python experiments/paper/baselines.py --sets SETS --weights FOLDER [--only NAME...] [--parts PART...]

Results go to `<results>/baselines.json` after every part. The sets are cut by data.py; mkd learns its whitening on the
patches of group A, as the models of the experiments do.
"""

import argparse
import json
import platform
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from data import GROUPS, RESULTS, sequences_folder
from run import write
from score import score_sets, score_strips, short_hpatches

from matchkernel.cli.console import run_script
from matchkernel.data.patch_set import join_patch_sets, open_patch_set, open_test_sets, patches_sha256
from matchkernel.evaluation.baselines.kornia import mkd
from matchkernel.evaluation.hpatches.evaluate import evaluate_hpatches
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.methods import MOVED, baseline

GROUP = "A"  # mkd learns its whitening on it
FILES = {
    "mkd-liberty": "mkd-concat-64.pth",
    "tfeat": "tfeat-liberty.params",
    "hardtfeat": "HardTFeat.pth",
    "deepdesc": "deepdesc-split4.t7",
    "binboost": "binboost-256.bin",
    "desdis-8": "desdis-8.pth",
    "desdis-16": "desdis-16.pth",
    "desdis-32": "desdis-32.pth",
}
# Sets of PhotoTourism, by the name of the file or its authors' page; not known for the others.
TRAINED_ON = {"tfeat": "liberty", "deepdesc": "liberty, notredame, yosemite"}
NAMES = ("sift", "rootsift", "orb", "brief", "vgg", "beblid", "teblid", "mkd", *FILES)


def method_of(name: str, sets: Path, weights: Path) -> Method:
    """A baseline with its weights, or its whitening learned here."""
    if name == "mkd":
        return own_mkd(sets)
    file = weights / FILES[name] if name in FILES else None
    return baseline(MOVED.get(name, name), weights=file, trained_on=TRAINED_ON.get(name))


def own_mkd(sets: Path) -> Method:
    """MKD with its whitening learned on all patches of group A."""
    joined = join_patch_sets(GROUP, [open_patch_set(sets / scene) for scene in GROUPS[GROUP]])
    found = mkd(joined.patches)
    scenes, hashes = joined.manifest["joined"], joined.manifest["sha256"]["patches.npy"]
    settings = found.facts["settings"]
    learned_on = f"{settings['whitening learned on']}, all of group {GROUP}"
    facts = {
        **found.facts,
        "settings": {**settings, "whitening learned on": learned_on},
        "train_set": ", ".join(scenes),
        "training_sets": [{"name": s, "patches_sha256": h} for s, h in zip(scenes, hashes, strict=True)],
    }
    return replace(found, facts=facts, trained_on=frozenset(scenes), trained_sha256=patches_sha256(joined))


def score_scenes(method: Method, sets: Path) -> dict[str, Any]:
    """The validation scenes."""
    return score_sets(method, open_test_sets([(None, sets / scene) for scene in GROUPS["validation"]]))


def score_split(method: Method, folder: Path) -> dict[str, Any]:
    """score.score_sequences with tie-safe values: bits have many ties, which the official retrieval counts as right."""
    (result,) = evaluate_hpatches(method, folder)
    safe = "ap_trapezoid_tie_safe"
    tie_safe = {
        "verification": result["verification"]["mean"][safe],
        "matching": result["matching"]["mean"]["all"][safe],
        "retrieval": result["retrieval"]["python"]["mean"]["20000"][safe],
    }
    return {**short_hpatches(result), "tie_safe": tie_safe, "warnings": result["warnings"]}


PARTS: dict[str, Callable[[Method, Path], dict[str, Any]]] = {
    "scenes": score_scenes,
    "validation": lambda method, sets: score_split(method, sets / sequences_folder("validation")),
    "strips": lambda method, sets: score_strips(method, sets / "hpatches_sample"),
    "test": lambda method, sets: score_split(method, sets / sequences_folder("test")),
}


def entry_of(method: Method, before: dict[str, Any] | None) -> dict[str, Any]:
    """The result of a baseline so far; results of other settings are refused."""
    entry = {
        **method.facts,
        "distance": method.distance,
        "hardware": platform.machine(),
        "torch": torch.__version__,
        "scores": {},
        "seconds": 0.0,
    }
    if before is None:
        return entry
    other = [key for key in entry if key not in ("scores", "seconds") and entry[key] != before.get(key)]
    if other:
        raise SystemExit(f"{method.name}: the stored scores have another {', '.join(other)}")
    return before


def line(name: str, part: str, scores: dict[str, Any], seconds: float) -> str:
    """A part as one line."""
    if part == "scenes":
        texts = [f"{s} hard FPR {100 * v['fpr95']['hard']:.2f} mAP {100 * v['map']:.2f}" for s, v in scores.items()]
    else:
        texts = [f"{key} {100 * value:.2f}" for key, value in scores.items() if isinstance(value, float)]
    return f"{name:12s} {part:10s} {'  '.join(texts)}  ({seconds:.0f} s)"


def main() -> None:
    """Score what has no results yet."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--weights", type=Path, required=True, help=f"folder of {', '.join(FILES.values())}")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--only", nargs="+", choices=NAMES, default=NAMES, help="only these baselines")
    parser.add_argument("--parts", nargs="+", choices=list(PARTS), default=list(PARTS), help="only these scores")
    options = parser.parse_args()
    path = options.results / "baselines.json"
    results: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for name in options.only:
        left = [part for part in options.parts if part not in results.get(name, {}).get("scores", {})]
        if not left:
            continue
        method = method_of(name, options.sets, options.weights)
        entry = entry_of(method, results.get(name))
        for part in left:
            start = time.perf_counter()
            entry["scores"][part] = PARTS[part](method, options.sets)
            seconds = time.perf_counter() - start
            entry["seconds"] = round(entry["seconds"] + seconds, 1)
            results[name] = entry
            write(path, {key: results[key] for key in NAMES if key in results})
            print(line(name, part, entry["scores"][part], seconds), flush=True)


if __name__ == "__main__":
    run_script(main)
