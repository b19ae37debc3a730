"""The rules by which a claim is judged: verdicts, and the spread over trainings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
from results import FULL, SHORT, TASKS, Interval, TaskScore, has, read, score, signed

from matchkernel.evaluation.uncertainty import Spread

HOLDS, PART, MIXED, FAILS = "holds", "holds in part", "better in some, worse in others", "does not hold"
LEVEL, NOTHING = "level", "nothing to recover"
ONE_TRAINING = " for one training"  # after a verdict that stands on a model trained once
THESE_SEQUENCES = " on these sequences"  # after a verdict that other sequences may change
SAMPLES = 10_000  # of sequences
USUAL_SEEDS = 3  # what the page says of rows that say nothing else


@dataclass(frozen=True)
class Claim:
    """A claim with its verdict; `number` is that of the paper's statement, none of our own targets.

    `is_ours`: a test of more than the paper claims.
    """

    number: int | None
    text: str
    verdict: str  # one of those above, and what limits it
    figures: str
    rule: str
    is_ours: bool = False


def yes_or_no(holds: bool) -> str:
    """The verdict of a rule that can be met or not."""
    return HOLDS if holds else FAILS


def judged(comparisons: Sequence[tuple[Spread, Spread]]) -> str:
    """The verdict on (ours, theirs): holds where ours are better in all, level where nothing differs beyond chance."""
    won, lost = sum(better(a, b) for a, b in comparisons), sum(better(b, a) for a, b in comparisons)
    if won == len(comparisons):
        return HOLDS
    if won:
        return MIXED if lost else PART
    return FAILS if lost else LEVEL


def by_intervals(differences: Sequence[Interval]) -> str:
    """The verdict on differences that should be above 0, by the middle 95 % of their samples."""
    up, down = sum(gap.low > 0 for gap in differences), sum(gap.high < 0 for gap in differences)
    if up == len(differences):
        return HOLDS
    if up:
        return MIXED if down else PART
    return FAILS if down else LEVEL


def spread(a: Spread, b: Spread) -> float:
    """The larger standard deviation over seeds; where one was trained once, the largest of all."""
    if a.std is None or b.std is None:
        return max(a.std or 0.0, b.std or 0.0, largest_spread())
    return max(a.std, b.std)


@cache
def largest_spread() -> float:
    """The largest standard deviation over seeds on test among all descriptors."""
    names = {(e, job.rpartition("-seed")[0]) for e in (SHORT, FULL, "full_64", "confirmed") for job in read(e)}
    found = [score(*name, "test", task).std for name, task in product(sorted(names), TASKS) if has(*name, "test")]
    return max(std or 0.0 for std in found)


def better(a: Spread, b: Spread, low: bool = False) -> bool:
    """Whether a is better than b by more than the larger standard deviation over seeds."""
    return (b.mean - a.mean if low else a.mean - b.mean) > spread(a, b)


def keeps_sign(a: Spread, b: Spread) -> bool:
    """Whether a difference has its sign in the middle 95 % of bootstrap samples of the test sequences."""
    if not (isinstance(a, TaskScore) and isinstance(b, TaskScore)):
        return False
    differences = np.subtract(a.sequences, b.sequences)
    means = np.random.default_rng(0).choice(differences, (SAMPLES, len(differences))).mean(1)
    low, high = np.quantile(means, (0.025, 0.975))
    return bool(low > 0 if a.mean > b.mean else high < 0)


def on_sequences(verdict: str, pairs: Iterable[tuple[Spread, Spread]]) -> str:
    """A verdict that says where it holds on these sequences but not in their bootstrap samples."""
    return verdict + THESE_SEQUENCES if verdict == HOLDS and not all(keeps_sign(*pair) for pair in pairs) else verdict


def gaps(new: Sequence[Spread], old: Sequence[Spread]) -> str:
    """Differences of scores, with a star where other sequences would not change the sign, and the larger deviation."""
    pairs = list(zip(new, old, strict=True))
    return " / ".join(f"{signed(a.mean - b.mean)}{'*' * keeps_sign(a, b)} ({spread(a, b):.2f})" for a, b in pairs)


def fewest(*models: Sequence[Spread]) -> int:
    """How often the model that was trained least was trained."""
    return min(len(scores[0].values) for scores in models)


def seeds(trainings: int) -> str:
    """How often a model was trained."""
    return f"{trainings} seed{'s' * (trainings > 1)}"


def times(trainings: int) -> str:
    """How often a model was trained, after its name, where it is not as often as usual."""
    return f" ({trainings}×)" * (trainings != USUAL_SEEDS)


def limited(verdict: str, trainings: Mapping[str, int]) -> str:
    """A verdict that names what was trained once."""
    once = [name for name, count in trainings.items() if count == 1]
    return verdict + f", {' and '.join(once)}{ONE_TRAINING}" * (bool(once) and not verdict.startswith(LEVEL))


def with_trainings(claim: Claim, trainings: int) -> Claim:
    """A claim that says how often its models were trained, and that its verdict is for one training where it is."""
    words = [seeds(trainings)] * (trainings != USUAL_SEEDS)
    limit = ONE_TRAINING * (trainings == 1 and claim.verdict != LEVEL)
    return replace(claim, verdict=claim.verdict + limit, figures="; ".join([claim.figures, *words]))


def quoted(names: Sequence[str]) -> str:
    """Names of models in a sentence."""
    return ", ".join(f"`{name}`" for name in names) or "none"
