"""The rules by which a claim is judged: verdicts, the spread over seeds, and which trainings stand for a descriptor."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

import results
from results import TASKS, Interval, has, read, score, signed

from matchkernel.evaluation.spread import Spread

HOLDS, PART, MIXED, FAILS = "holds", "holds in part", "better in some, worse in others", "does not hold"
LEVEL, LATER, NOTHING = "level", "not measured yet", "nothing to recover"
ONCE, ONCE_IN_PART = "holds for one training", "holds in part for one training"
USUAL_SEEDS = 2  # what the page says of rows that say nothing else
FULL, SHORT = "full", "descriptors"  # 39,060 and 10,000 updates


@dataclass(frozen=True)
class Claim:
    """A claim with its verdict; `number` is that of the paper's statement, none of our own targets."""

    number: int | None
    text: str
    verdict: str  # one of those above
    figures: str
    rule: str

    @property
    def holds(self) -> bool:
        """Whether it holds as it is stated."""
        return self.verdict == HOLDS


def plain(holds: bool) -> str:
    """The verdict of a rule that says yes or no."""
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
    known = [side.std for side in (a, b) if side.std is not None]
    return max(known) if len(known) == len((a, b)) else max(*known, usual_spread(), 0.0)


@cache
def usual_spread() -> float:
    """The largest standard deviation over seeds on test among all descriptors."""
    known = [e for e in (SHORT, FULL, "confirmed") if (results.RESULTS / f"{e}.json").exists()]
    names = {(e, job.rpartition("-seed")[0]) for e in known for job in read(e)}
    found = [score(*name, "test", task).std for name, task in product(sorted(names), TASKS) if has(*name, "test")]
    return max(std or 0.0 for std in found)


def better(a: Spread, b: Spread, low: bool = False) -> bool:
    """Whether a is better than b by more than the larger standard deviation over seeds."""
    return (b.mean - a.mean if low else a.mean - b.mean) > spread(a, b)


def gaps(new: Sequence[Spread], old: Sequence[Spread]) -> str:
    """Differences of scores, with the larger standard deviation in brackets."""
    return " / ".join(f"{signed(a.mean - b.mean)} ({spread(a, b):.2f})" for a, b in zip(new, old, strict=True))


def once(verdict: str, seeds: int) -> str:
    """A verdict, weakened where it stands on one training."""
    return {PART: ONCE_IN_PART}.get(verdict, ONCE) if seeds == 1 and verdict.startswith(HOLDS) else verdict


def seeds_said(seeds: int) -> list[str]:
    """The words for a number of seeds that is not the usual one."""
    return [f"{seeds} seed{'s' * (seeds > 1)}"] if seeds != USUAL_SEEDS else []


class Trained:
    """Descriptors of the HPatches experiment on test: at the paper's length if all that a claim needs are there.

    Args:
        names: what a claim needs.
        beside: others, compared as far as they are there.
    """

    def __init__(self, *names: str, beside: Sequence[str] = ()) -> None:
        self.experiment, self.names = SHORT, names
        if all(has(FULL, f"{name}-n32", "test") for name in names):
            self.experiment = FULL
        every = (*names, *beside)
        self.jobs = {name: f"{name}-n32" for name in every if has(self.experiment, f"{name}-n32", "test")}
        self.missing = [name for name in every if name not in self.jobs]
        self.three = {
            name: [score(self.experiment, job, "test", task) for task in TASKS] for name, job in self.jobs.items()
        }

    @property
    def seeds(self) -> int:
        """How often the one that was trained least was trained, of those that a claim needs."""
        return min((self.trainings(name) for name in self.names if name in self.three), default=0)

    def trainings(self, name: str) -> int:
        """How often a descriptor was trained."""
        return len(self.three[name][0].values)

    def verdict(self, found: str) -> str:
        """A verdict, weakened where something that it needs was trained once."""
        return once(found, self.seeds)

    @property
    def note(self) -> str:
        """What must be said of the length and the number of seeds."""
        words = ["10,000 updates"] * (self.experiment == SHORT) + seeds_said(self.seeds)
        less = [name for name in self.three if self.trainings(name) < self.seeds]
        words += [f"{len(less)} others: {min(map(self.trainings, less))} seed"] if less else []
        words += [f"without {names(self.missing)}"] if self.missing else []
        return f" ({', '.join(words)})" if words else ""

    def pairs(self, a: str, b: str) -> list[tuple[Spread, Spread]]:
        """The three tasks of two descriptors."""
        return list(zip(self.three[a], self.three[b], strict=True))


def later(number: int, text: str, what: str, rule: str) -> Claim:
    """A claim whose results are not there."""
    return Claim(number, text, LATER, what, rule)


def names(found: Sequence[str]) -> str:
    """Names of models in a sentence."""
    return ", ".join(f"`{name}`" for name in found) or "none"
