"""Measure weights that were kept from an experiment, and lay the scores beside the others of its results.

python experiments/paper/measure.py EXPERIMENT JOB WEIGHTS --sets SETS [--scores test strips ...]

The scores of validation are computed where the results do not have them; those named by --scores, once, beside them.
"""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parent))

from jobs import EXPERIMENTS
from run import RESULTS, about, line, measure, write

from matchkernel.cli.console import run_script


def main() -> None:
    """Score one file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", choices=list(EXPERIMENTS))
    parser.add_argument("job")
    parser.add_argument("weights", type=Path)
    parser.add_argument("--sets", type=Path, required=True)
    parser.add_argument("--scores", nargs="*", default=[])
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    job = next((job for job in EXPERIMENTS[options.experiment] if job.name == options.job), None)
    if job is None:
        parser.error(f"{options.experiment} has no job {options.job}")
    path = RESULTS / f"{options.experiment}.json"
    results = json.loads(path.read_text()) if path.exists() else {}
    trained = options.weights.with_suffix(".json")  # by run.py --keep
    facts = json.loads(trained.read_text()) if trained.exists() else {}
    trained_as = about(job, options.weights)
    there = results.setdefault(job.name, {**trained_as, **facts, "scores": {}})
    if any(there.get(key, value) != value for key, value in trained_as.items()):
        parser.error(f"{options.weights} is not the model whose results stand under {job.name} in {path}")
    start = time.perf_counter()
    wanted = replace(job, scores=tuple(options.scores))
    found = measure(wanted, options.sets, options.device, options.weights, there["scores"])
    there["scores"] = {**found, **there["scores"]}
    there["scoring_seconds"] = round(time.perf_counter() - start, 1)
    write(path, results)
    print(line(job.name, there))


if __name__ == "__main__":
    run_script(main)
