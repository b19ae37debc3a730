"""The paper's claims and our own targets: a stated rule decides, on the stored results, whether each holds here."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from data import SEQUENCES
from jobs import AGAIN, CONTROL, DESCRIPTORS, MAPPED, PACKAGE, TRANSFERRED
from results import TASKS, kept, kind_mean, look, parameters, photo_means, read, runs, score, signed, transfer
from results import three as on_test

from matchkernel.evaluation.spread import Spread
from matchkernel.model.table_1 import CountedRow, table_1

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "results"
TARGET = 5.0  # mAP points by which the default should be above `fc` in matching on test
RIVALS = ("sift", "rootsift", "fc")  # of the default on photos


@dataclass(frozen=True)
class Claim:
    """A claim with its verdict; `number` is that of the paper's statement, none of our own targets."""

    number: int | None
    text: str
    holds: bool
    figures: str
    rule: str


def better(a: Spread, b: Spread, low: bool = False) -> bool:
    """Whether a is better than b by more than the larger standard deviation over seeds."""
    return (b.mean - a.mean if low else a.mean - b.mean) > max(a.std or 0, b.std or 0)


def beats(a: str, b: str) -> bool:
    """Whether a descriptor is better than another in all three tasks on the test sequences."""
    return all(better(x, y) for x, y in zip(on_test(a), on_test(b), strict=True))


def gaps(new: list[Spread], old: list[Spread]) -> str:
    """Differences of three scores, with the larger standard deviation in brackets."""
    pairs = zip(new, old, strict=True)
    return " / ".join(f"{signed(a.mean - b.mean)} ({max(a.std or 0, b.std or 0):.2f})" for a, b in pairs)


@cache
def _table_1() -> list[CountedRow]:
    return table_1()


def counts() -> Iterator[Claim]:
    """Statement 1, counted from live models."""
    rows = _table_1()
    free = [row for row in rows if row.variant != "fc"]
    same, independent = sum(row.agrees for row in rows), sum(row.independent_of_size for row in free)
    dual, fc = (parameters(c) for c in ({"variant": "dual", "s": 2}, {"variant": "fc"}))
    large = parameters({"variant": "fc", "patch_size": 64})
    text = f"{same} of {len(rows)} rows; `dual` s=2 {dual:,}, `fc` {fc:,}"
    yield Claim(1, "Parameter counts of Table 1", same == len(rows), text, "every row equal")
    text = f"{independent} of {len(free)}; `fc` grows to {large:,} at N = 64"
    yield Claim(1, "Counts do not depend on the patch size", independent == len(free), text, "equal at N and 2N")


def transferred(pairs: str, number: int | None, two_in_paper: str = "", one_in_paper: str = "") -> Iterator[Claim]:
    """Statement 2, mean of the six combinations; on hard pairs a target of ours."""
    found = {name: transfer(name, "fpr95", pairs) for name in TRANSFERRED}
    fc, one, two = (found[name] for name in ("fc", "dual-s1", "dual-s2"))
    digits = 3 if pairs == "ordinary" else 2
    text = f"`dual` s=2 has a lower FPR@95 than `fc`, {pairs} pairs{two_in_paper}"
    figures = f"{two.text(digits)} against {fc.text(digits)}"
    yield Claim(number, text, better(two, fc, low=True), figures, "lower beyond the spread")
    fewer = parameters({"variant": "dual", "s": 1}) < parameters({"variant": "fc"})
    text = f"`dual` s=1 about equals `fc` with fewer parameters, {pairs} pairs{one_in_paper}"
    rule = "at most a tenth above `fc`, fewer parameters"
    yield Claim(number, text, one.mean <= 1.1 * fc.mean and fewer, one.text(digits), rule)


