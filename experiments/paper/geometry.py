"""Score models by FPR@95 on positives that geometry found, without training them: shipped weights, files, RootSIFT.

python experiments/paper/geometry.py SETS --models rootsift fc dual-paper [--groups validation] [--out FILE]

SETS/geometry is cut by data.py --geometry. Models of run.py are scored there, by `--scores geometry`.
"""

import argparse
import json
from pathlib import Path
from typing import Any

from data import GROUPS, RESULTS
from score import method_of, score_geometry

from matchkernel.cli.console import run_script
from matchkernel.errors import FileError
from matchkernel.evaluation.methods import Method
from matchkernel.geometry.sift import patch_sift, to_rootsift
from matchkernel.model.weights import load
from matchkernel.storage.files import replacing

ROOTSIFT = Method("rootsift", "l2", {}, lambda patches, progress: to_rootsift(patch_sift(patches)))


def measured(name: str, sets: Path, groups: list[str], device: str) -> dict[str, Any]:
    """The result of a model in the form of run.py."""
    scenes = {group: GROUPS[group] for group in groups}
    missing = [s for names in scenes.values() for s in names if not (sets / "geometry" / f"{s}.npz").exists()]
    if missing:
        raise FileError(f"{sets / 'geometry' / missing[0]}.npz: no such file; cut it with data.py --geometry")
    if name == "rootsift":
        return {"settings": {"seed": 0}, "scores": {"geometry": score_geometry(ROOTSIFT, sets / "geometry", scenes)}}
    model = load(name)
    scores = {"geometry": score_geometry(method_of(model, device), sets / "geometry", scenes)}
    training = {"seed": model.card.training.get("seed", 0), "sampling": model.card.training.get("sampling")}
    known = {"weights_sha256": model.card.sha256, "trained_on": model.card.trained_on, "settings": training}
    return {**known, "scores": scores}


def main() -> None:
    """Score each model; earlier results of the same file are kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--models", nargs="+", required=True, help="rootsift, names of the package's weights, files")
    parser.add_argument("--groups", nargs="+", default=["validation"], choices=list(GROUPS))
    parser.add_argument("--out", type=Path, default=RESULTS / "geometry.json")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    results = json.loads(options.out.read_text(encoding="utf-8")) if options.out.exists() else {}
    for name in options.models:
        results[Path(name).stem] = result = measured(name, options.sets, options.groups, options.device)
        with replacing(options.out) as part:
            part.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        shares = {
            f"{group}, {kind}": round(100 * found[kind]["fpr95"], 3)
            for group, found in result["scores"]["geometry"].items()
            for kind in ("ordinary", "hard")
        }
        print(name, shares, flush=True)


if __name__ == "__main__":
    run_script(main)
