"""The paper's claims, one by one: what was measured here, and a stated rule that decides whether each holds."""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from choices import kept, tolerance_runs
from gather import TASKS, Everything, Spread, by_name, parameters, score, signed
from jobs import DESCRIPTORS
from tables import transfer_mean, transfer_runs

from matchkernel.counting import CountedRow, table_1

HOLDS, FAILS, OPEN = "holds", "does not hold here", "not measured yet"
MEMORY = Path(__file__).parents[2] / "benchmarks" / "results" / "aggregation_memory.json"
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


def verdict(answers: Iterable[bool | None]) -> str:
    """Holds if all do; open while one is not known."""
    known = list(answers)
    return OPEN if not known or None in known else HOLDS if all(known) else FAILS


def on_test(everything: Everything, name: str, size: int = 32) -> Three:
    """The three tasks of a descriptor on the test sequences."""
    runs = by_name(everything.get("descriptors", {})).get(f"{name}-n{size}", [])
    return [score(runs, "test", task) for task in TASKS]


def say(**spreads: Three) -> str:
    """Names with their three scores, those that are there."""
    there = {name: three for name, three in spreads.items() if any(three)}
    return "; ".join(f"{name} {' / '.join(str(s or '–') for s in three)}" for name, three in there.items())


def _named(everything: Everything, *names: str) -> str:
    return say(**{f"`{name}`": on_test(everything, name) for name in names})


def parameter_claims(everything: Everything) -> list[Claim]:
    """Counted from live models."""
    rows = _table_1()
    free = [row for row in rows if row.variant != "fc"]
    same, independent = sum(row.agrees for row in rows), sum(row.independent_of_size for row in free)
    counts = f"{same} of {len(rows)} rows equal; `dual` s=2 {_total('dual', 2):,}, `fc` {_total('fc'):,}"
    return [
        Claim("1", "Parameter counts of Table 1", "every row equal", verdict([same == len(rows)]), counts),
        Claim(
            "1",
            "The count does not depend on the patch size",
            "as many at 2N, all spatial encodings",
            verdict([independent == len(free)]),
            f"{independent} of {len(free)} equal; `fc` grows to {_total('fc', N=64):,} at N = 64",
        ),
    ]


@cache
def _table_1() -> list[CountedRow]:
    return table_1()


def _total(variant: str, s: int | None = None, N: int = 32) -> int:
    configuration = {"variant": variant, "patch_size": N} | ({} if s is None else {"s": s})
    return parameters({"configuration": configuration}) or 0


def transfer_claims(everything: Everything) -> list[Claim]:
    """Table 2's protocol, mean of the six combinations; the paper knows no hard pairs."""
    return [
        *_transfer_claims(
            everything,
            "ordinary",
            "; paper, on its sets: 1.36 ± .01 against 1.43 ± .02",
            "; paper, on its sets: 1.53 ± .03",
        ),
        *_transfer_claims(everything, "hard", "", ""),
    ]


def _transfer_claims(everything: Everything, pairs: str, two_in_paper: str, one_in_paper: str) -> list[Claim]:
    runs = transfer_runs(everything)
    fc, one, two = (transfer_mean(runs.get(name, []), ("fpr95", pairs)) for name in ("fc", "dual-s1", "dual-s2"))
    figures = "; ".join(f"`{n}` {v}" for n, v in (("fc", fc), ("dual-s1", one), ("dual-s2", two)) if v is not None)
    level = one.mean <= 1.1 * fc.mean if one is not None and fc is not None else None
    return [
        Claim(
            "2",
            f"`dual` s=2 has a lower FPR@95 than `fc` ({pairs} pairs{two_in_paper})",
            "lower beyond the spread",
            verdict([better(two, fc, low=True)]),
            figures,
        ),
        Claim(
            "2",
            f"`dual` s=1 about equals `fc` with fewer parameters ({pairs} pairs{one_in_paper})",
            "at most a tenth above `fc`, fewer parameters",
            verdict([level, _total("dual", 1) < _total("fc")]),
            figures,
        ),
    ]


