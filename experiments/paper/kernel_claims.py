"""The paper's claims on the kernel itself: tolerance, similarity maps, memory, and M without positions."""

import json
from pathlib import Path

from choices import found_first, kept, tolerance_runs
from gather import Everything, Result, look, percent
from jobs import CONTROL, MAPPED
from maps import map_runs, map_score
from verdicts import OPEN, Claim, better, gains, on_test, say_test, verdict

MEMORY = Path(__file__).parents[2] / "benchmarks" / "results" / "aggregation_memory.json"


def tolerance_claims(everything: Everything) -> list[Claim]:
    """Who keeps more of the similarity of matching patches under which change."""
    runs = tolerance_runs(everything)
    claims = []
    for change, winner, loser in (
        ("shift", "cartesian", "polar"),
        ("rotation", "polar", "cartesian"),
        ("scale", "polar", "cartesian"),
    ):
        found = {name: runs.get(f"{name}-s1", []) for name in (winner, loser)}
        a, b = (kept(found[name], change) for name in found)
        figures = f"`{winner}` {a}; `{loser}` {b} % kept" if a is not None and b is not None else ""
        first = [found_first(found[name], change) for name in found]
        figures += f" (found first: {first[0]}; {first[1]} %)" if None not in first else ""
        rule = f"keeps more similarity than `{loser}`, mean over the amounts, beyond the spread"
        claims.append(Claim("4", f"`{winner}` tolerates {change}", rule, verdict([better(a, b)]), figures))
    return claims


def map_claims(everything: Everything) -> list[Claim]:
    """Whether the maps of every architecture peak at p and fall off around it."""
    runs = map_runs(everything)
    there = [name for name in MAPPED if name in runs]
    control = map_score(runs.get(CONTROL, []), "near")
    answers = [all(map(is_high_near, runs[name])) if name in runs else None for name in MAPPED]
    answers += [better(map_score(runs.get(name, []), "near"), control) for name in MAPPED]
    shares = ", ".join(f"`{name}` {map_score(runs[name], 'near')}" for name in there)
    chance = f"; chance {percent(look(runs[there[0]][0], 'maps', 'near_chance'))}" if there else ""
    return [
        Claim(
            "5",
            "The similarity maps of every architecture are high near p, of `fc` too",
            "each, of every seed: the maximum lies within one cell of p in more than half of the maps, and their mean "
            "at 0 and at 1 cell is above that at every larger distance; and it lies there more often than in the maps "
            f"of `{CONTROL}`, which knows no positions, beyond the spread",
            verdict(answers),
            f"within one cell, in %: {shares}; `{CONTROL}` {control or '–'}{chance}" if there else "",
        )
    ]


def is_high_near(run: Result) -> bool:
    """The rule of claim 5, for one model."""
    near, further = look(run, "maps", "by_distance")[:2], look(run, "maps", "by_distance")[2:]
    return look(run, "maps", "near") > 0.5 and min(near) > max(further)


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
    """M applied to the sum of the map, trained like the others: with BatchNorm after it, and without."""
    plain, claims = on_test(everything, "sum"), []
    for name, words in (("sum-m", "and BatchNorm after it, as after every M here"), ("sum-m-plain", "alone")):
        projected = on_test(everything, name)
        answers = [better(new, old) for new, old in zip(projected, plain, strict=True)]
        difference = f"; difference {gains(projected, plain)}" if any(plain) and any(projected) else ""
        claims.append(
            Claim(
                "7",
                f"M behind `sum` gives nothing ({words})",
                f"in no task is `{name}` better than `sum` beyond the spread",
                verdict(None if answer is None else not answer for answer in answers),
                say_test(everything, name, "sum") + difference,
            )
        )
    return claims
