"""How often the rules of verdicts.py say what, for models that are equal and for models that differ.

python experiments/paper/verdict_rates.py [--times 200]    # writes results/verdict_rates.json

Scores are made with the noise of the stored ones: normal, with their covariance over units (so that units differ alike
for all models, and models by unit) and over trainings. The truth is set: ours differ from the others by 0 or by four
margins, in all scores or in the first alone; once more with a hundredth of the noise, a quarter as often.
"""

import argparse
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from verdicts import CLAIMS, RESULTS, Blocks, Values, decide, family_of, margin_of, values_of

from matchkernel.cli.console import run_script
from matchkernel.storage.files import write_json

Key = tuple[str, str]  # source, score
MANY = 4  # margins
SCENARIOS = {  # difference in margins, whether in all scores
    "better": (MANY, True),
    "better in one score": (MANY, False),
    "equal": (0, True),
    "worse": (-MANY, True),
}
NOISES = {"": 1.0, ", precise": 0.01}  # as stored, and of far more photos and trainings
DRAWS = 400


def made(values: Values, truth: Mapping[Key, float], noise: float, random: np.random.Generator) -> dict[Key, Blocks]:
    """Scores of the shapes of `values` whose means over all units and trainings are `truth`."""
    means = {key: np.concatenate([block.mean(0) for block in blocks]) for key, blocks in values.items()}
    units = len(next(iter(means.values())))
    mix = random.normal(size=(units, units)) / np.sqrt(max(units - 1, 1))
    weights: dict[str, list[np.ndarray]] = {}
    found = {}
    for key, blocks in values.items():
        counts = [len(block) for block in blocks]
        if key[0] not in weights:  # the same trainings for all scores of a model
            weights[key[0]] = [random.normal(size=(t, t)) / np.sqrt(max(t - 1, 1)) for t in counts]
        own = truth[key] + noise * mix @ (means[key] - means[key].mean())
        starts = np.cumsum([0, *(block.shape[1] for block in blocks)])
        found[key] = [
            own[start : start + block.shape[1]] + noise * weight @ (block - block.mean(0))
            for start, block, weight in zip(starts, blocks, weights[key[0]], strict=False)
        ]
    return found


def truth_of(name: str, values: Values, difference: float, in_all: bool) -> dict[Key, float]:
    """The means for which every comparison of a claim, or those of its first score, has this value."""
    truth = dict.fromkeys(values, 0.0)
    if ("fc", "ordinary") in truth:  # the margin is a share of it
        level = float(np.concatenate([block.mean(0) for block in values["fc", "ordinary"]]).mean())
        truth = dict.fromkeys(values, level)
    comparisons = CLAIMS[name].comparisons
    for c in comparisons:
        (ours, weight), *_ = c.weights
        wanted = difference if in_all or c.score == comparisons[0].score else 0.0
        others = sum(w * truth[source, c.score] for source, w in c.weights[1:])
        truth[ours, c.score] = (wanted + c.threshold - others) / weight
    return truth


def rates(name: str, times: int) -> dict[str, dict[str, float]]:
    """Scenario -> verdict -> share."""
    values = values_of([c for other in family_of(name) for c in CLAIMS[other].comparisons])
    margin, found = margin_of(CLAIMS[name], values), {}
    for scenario, (difference, in_all) in SCENARIOS.items():
        truth = truth_of(name, values, difference * margin, in_all)
        for suffix, noise in NOISES.items():
            random, count = np.random.default_rng(0), times if noise == 1 else times // 4
            said = Counter(decide(name, made(values, truth, noise, random), DRAWS, seed)[0] for seed in range(count))
            found[scenario + suffix] = {verdict: said[verdict] / count for verdict in sorted(said)}
    return found


def main() -> None:
    """Write and print the rates of every row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=200, help="made experiments of each row and scenario")
    parser.add_argument("--out", type=Path, default=RESULTS / "verdict_rates.json")
    options = parser.parse_args()
    found = {}
    for name in CLAIMS:
        found[name] = rates(name, options.times)
        print(name, found[name], flush=True)
    write_json(options.out, {"times": options.times, "draws": DRAWS, "rates": found})


if __name__ == "__main__":
    run_script(main)