def sum_and_concat_claims(everything: Everything) -> list[Claim]:
    """HPatches tasks without position (`sum`), and with all positions kept apart (`concat`)."""
    three = {name: on_test(everything, name) for name in DESCRIPTORS}
    others = [name for name in DESCRIPTORS if name != "sum"]
    behind = [better(three[name][k], three["sum"][k]) for name in others for k in range(3)]
    far = _above(three["fc"][1], three["sum"][1], 0.05)
    beaten = [_any(better(three[n][k], three["concat"][k]) for n in DESCRIPTORS if n != "concat") for k in range(3)]
    shares = [_recovered(*(three[name][k] for name in ("cartesian-s1", "sum", "fc"))) for k in range(3)]
    recovered = " / ".join("–" if share is None else f"{100 * share:.0f} %" for share in shares)
    return [
        Claim(
            "3",
            "`sum` is far behind",
            "below all others beyond the spread in all tasks, and more than 5 mAP below `fc` in matching",
            verdict([*behind, far]),
            _named(everything, "sum", "fc"),
        ),
        Claim(
            "3",
            "`concat` is no top performer in spite of 8192 numbers",
            "in each task another is better beyond the spread",
            verdict(beaten),
            _named(everything, "concat", "fc", "dual-s2"),
        ),
        Claim(
            "3",
            "`cartesian` s=1 recovers most of what `sum` loses",
            "more than half of `fc` − `sum` in each task",
            verdict(None if share is None else share > 0.5 for share in shares),
            f"{recovered} recovered" if any(s is not None for s in shares) else "",
        ),
    ]


def _any(answers: Iterable[bool | None]) -> bool | None:
    """True as soon as one is; False only when all are known."""
    known = list(answers)
    return True if True in known else None if None in known else False


def _recovered(a: Spread | None, low: Spread | None, high: Spread | None) -> float | None:
    if a is None or low is None or high is None or None in (a.std, low.std, high.std):
        return None
    return (a.mean - low.mean) / (high.mean - low.mean) if high.mean > low.mean else 0.0


def dual_claims(everything: Everything) -> list[Claim]:
    """HPatches tasks: `dual` against the others, and 64 against 32 pixels."""
    three = {name: on_test(everything, name) for name in DESCRIPTORS}
    dual = three["dual-s2"]
    others = [name for name in DESCRIPTORS if name != "dual-s2"]
    beaten = {name: [better(dual[k], three[name][k]) for k in range(3)] for name in others}
    unbeaten = [f"`{name}`" for name, answers in beaten.items() if False in answers]
    large = {name: on_test(everything, name, 64) for name in ("fc", "cartesian-s1", "dual-s2")}
    grown = [better(large[name][k], three[name][k]) for name in large for k in range(3)]
    figures = "; ".join(f"`{n}` {_gains(large[n], three[n])}" for n in large if any(large[n]))
    rival = f"; not beaten in every task: {', '.join(unbeaten)}" if unbeaten else ""
    beyond = "better beyond the spread in all three tasks"
    return [
        Claim("3", "`dual` s=2 beats `fc`", beyond, verdict(beaten["fc"]), _named(everything, "dual-s2", "fc")),
        Claim(
            "3",
            "`dual` s=2 is the best on all three tasks",
            f"{beyond}, against each other descriptor at N = 32",
            verdict(answer for answers in beaten.values() for answer in answers),
            _named(everything, "dual-s2") + rival,
        ),
        Claim(
            "3",
            "64×64 patches are better than 32×32",
            f"{beyond}, each of `fc`, `cartesian`, `dual`",
            verdict(grown),
            figures,
        ),
    ]


def _gains(new: Three, old: Three) -> str:
    """Differences of three scores in percent."""
    pairs = zip(new, old, strict=True)
    return " / ".join("–" if a is None or b is None else signed(a.mean - b.mean) for a, b in pairs)


