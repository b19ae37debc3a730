"""Choose the settings of every variant on validation; test scores are not read.

python experiments/paper/choose.py            # the table of candidates, the chosen one marked
python experiments/paper/choose.py --names    # what to train again, for lack of test scores

Candidates of a variant and s are its models of `full` (preset `paper`) and of `fair` (dropout 0.1 for all, kappa 1 and
8). The highest mean over the three tasks on validation and over three seeds wins; one of `full` wins a tie to four
digits. A variant of which a candidate lacks a seed is not decided.
"""

import argparse
import json
import sys
from pathlib import Path
from statistics import fmean
from typing import Any

from matchkernel.cli.console import run_script

RESULTS = Path(__file__).parents[1] / "results"
SEEDS, TASKS = 3, ("verification", "matching", "retrieval")
ENCODED = {
    f"{variant}-s{s}": (f"full/{variant}-s{s}-n32", f"fair/{variant}-s{s}-kappa1", f"fair/{variant}-s{s}-kappa8")
    for variant in ("cartesian", "polar", "combined", "dual")
    for s in (1, 2)
}
CANDIDATES = {
    "fc": ("full/fc-n32", "fair/fc"),
    **ENCODED,
    **{name: (f"full/{name}-n32", f"fair/{name}") for name in ("sum", "sum-batch", "sum-m", "sum-m-plain", "concat")},
}


def validation(results: dict[str, dict[str, Any]], source: str) -> list[float]:
    """The mean of the three tasks on validation, in percent, of every training of FILE/JOB."""
    file, job = source.split("/")
    found = [results[file].get(f"{job}-seed{seed}") for seed in range(SEEDS)]
    return [100 * fmean(model["scores"]["validation"][task] for task in TASKS) for model in found if model]


def chosen(results: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Variant -> the chosen FILE/JOB, of the variants whose candidates all have their trainings."""
    means: dict[str, dict[str, float]] = {}
    for variant, sources in CANDIDATES.items():
        scores = {source: validation(results, source) for source in sources}
        if all(len(values) == SEEDS for values in scores.values()):
            means[variant] = {source: round(fmean(values), 4) for source, values in scores.items()}
    return {variant: max(own, key=own.__getitem__) for variant, own in means.items()}


def untested(results: dict[str, dict[str, Any]], variant: str, winner: str) -> list[str]:
    """The candidates of a variant without test scores, if its winner has none: all of them are trained anew."""
    found = [
        (source, f"{job}-seed{seed}")
        for source in CANDIDATES[variant]
        for file, job in [source.split("/")]
        for seed in range(SEEDS)
        if "test" not in results[file][f"{job}-seed{seed}"]["scores"]
    ]
    return [name for _, name in found] if winner in dict(found) else []


def read_results(folder: Path) -> dict[str, dict[str, Any]]:
    """The results of both experiments; none where there is no file yet."""
    paths = {name: folder / f"{name}.json" for name in ("full", "fair")}
    return {name: json.loads(path.read_text()) if path.exists() else {} for name, path in paths.items()}


def main() -> None:
    """Print the choice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--names", action="store_true", help="only what to train again, for lack of test scores")
    options = parser.parse_args()
    results = read_results(options.results)
    winners = chosen(results)
    if options.names:
        print(" ".join(name for variant, winner in winners.items() for name in untested(results, variant, winner)))
        return
    for variant, sources in CANDIDATES.items():
        for source in sources:
            values = validation(results, source)
            mark = "  <- chosen" if winners.get(variant) == source else ""
            print(f"{variant:14} {source:30} {' '.join(f'{value:.2f}' for value in values) or '-'}{mark}")
    missing = [variant for variant in CANDIDATES if variant not in winners]
    if missing:
        print(f"not decided: {', '.join(missing)}", file=sys.stderr)


if __name__ == "__main__":
    run_script(main)
