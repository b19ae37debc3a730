"""What a claim is, and how numbers of several seeds decide it."""

from collections.abc import Iterable
from dataclasses import dataclass

from gather import TASKS, Everything, Spread, by_name, score, signed

HOLDS, FAILS, OPEN = "holds", "does not hold here", "not measured yet"
ASKED_ABOVE_FC = 0.05  # of the default, in matching on test
Three = list[Spread | None]  # verification, matching, retrieval


@dataclass(frozen=True)
class Claim:
    """A claim with its verdict."""

    number: str  # of spec §6
    text: str  # what the paper says
    rule: str  # decides whether it holds here
    verdict: str
    figures: str  # ours


def better(a: Spread | None, b: Spread | None, low: bool = False) -> bool | None:
    """Whether a is better than b by more than the larger spread over seeds; None unless both have two seeds."""
    if a is None or b is None or a.std is None or b.std is None:
        return None
    return (b.mean - a.mean if low else a.mean - b.mean) > max(a.std, b.std)


def above(a: Spread | None, b: Spread | None, margin: float) -> bool | None:
    """Whether the mean of a is above that of b by more than a margin."""
    return None if a is None or b is None else a.mean - b.mean > margin


def verdict(answers: Iterable[bool | None]) -> str:
    """Fails as soon as one does; holds if all do; open while one is not known."""
    known = list(answers)
    return FAILS if False in known else OPEN if not known or None in known else HOLDS


def on_test(everything: Everything, name: str, size: int = 32) -> Three:
    """The three tasks of a descriptor on the test sequences."""
    runs = by_name(everything.get("descriptors", {})).get(f"{name}-n{size}", [])
    return [score(runs, "test", task) for task in TASKS]


def say(**spreads: Three) -> str:
    """Names with their three scores, those that are there."""
    there = {name: three for name, three in spreads.items() if any(three)}
    return "; ".join(f"{name} {' / '.join(str(s or '–') for s in three)}" for name, three in there.items())


def say_test(everything: Everything, *names: str) -> str:
    """Descriptors at N = 32 with their scores on the test sequences."""
    return say(**{f"`{name}`": on_test(everything, name) for name in names})


def gains(new: Three, old: Three) -> str:
    """Differences of three scores in percent."""
    pairs = zip(new, old, strict=True)
    return " / ".join("–" if a is None or b is None else signed(a.mean - b.mean) for a, b in pairs)