def on_hpatches() -> Iterator[Claim]:
    """Statement 3, on the test sequences."""
    all_three, three = "better in all three", {name: on_test(name) for name in DESCRIPTORS}
    sequences = [name for names in SEQUENCES["test"].values() for name in names]
    keys = [("test", "by_sequence", name, "matching") for name in sequences]
    ends = [[score("descriptors", f"{d}-n32", *key) for d in ("dual-s2", "fc")] for key in keys]
    won, lost = sum(better(a, b) for a, b in ends), sum(better(b, a) for a, b in ends)
    text = f"{gaps(three['dual-s2'], three['fc'])}; matching better in {won} of {len(ends)} sequences, worse in {lost}"
    yield Claim(3, "`dual` s=2 beats `fc`", beats("dual-s2", "fc"), text, all_three)
    others = [name for name in DESCRIPTORS if name != "dual-s2"]
    level, ahead = [n for n in others if not beats("dual-s2", n)], [n for n in others if beats(n, "dual-s2")]
    text = f"not better than {_names(level)}; {_names(ahead)} is better than it in all three"
    yield Claim(3, "`dual` s=2 is the best", not level, text, f"{all_three} than each other at N = 32")
    large = {name: on_test(name, 64) for name in ("fc", "cartesian-s1", "dual-s2")}
    text = "; ".join(f"`{name}` {gaps(large[name], three[name])}" for name in large)
    holds = all(better(a, b) for name in large for a, b in zip(large[name], three[name], strict=True))
    yield Claim(3, "64×64 patches are better than 32×32", holds, text, f"{all_three}, all of these")
    behind = all(beats(name, "sum") for name in DESCRIPTORS if name != "sum")
    far = three["fc"][1].mean - three["sum"][1].mean > 5
    rule = "worse than all others, matching more than 5 below `fc`"
    yield Claim(3, "`sum` is far behind", behind and far, f"{gaps(three['sum'], three['fc'])} to `fc`", rule)
    beaten = all(any(better(three[n][k], three["concat"][k]) for n in DESCRIPTORS) for k in range(3))
    text = f"{gaps(three['concat'], three['fc'])} to `fc`"
    yield Claim(3, "`concat` is no top performer in spite of 8,192 numbers", beaten, text, "another is better in each")
    fc, cartesian, plain = (three[name] for name in ("fc", "cartesian-s1", "sum"))
    shares = [(c.mean - s.mean) / (f.mean - s.mean) for f, c, s in zip(fc, cartesian, plain, strict=True)]
    text = " / ".join(f"{100 * share:.0f} %" for share in shares) + " recovered"
    rule = "more than half of `fc` − `sum` in each task"
    yield Claim(3, "`cartesian` s=1 recovers most of what `sum` loses", min(shares) > 0.5, text, rule)


def tolerance() -> Iterator[Claim]:
    """Statement 4: which descriptor keeps more of the similarity of matching patches under which change."""
    for change, a, b in (
        ("shift", "cartesian", "polar"),
        ("rotation", "polar", "cartesian"),
        ("scale", "polar", "cartesian"),
    ):
        ours, theirs = (kept(f"{name}-s1", change) for name in (a, b))
        text = f"{ours.text()} against {theirs.text()} %"
        yield Claim(4, f"`{a}` tolerates {change}", better(ours, theirs), text, f"keeps more similarity than `{b}`")


def maps() -> Iterator[Claim]:
    """Statement 5: similarity maps are high at p and fall off around it."""
    near = {name: score("descriptors", f"{name}-n32", "maps", "near") for name in (*MAPPED, CONTROL)}
    high = True
    for run in (run for name in MAPPED for run in runs("descriptors", f"{name}-n32")):
        close, far = look(run, "maps", "by_distance")[:2], look(run, "maps", "by_distance")[2:]
        high &= look(run, "maps", "near") > 0.5 and min(close) > max(far)
    holds = high and all(better(near[name], near[CONTROL]) for name in MAPPED)
    chance = 100 * look(runs("descriptors", "fc-n32")[0], "maps", "near_chance")
    low, high_share = (pick(near[name].mean for name in MAPPED) for pick in (min, max))
    text = f"maximum within one cell of p in {low:.1f} to {high_share:.1f} % (`fc` {near['fc'].text()}, `sum` "
    text += f"{near[CONTROL].text()}, chance {chance:.1f})"
    rule = "more than half and more than `sum`; mean at 0 and 1 cells above that further away; every training"
    yield Claim(5, "Similarity maps of every architecture are high near p, of `fc` too", holds, text, rule)


