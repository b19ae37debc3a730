"""What shorter rows and rows in bytes lose: the HPatches tasks on the validation sequences.

python experiments/engines/short_rows.py SETS --calibrate fountain castle [--only NAME ...]

SETS holds the patch sets that paper/data.py cuts. Directions are chosen on training scenes, as `matchkernel reduce`
chooses them. Writes results/short_rows.json; what was measured for the same weights is not measured again.
"""

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "paper"))
from data import GROUPS, RESULTS, sequences_folder
from score import score_sequences

import matchkernel
from matchkernel.cli.console import run_script
from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.method import Method
from matchkernel.evaluation.smaller import shown_and_held_out
from matchkernel.model.describe import describe
from matchkernel.model.reduce import principal_directions
from matchkernel.model.weights import state_digest
from matchkernel.storage.arrays import rows_as_bytes, rows_from_bytes
from matchkernel.storage.files import write_json

TARGET = RESULTS / "short_rows.json"
TASKS = ("verification", "matching", "retrieval")
DIMENSIONS = (128, 64, 32)


def measure(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Scores by number of dimensions, as floats and as bytes."""
    model = matchkernel.load(name)
    shown, _, _ = shown_and_held_out([open_patch_set(options.sets / part) for part in options.calibrate], 32)
    directions = principal_directions(describe(shown.numpy(), model), max(DIMENSIONS))
    known: dict[str, np.ndarray] = {}
    found: dict[str, Any] = {}

    def rows_of(patches: np.ndarray) -> np.ndarray:
        key = hashlib.sha256(np.ascontiguousarray(patches)).hexdigest()
        if key not in known:
            known[key] = describe(patches, model, resize=True)
        return known[key]

    for D in DIMENSIONS:
        for kind in ("float32", "bytes"):

            def compute(patches: np.ndarray, _: Any, D: int = D, kind: str = kind) -> np.ndarray:
                rows = rows_of(patches)
                if rows.shape[1] > D:
                    rows = rows @ directions[:D].T.astype(np.float32)
                    rows /= np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
                return rows_from_bytes(rows_as_bytes(rows)) if kind == "bytes" else rows

            scores = score_sequences(Method(name, "l2", {}, compute), options.sets / sequences_folder("validation"))
            found[f"{D} {kind}"] = {task: scores[task] for task in TASKS}
            print(f"{name} {D} {kind}: " + " ".join(f"{100 * scores[task]:.2f}" for task in TASKS), flush=True)
    return {"weights": state_digest(model), "calibrate": options.calibrate, "scores": found}


def main() -> None:
    """Measure the models that are missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", type=Path)
    parser.add_argument("--calibrate", nargs="+", required=True, help="patch sets of training scenes")
    parser.add_argument("--only", nargs="*", default=matchkernel.available(), help="names of weights")
    options = parser.parse_args()
    wrong = set(options.calibrate) & set(GROUPS["validation"])
    if wrong:
        raise ArgumentError(f"{min(wrong)} is for validation: calibrate on training scenes")
    results = json.loads(TARGET.read_text(encoding="utf-8")) if TARGET.exists() else {}
    for name in options.only:
        if results.get(name, {}).get("weights") != state_digest(matchkernel.load(name)):
            results[name] = measure(name, options)
            write_json(TARGET, dict(sorted(results.items())))


if __name__ == "__main__":
    run_script(main)