def tolerance_claims(everything: Everything) -> list[Claim]:
    """Who keeps more of the similarity of matching patches under which change."""
    runs = tolerance_runs(everything)
    claims = []
    for change, winner, loser in (
        ("shift", "cartesian", "polar"),
        ("rotation", "polar", "cartesian"),
        ("scale", "polar", "cartesian"),
    ):
        a, b = (kept(runs.get(f"{name}-s1", []), change) for name in (winner, loser))
        figures = f"`{winner}` {a}; `{loser}` {b} % kept" if a is not None and b is not None else ""
        rule = f"keeps more similarity than `{loser}`, mean over the amounts, beyond the spread"
        claims.append(Claim("4", f"`{winner}` tolerates {change}", rule, verdict([better(a, b)]), figures))
    return claims


def map_claims(everything: Everything) -> list[Claim]:
    """No experiment measures it yet."""
    text = "The similarity maps of every architecture are high near p, of `fc` too"
    return [Claim("5", text, "–", OPEN, "")]


def memory_claims(everything: Everything) -> list[Claim]:
    """Counted, and measured by benchmarks/aggregation_memory.py."""
    text, rule = "20.9 times less memory in aggregation", "numbers a patch, rounded to one decimal, as in the paper"
    if not MEMORY.exists():
        return [Claim("6", text, rule, OPEN, "")]
    found = json.loads(MEMORY.read_text(encoding="utf-8"))
    ratio = found["numbers_a_patch"]["expanded"] / found["numbers_a_patch"]["aggregated"]
    measured = {part["pass"]: part["ratio"] for part in found["measured"]}  # of the largest batch
    words = ", ".join(f"{ratio} × ({name})" for name, ratio in measured.items())
    return [
        Claim("6", text, rule, verdict([round(ratio, 1) == 20.9]), f"{ratio:.1f} × counted; process memory: {words}")
    ]


def projected_sum_claims(everything: Everything) -> list[Claim]:
    """No descriptor of the package has M behind `sum`."""
    return [Claim("7", "M behind `sum` gives nothing", "–", OPEN, "")]


def baseline_targets(everything: Everything) -> list[Claim]:
    """More than 2 mAP above the baselines that the paper's field knows."""
    ours, baselines = on_test(everything, "dual-s2"), everything.get("baselines", {})
    theirs = {
        f"`{name}`": [score([baselines[name]] if name in baselines else [], "test", task) for task in TASKS]
        for name in ("rootsift", "mkd", "tfeat")
    }
    answers = [_above(a, b, 0.02) for three in theirs.values() for a, b in zip(ours, three, strict=True)]
    text, rule = "`dual` s=2 is above RootSIFT, MKD and TFeat", "by more than 2 mAP in all three tasks"
    return [Claim("–", text, rule, verdict(answers), say(**{"`dual-s2`": ours}, **theirs))]


def shipped_targets(everything: Everything) -> list[Claim]:
    """The default weights against `fc` by the paper's recipe on the same data."""
    ship = everything.get("ship", {})
    a, b = (score([ship[name]] if name in ship else [], "test", "matching") for name in ("dual", "fc"))
    text, rule = "Shipped `dual` is above shipped `fc` in matching", "by more than 5 mAP"
    figures = f"`dual` {a}; `fc` {b}" if a is not None and b is not None else ""
    return [Claim("–", text, rule, verdict([_above(a, b, 0.05)]), figures)]


def _above(a: Spread | None, b: Spread | None, margin: float) -> bool | None:
    return None if a is None or b is None else a.mean - b.mean > margin


PAPER: tuple[Callable[[Everything], list[Claim]], ...] = (
    parameter_claims,
    transfer_claims,
    dual_claims,
    sum_and_concat_claims,
    tolerance_claims,
    map_claims,
    memory_claims,
    projected_sum_claims,
)
OWN: tuple[Callable[[Everything], list[Claim]], ...] = (baseline_targets, shipped_targets)


def claims_of(everything: Everything, makers: Iterable[Callable[[Everything], list[Claim]]] = PAPER) -> list[Claim]:
    """All claims, in the order of the specification."""
    return [claim for maker in makers for claim in maker(everything)]