def memory() -> Iterator[Claim]:
    """Statement 6: counted, and measured by benchmarks/aggregation_memory.py."""
    found = json.loads((BENCHMARKS / "aggregation_memory.json").read_text(encoding="utf-8"))
    ratio = found["numbers_a_patch"]["expanded"] / found["numbers_a_patch"]["aggregated"]
    measured = {part["pass"]: part["ratio"] for part in found["measured"]}  # of the largest batch
    words = ", ".join(f"{ratio} × ({name})" for name, ratio in measured.items())
    text = f"{ratio:.1f} × counted; process memory {words}"
    yield Claim(6, "20.9 times less memory in aggregation", round(ratio, 1) == 20.9, text, "numbers per patch")


def projected_sums() -> Iterator[Claim]:
    """Statement 7: M applied to the sum of the map, with BatchNorm after it and without."""
    for name, words in (("sum-m", "with BatchNorm after it"), ("sum-m-plain", "alone")):
        gained = any(better(a, b) for a, b in zip(on_test(name), on_test("sum"), strict=True))
        text = gaps(on_test(name), on_test("sum"))
        yield Claim(7, f"M after `sum` gives nothing ({words})", not gained, text, "better than `sum` in no task")


def own_targets() -> Iterator[Claim]:
    """The targets for our own models."""
    yield from transferred("hard", None)
    gain = {}
    for name in ("rootsift", "mkd", "tfeat"):
        theirs = [100 * look(read("baselines")[name], "test", task) for task in TASKS]
        gain[name] = min(a.mean - b for a, b in zip(on_test("dual-s2"), theirs, strict=True))
    text = "at least " + ", ".join(f"{signed(value)} (`{name}`)" for name, value in gain.items())
    holds = min(gain.values()) > 2
    yield Claim(None, "`dual` s=2 is above RootSIFT, MKD and TFeat", holds, text, "by more than 2 in all three tasks")
    ship = read("ship")
    first, again = (
        100 * (look(ship[PACKAGE["dual"] + end], "test", "matching") - look(ship[f"fc{end}"], "test", "matching"))
        for end in ("", AGAIN)
    )
    text = f"{signed(first)}; trained again {signed(again)}"
    rule = f"by {TARGET:g} or more"
    yield Claim(None, "Shipped `dual` is above shipped `fc` in matching", first >= TARGET, text, rule)
    kinds = {}
    for kind in SEQUENCES["test"]:
        ours, theirs = (kind_mean([ship[PACKAGE[name]]], kind).mean for name in ("dual", "fc"))
        kinds[kind] = ours - theirs
    text = ", ".join(f"{kind} {signed(value)}" for kind, value in kinds.items())
    yield Claim(None, "… in each kind of change", min(kinds.values()) > 0, text, "matching above `fc`")
    means = photo_means("matching_test")
    for words, column, form in (("more right matches", "right", "{:.1f}"), ("better homographies", "H 3 px", "{:.2%}")):
        holds = all(means["dual"][column] > means[rival][column] for rival in RIVALS)
        text = ", ".join(f"`{m}` {form.format(means[m][column])}" for m in ("dual", *RIVALS))
        rule = "on photos, than SIFT, RootSIFT and `fc`" + ("; within 3 px" if "H" in column else "")
        yield Claim(None, f"Shipped `dual` has {words}", holds, text, rule)


def _names(names: list[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def paper_claims() -> list[Claim]:
    """The paper's claims, in its order."""
    ordinary = transferred("ordinary", 2, " (paper: 1.36 ± .01 against 1.43 ± .02)", " (paper: 1.53 ± .03)")
    parts = (counts(), ordinary, on_hpatches(), tolerance(), maps(), memory(), projected_sums())
    return [claim for part in parts for claim in part]
