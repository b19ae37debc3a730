"""How often the rules of verdicts.py say what, for models that are equal and for models that differ.

python experiments/paper/verdict_rates.py [--times 400] [--only ROW ...]    # writes results/verdict_rates.json

Scores are made with the noise of the stored ones: normal, with their covariance over units (so that units differ alike
for all models, and models by unit) and over trainings. The truth is set: ours differ from the others by 0, one or four
margins, in all scores or in the first alone; once more with a hundredth of the noise, a quarter as often.
"""

import argparse
import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from verdicts import (
    CLAIMS,
    EQUAL,
    FAILS,
    HOLDS,
    OPEN,
    PART,
    RESULTS,
    Blocks,
    Claim,
    Values,
    decide,
    family_of,
    margin_of,
    mean_of,
    values_of,
)

from matchkernel.cli.console import run_script
from matchkernel.storage.files import write_json

Key = tuple[str, str]  # source, score
MANY = 4  # margins
SCENARIOS = {  # difference in margins, whether in all scores
    "better": (MANY, True),
    "a margin better": (1, True),
    "better in one score": (MANY, False),
    "equal": (0, True),
    "a margin worse": (-1, True),
    "worse": (-MANY, True),
}
NOISES = {"": 1.0, ", precise": 0.01}  # as stored, and of far more photos and trainings
DRAWS = 400


def made(values: Values, truth: Mapping[Key, float], noise: float, random: np.random.Generator) -> dict[Key, Blocks]:
    """Scores of the shapes of `values` whose means over all units and trainings are `truth`."""
    means = {key: mean_of(blocks) for key, blocks in values.items()}
    units = len(next(iter(means.values())))
    mix = random.normal(size=(units, units)) / np.sqrt(max(units - 1, 1))
    weights: dict[str, list[np.ndarray]] = {}
    found = {}
    for key, blocks in values.items():
        counts = [len(block) for block in blocks]
        if key[0] not in weights:  # the same trainings for all scores of a model
            weights[key[0]] = [random.normal(size=(t, t)) / np.sqrt(max(t - 1, 1)) for t in counts]
        own = truth[key] + noise * mix @ (means[key] - means[key].mean())
        found[key] = [
            own / len(blocks) + noise * weight @ (block - block.mean(0))
            for block, weight in zip(blocks, weights[key[0]], strict=True)
        ]
    return found


def truth_of(name: str, values: Values, difference: float, in_all: bool) -> dict[Key, float]:
    """The means for which every comparison of a claim, or those of its first score, differs so much from equality."""
    equal = CLAIMS[name].equal * margin_of(CLAIMS[name], values)
    truth = dict.fromkeys(values, 0.0)
    if ("fc", "ordinary") in truth:  # the margin is a share of it
        truth = dict.fromkeys(values, float(mean_of(values["fc", "ordinary"]).mean()))
    comparisons = CLAIMS[name].comparisons
    for c in comparisons:
        ours, weight = c.weights[0]
        wanted = equal + (difference if in_all or c.score == comparisons[0].score else 0.0)
        others = sum(w * truth[source, c.score] for source, w in c.weights[1:])
        truth[ours, c.score] = (wanted + c.threshold - others) / weight
    return truth


def right_verdicts(claim: Claim, scenario: str) -> tuple[str, ...]:
    """What may be said in a scenario where the noise is that of the stored scores."""
    difference, in_all = SCENARIOS[scenario]
    if claim.rule != "better":
        gain = -difference if claim.rule == "no gain" else difference
        return {MANY: (HOLDS,), 1: (HOLDS, OPEN), 0: (HOLDS, OPEN), -1: (OPEN, FAILS), -MANY: (FAILS,)}[gain]
    if not in_all and len({c.score for c in claim.comparisons}) > 1:
        return (PART,)
    return {MANY: (HOLDS,), 1: (HOLDS, OPEN), 0: (EQUAL, OPEN), -1: (FAILS, OPEN), -MANY: (FAILS,)}[difference]


def clear_scenarios(claim: Claim) -> list[str]:
    """Those in which precise data decide: not those at the edge of a margin."""
    edge = {"not worse": -1, "no gain": 1}.get(claim.rule)
    return [name for name, (difference, _) in SCENARIOS.items() if difference != edge]


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
    parser.add_argument("--times", type=int, default=400, help="made experiments of each row and scenario")
    parser.add_argument("--out", type=Path, default=RESULTS / "verdict_rates.json")
    parser.add_argument("--only", nargs="+", choices=list(CLAIMS), help="these rows; the others stay as they are")
    options = parser.parse_args()
    found = json.loads(options.out.read_text(encoding="utf-8"))["rates"] if options.only else {}
    for name in options.only or CLAIMS:
        found[name] = rates(name, options.times)
        print(name, found[name], flush=True)
    write_json(options.out, {"times": options.times, "draws": DRAWS, "rates": found})


if __name__ == "__main__":
    run_script(main)
