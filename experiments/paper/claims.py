"""The paper's claims, judged on the stored results by the rules of verdicts.py."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
from data import AMOUNTS, SEQUENCES
from jobs import AT_64, DUAL_GRID, FIGURE_3, LARGE_REGIONS, MAPPED, TRANSFERRED, best_of_grid
from results import TASKS, geometric, geometric_difference, has, look, paired, parameters, read, runs, score
from verdicts import (
    FAILS,
    FULL,
    HOLDS,
    LEVEL,
    NOTHING,
    PART,
    SHIPPED_FULL,
    SHORT,
    Claim,
    Trained,
    better,
    by_intervals,
    gaps,
    judged,
    later,
    names,
    once,
    plain,
    seeds_said,
)

from matchkernel.model.table_1 import CountedRow, table_1

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "results"
# The paper's competitors beside SIFT, RootSIFT, BRIEF, ORB, MKD and TFeat, by their names in the results.
COMPETITORS = {"deepdesc": "DeepDesc", "binboost": "BinBoost", "deepcompare": "DeepCompare", "l2net": "L2-Net"}
ABOUT = 0.1  # "about equal": within this share
WITHOUT = "plain"  # s = 2 trained for 10,000 updates without geometric changes


@dataclass(frozen=True)
class Test:
    """How a statement is tested, what the test cannot see, and how it was tested at first."""

    number: int
    what: str
    unseen: str
    first: str = ""


def tests() -> list[Test]:
    """The tests of the statements."""
    most = {kind: f"{np.abs(amounts).max():g}" for kind, amounts in AMOUNTS.items()}
    return [
        Test(1, "counted from live models", "whether the models work"),
        Test(
            2,
            "FPR@95 on the groups a model was not trained on; matches that geometry found and SIFT's matcher missed;"
            " 1.35 million random non-matches, and the most similar; bootstrap over points and trainings",
            "matches where no detector finds a keypoint; other scenes; training on B and C",
            "SIFT's own tracks: next to no errors to count",
        ),
        Test(
            3,
            "the three HPatches tasks on nine test sequences (eight have regions of 64 px)",
            "less than the spread over seeds; other κ and augmentation than those tried; detail beyond 64 px in photos"
            " of 1,000 px",
            "10,000 updates; no s=2 of single networks; `sum` and `concat` without BatchNorm only; 64×64 on regions"
            " most of which have fewer than 32 px",
        ),
        Test(
            4,
            "as 3, and the best baseline",
            "baselines trained on our data; methods whose weights were not to be had; s=1 at 64×64",
            "not at all",
        ),
        Test(
            5,
            "share of patches changed by a known amount that are found first among all, paired patch by patch",
            f"changes of both patches at once, or larger than {most['shift']} half sides, {most['rotation']} degrees,"
            f" {most['scale']} octave",
            "mean similarity that is kept, which a descriptor that sees nothing keeps best; s=1, 10,000 updates",
        ),
        Test(
            6,
            "similarity maps of 300 matching pairs of the validation sequences",
            "whether codes or features do it; pairs that are not well aligned",
        ),
        Test(7, "counted; memory of a process measured", "other frameworks"),
        Test(8, "as 3", "M without BatchNorm at full length", "M and BatchNorm together, against neither"),
    ]


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
    yield Claim(1, "Parameter counts of Table 1", plain(same == len(rows)), text, "every row equal")
    text = f"{independent} of {len(free)}; `fc` grows to {large:,} at N = 64"
    yield Claim(1, "Counts do not depend on the patch size", plain(independent == len(free)), text, "equal at N and 2N")


def models_by_geometry(name: str) -> list[tuple[str, str]]:
    """The trainings of a descriptor on A, B and C that are scored on positives found by geometry."""
    every = [(FULL, f"{name}-n32"), *(("full_transfer", f"{name}-on-{group}") for group in "BC")]
    found = [pair for pair in every if has(*pair, "geometry")]
    stand_in = [("geometry", SHIPPED_FULL[name])] if name in SHIPPED_FULL else []
    return found or [pair for pair in stand_in if has(*pair, "geometry")]


def transferred_by_geometry() -> Iterator[Claim]:
    """Statement 2: trained on one group, tested on the others."""
    found = {name: models_by_geometry(name) for name in TRANSFERRED}
    kinds = {"ordinary": "random non-matches", "hard": "the non-matches most similar by RootSIFT"}
    for pairs, words in kinds.items():
        paper = {"ordinary": (" (paper: 1.36 ± .01 against 1.43 ± .02)", " (paper: 1.53 ± .03)")}.get(pairs, ("", ""))
        two_text = f"`dual` s=2 has a lower FPR@95 than `fc`{paper[0]}"
        one_text = f"`dual` s=1 about equals `fc` with fewer parameters{paper[1]}"
        rule, about = f"both ends below 0; {words}", "both ends at most a tenth of `fc` above 0"
        for name, text, rule_here in (("dual-s2", two_text, rule), ("dual-s1", one_text, about)):
            sources = [[experiment for experiment, _ in found[n]] for n in (name, "fc")]
            if not sources[0] or sources[0] != sources[1]:
                missing = "models at full length are not scored on positives found by geometry"
                yield later(2, f"{text}, {pairs} pairs", missing, rule_here)
                continue
            fc = geometric(found["fc"], pairs)
            trained = {
                ("geometry",): "; shipped weights on the validation scenes",
                (FULL,): "; trained on A, 2 of 6 combinations",
            }
            ours, gap = geometric(found[name], pairs), geometric_difference(found[name], found["fc"], pairs)
            figures = f"{ours.text()} against {fc.text()}, {gap.text()}{trained.get(tuple(sources[0]), '')}"
            figures = "; ".join([figures, *seeds_said(len(ours.values))])
            limit = 0.0 if name == "dual-s2" else ABOUT * fc.mean
            verdict = HOLDS if gap.high < limit else FAILS if gap.low > limit else LEVEL
            yield Claim(2, f"{text}, {pairs} pairs", once(verdict, len(ours.values)), figures, rule_here)


def on_hpatches() -> Iterator[Claim]:
    """Statement 3, on the test sequences."""
    found = Trained("dual-s2", "fc")
    sequences = [name for names in SEQUENCES["test"].values() for name in names]
    keys = [("test", "by_sequence", name, "matching") for name in sequences]
    ends = [[score(found.experiment, found.jobs[d], *key) for d in ("dual-s2", "fc")] for key in keys]
    won, lost = sum(better(a, b) for a, b in ends), sum(better(b, a) for a, b in ends)
    text = f"{gaps(*(found.three[n] for n in ('dual-s2', 'fc')))}; matching better in {won} of {len(ends)} sequences,"
    text += f" worse in {lost}{found.note}"
    yield Claim(3, "`dual` s=2 beats `fc`", judged(found.pairs("dual-s2", "fc")), text, "better in all three")
    yield lighter()
    yield best_of_all()
    yield best_s()
    yield from sizes()
    for ending, words in (("", ""), ("-batch", " with BatchNorm")):
        yield sum_is_behind(ending, words)
        yield concat_is_no_top(ending, words)
        yield recovered(ending, words)


def lighter() -> Claim:
    """A descriptor with fewer parameters against `fc`."""
    found = Trained("cartesian-s1", "fc")
    few, many = (parameters({"variant": v, **s}) for v, s in (("cartesian", {"s": 1}), ("fc", {})))
    worse = any(better(b, a) for a, b in found.pairs("cartesian-s1", "fc"))
    text = f"{gaps(*(found.three[n] for n in ('cartesian-s1', 'fc')))} with {few:,} against {many:,}{found.note}"
    words = "Fewer parameters than those of `fc` are enough: `cartesian` s=1"
    return Claim(3, words, found.verdict(plain(not worse and few < many)), text, "worse in no task")


def best_of_all() -> Claim:
    """`dual` s = 2 against every other descriptor of Figure 3."""
    others = [name for name in FIGURE_3 if name not in ("dual-s2", "sum-m")]
    found = Trained("dual-s2", "dual-s1", "fc", beside=[name for name in others if name not in ("dual-s1", "fc")])
    others = [name for name in others if name in found.three]
    verdicts = {name: judged(found.pairs("dual-s2", name)) for name in others}
    ahead = [name for name in others if judged(found.pairs(name, "dual-s2")) == HOLDS]
    beaten = [name for name in others if verdicts[name] == HOLDS]
    text = f"better in all three than {names(beaten)}; {names(ahead)} better than it in all three{found.note}"
    verdict = HOLDS if len(beaten) == len(others) and not found.missing else FAILS if ahead else PART
    rule = "better in all three than each other descriptor at N = 32; κ = 8 for s=2, 1 for s=1"
    return Claim(3, "`dual` s=2 is the best", verdict, text, rule)


def best_s() -> Claim:
    """`dual` s = 1 and s = 2, each with the κ and the augmentation that are best on validation."""
    text = "`dual` s=2 is better than s=1, each with its best settings"
    rule = "κ (1, 8, 16) and augmentation (preset, double) chosen by the mean of the three tasks on validation after"
    rule += " 10,000 updates, then better in all three on test"
    best = best_of_grid(read("dual_grid")) if all(has("dual_grid", name) for name in DUAL_GRID) else {}
    if not best:
        trained = sum(has("dual_grid", name) for name in DUAL_GRID)
        return later(3, text, f"{trained} of {len(DUAL_GRID)} settings are trained", rule)
    is_confirmed = all(has("confirmed", name, "test") for name in best.values())
    source = ("confirmed", "test") if is_confirmed else ("dual_grid", "validation")
    one, two = ([score(source[0], best[s], source[1], task) for task in TASKS] for s in (1, 2))
    settings = " against ".join(f"`{best[s]}`" for s in (2, 1)) + ("" if is_confirmed else "; on validation")
    seeds = min(len(side[0].values) for side in (one, two))
    figures = "; ".join([gaps(two, one), settings, *seeds_said(seeds)])
    return Claim(3, text, once(judged(list(zip(two, one, strict=True))), seeds), figures, rule)


def sizes() -> Iterator[Claim]:
    """64 against 32 px, on all regions and on those that have 64 px."""
    rule = "better in all three, all of these"
    experiment = FULL if all(has(e, f"{n}-n{k}") for n in AT_64 for e, k in ((FULL, 32), ("full_64", 64))) else SHORT
    large = "full_64" if experiment == FULL else SHORT
    pairs = {
        n: [[score(e, f"{n}-n{k}", "test", t) for t in TASKS] for e, k in ((large, 64), (experiment, 32))]
        for n in AT_64
    }
    note = "" if experiment == FULL else " (10,000 updates, 3 seeds)"
    text = "; ".join(f"`{n}` {gaps(*both)}" for n, both in pairs.items()) + note
    every = [pair for both in pairs.values() for pair in zip(*both, strict=True)]
    yield Claim(3, "64×64 patches are better than 32×32, all regions", judged(every), text, rule)
    words = "64×64 patches are better than 32×32, regions of 64 px or more"
    if not all(has(LARGE_REGIONS, f"{n}-n{k}", "test") for n in AT_64 for k in (32, 64)):
        yield later(3, words, "not trained", rule)
        return
    pairs = {n: [[score(LARGE_REGIONS, f"{n}-n{k}", "test", t) for t in TASKS] for k in (64, 32)] for n in AT_64}
    words_of_seeds = seeds_said(min(len(both[0][0].values) for both in pairs.values()))
    note = f" ({', '.join(['10,000 updates', '12 σ', *words_of_seeds])})"
    text = "; ".join(f"`{n}` {gaps(*both)}" for n, both in pairs.items()) + note
    every = [pair for both in pairs.values() for pair in zip(*both, strict=True)]
    yield Claim(3, words, judged(every), text, rule)


def sum_is_behind(ending: str, words: str) -> Claim:
    """`sum` against all others."""
    name, text = f"sum{ending}", f"`sum`{words} is far behind"
    rule = "worse than all others, matching more than 5 below `fc`"
    others = [n for n in FIGURE_3 if n not in ("sum", "sum-batch", "sum-m", "concat", "concat-batch")]
    found = Trained(name, "fc", beside=[f"concat{ending}", *(n for n in others if n != "fc")])
    if name in found.missing:
        return later(3, text, "not trained", rule)
    behind = all(judged(found.pairs(n, name)) == HOLDS for n in found.three if n != name)
    far = found.three["fc"][1].mean - found.three[name][1].mean > 5
    figures = f"{gaps(found.three[name], found.three['fc'])} to `fc`{found.note}"
    return Claim(3, text, found.verdict(HOLDS if behind and far else PART if behind else FAILS), figures, rule)


def concat_is_no_top(ending: str, words: str) -> Claim:
    """`concat` against the best of the others in each task."""
    name, text = f"concat{ending}", f"`concat`{words} is no top performer in spite of 8,192 numbers"
    rule = "another is better in each task"
    found = Trained(name, "fc", beside=[n for n in FIGURE_3 if not n.startswith(("concat", "sum", "fc"))])
    if name in found.missing:
        return later(3, text, "not trained", rule)
    beaten = [
        any(better(scores[k], found.three[name][k]) for n, scores in found.three.items() if n != name) for k in range(3)
    ]
    figures = f"{gaps(found.three[name], found.three['fc'])} to `fc`{found.note}"
    return Claim(3, text, found.verdict(HOLDS if all(beaten) else PART if any(beaten) else FAILS), figures, rule)


def recovered(ending: str, words: str) -> Claim:
    """What `cartesian` s = 1 recovers of what `sum` loses."""
    name, text = f"sum{ending}", f"`cartesian` s=1 recovers most of what `sum`{words} loses"
    rule = "more than half of `fc` − `sum` in each task"
    found = Trained("fc", "cartesian-s1", name)
    if name in found.missing:
        return later(3, text, "not trained", rule)
    if max(f.mean - s.mean for f, s in zip(found.three["fc"], found.three[name], strict=True)) < 1:
        figures = f"`sum`{words} to `fc` {gaps(found.three[name], found.three['fc'])}{found.note}"
        return Claim(3, text, NOTHING, figures, f"{rule}, where it loses a point or more")
    sides = zip(*(found.three[n] for n in ("fc", "cartesian-s1", name)), strict=True)
    shares = [(c.mean - s.mean) / (f.mean - s.mean) for f, c, s in sides]
    figures = " / ".join(f"{100 * share:.0f} %" for share in shares) + f" recovered{found.note}"
    return Claim(3, text, found.verdict(plain(min(shares) > 0.5)), figures, rule)


def abstract() -> Iterator[Claim]:
    """Statement 4: both versions, of 32×32 and of 64×64 patches, are ahead of all other methods."""
    found = Trained("dual-s2", "fc")
    at_64 = "full_64" if all(has("full_64", f"{n}-n64", "test") for n in ("fc", "dual-s2")) else SHORT
    sides = {
        "32×32": (found.three["dual-s2"], found.three["fc"], found.note),
        "64×64": (
            *([score(at_64, f"{n}-n64", "test", t) for t in TASKS] for n in ("dual-s2", "fc")),
            "" if at_64 == "full_64" else " (10,000 updates, 3 seeds)",
        ),
    }
    baselines = {name: result for name, result in read("baselines").items() if "test" in result["scores"]}
    best = [max(100 * look(result, "test", "tie_safe", task) for result in baselines.values()) for task in TASKS]
    missing = [said for name, said in COMPETITORS.items() if name not in baselines]
    without = f"; without {', '.join(missing)}" if missing else ""
    for size, (ours, fc, note) in sides.items():
        is_ahead = all(mine.mean > other for mine, other in zip(ours, best, strict=True))
        text = f"{gaps(ours, fc)} to `fc`; {'above' if is_ahead else 'not above'} all {len(baselines)} baselines"
        verdict = judged(list(zip(ours, fc, strict=True))) if is_ahead else FAILS
        rule = "better than `fc` of that size in all three, above every baseline"
        words = f"`dual` s=2 at {size} is ahead of all other methods"
        yield Claim(4, words, verdict, f"{text} in each task{note}{without}", rule)


# What statement 5 is tested with -> its experiment, and the names of the two in it.
TOLERANT = {
    "s=2": (FULL, "cartesian-s2-n32", "polar-s2-n32"),
    "s=1": (FULL, "cartesian-s1-n32", "polar-s1-n32"),
    WITHOUT: ("turned", "cartesian-s2-plain", "polar-s2-plain"),
    f"{WITHOUT}, pole in the centre": ("turned", "cartesian-s2-plain", "polar-fields-s2-plain"),
}
BETTER_AT = {"shift": "cartesian", "rotation": "polar", "scale": "polar"}


def tolerance() -> Iterator[Claim]:
    """Statement 5: which coordinates tell patches apart under which change."""
    ready = {
        words: dict(zip(("cartesian", "polar"), (runs(experiment, name) for name in two), strict=True))
        for words, (experiment, *two) in TOLERANT.items()
        if all(has(experiment, name, "separability") for name in two)
    }
    for change, one in BETTER_AT.items():
        (other,) = {"cartesian", "polar"} - {one}
        text, rule = f"`{one}` tolerates {change} better than `{other}`", "both ends above 0, in all three"
        if not ready.keys() >= {"s=2", "s=1", WITHOUT}:
            yield later(5, text, "not trained", rule)
            continue
        found = {words: paired(two[one], two[other], change, "first") for words, two in ready.items()}
        seeds = min(len(trained) for two in ready.values() for trained in two.values())
        figures = "; ".join([f"{words} {gap.text()}" for words, gap in found.items()] + seeds_said(seeds))
        verdict = by_intervals([gap for words, gap in found.items() if "pole" not in words])
        yield Claim(5, text, once(verdict, seeds), figures, rule)
    yield both_tolerances()


def both_tolerances() -> Claim:
    """The combined encoding against the coordinates that should be better at each change."""
    text, rule = "`combined` s=2 tolerates what either does", "no upper end below 0"
    if not all(has(FULL, f"{name}-s2-n32", "separability") for name in ("combined", *set(BETTER_AT.values()))):
        return later(5, text, "not trained", rule)
    sides = {name: runs(FULL, f"{name}-s2-n32") for name in ("combined", *BETTER_AT.values())}
    found = {change: paired(sides["combined"], sides[one], change, "first") for change, one in BETTER_AT.items()}
    seeds = min(map(len, sides.values()))
    words = [f"{change} {gap.text()} to `{BETTER_AT[change]}`" for change, gap in found.items()]
    kept = [gap.high >= 0 for gap in found.values()]
    verdict = HOLDS if all(kept) else PART if any(kept) else FAILS
    return Claim(5, text, once(verdict, seeds), "; ".join(words + seeds_said(seeds)), rule)


def maps() -> Iterator[Claim]:
    """Statement 6: similarity maps are high at p and fall off around it."""
    names, control = (*MAPPED, "cartesian-s2", "polar-s2", "combined-s2"), "sum"
    experiment = FULL if all(has(FULL, f"{n}-n32", "maps") for n in (*names, control)) else SHORT
    names = names if experiment == FULL else MAPPED
    near = {name: score(experiment, f"{name}-n32", "maps", "near") for name in (*names, control)}
    high = True
    for run in (run for name in names for run in runs(experiment, f"{name}-n32")):
        close, far = look(run, "maps", "by_distance")[:2], look(run, "maps", "by_distance")[2:]
        high &= look(run, "maps", "near") > 0.5 and min(close) > max(far)
    holds = high and all(better(near[name], near[control]) for name in names)
    chance = 100 * look(runs(experiment, "fc-n32")[0], "maps", "near_chance")
    low, high_share = (pick(near[name].mean for name in names) for pick in (min, max))
    free = [name for name in ("sum", "sum-batch", "sum-m") if has(experiment, f"{name}-n32", "maps")]
    without = ", ".join(f"`{n}` {score(experiment, f'{n}-n32', 'maps', 'near').mean:.1f}" for n in free)
    text = f"maximum within one cell of p in {low:.1f} to {high_share:.1f} % (`fc` {near['fc'].text(1)}; without codes"
    text += f" {without}; chance {chance:.1f})"
    text += " (10,000 updates, 3 seeds)" if experiment != FULL else " (1 or 2 seeds)"
    rule = "more than half and more than `sum`; mean at 0 and 1 cells above that further away; every training"
    words = "Similarity maps of every architecture are high near p, of `fc` too"
    yield Claim(6, words, plain(holds), text, rule)


def memory() -> Iterator[Claim]:
    """Statement 7: counted, and measured by benchmarks/aggregation_memory.py."""
    found = json.loads((BENCHMARKS / "aggregation_memory.json").read_text(encoding="utf-8"))
    ratio = found["numbers_a_patch"]["expanded"] / found["numbers_a_patch"]["aggregated"]
    measured = {part["pass"]: part["ratio"] for part in found["measured"]}  # of the largest batch
    words = ", ".join(f"{ratio} × ({name})" for name, ratio in measured.items())
    text = f"{ratio:.1f} × counted; process memory {words}"
    yield Claim(7, "20.9 times less memory in aggregation", plain(round(ratio, 1) == 20.9), text, "numbers per patch")


def projected_sums() -> Iterator[Claim]:
    """Statement 8: M applied to the sum of the map, against `sum` as it is and with the BatchNorm that follows M."""
    rule = "better in no task"
    for ours, name, words in (("sum-m", "sum-batch", "both with BatchNorm"), ("sum-m-plain", "sum", "both without")):
        text = f"M after `sum` gives nothing, {words}"
        found = Trained(ours, name, "fc")
        if name in found.missing:
            yield later(8, text, "not trained", rule)
            continue
        gained = any(better(a, b) for a, b in found.pairs(ours, name))
        figures = f"{gaps(found.three[ours], found.three[name])}; to `fc`"
        figures += f" {gaps(found.three[ours], found.three['fc'])}{found.note}"
        yield Claim(8, text, found.verdict(plain(not gained)), figures, rule)


def paper_claims() -> list[Claim]:
    """The paper's claims, in its order."""
    parts = (
        counts(),
        transferred_by_geometry(),
        on_hpatches(),
        abstract(),
        tolerance(),
        maps(),
        memory(),
        projected_sums(),
    )
    return [claim for part in parts for claim in part]
