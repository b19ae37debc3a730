"""The claims that the HPatches tasks decide: statements 3, 4 and 8."""

from collections.abc import Iterator

from data import SEQUENCES
from jobs import AT_64, DUAL_GRID, FIGURE_3, LARGE_REGIONS, best_of_grid
from results import TASKS, has, look, parameters, read, score
from verdicts import (
    FAILS,
    FULL,
    HOLDS,
    NOTHING,
    PART,
    SHORT,
    Claim,
    Trained,
    better,
    gaps,
    judged,
    later,
    names,
    once,
    plain,
    seeds_said,
)

from matchkernel.evaluation.spread import Spread

# The paper's competitors beside SIFT, RootSIFT, BRIEF, ORB, MKD and TFeat, by their names in the results.
COMPETITORS = {
    "deepdesc": "DeepDesc",
    "binboost": "BinBoost",
    "deepcompare": "DeepCompare",
    "l2net": "L2-Net",
    "hardnet": "HardNet as published",
}


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


def three_tasks(experiment: str, name: str) -> list[Spread]:
    """The three tasks on the test sequences."""
    return [score(experiment, name, "test", task) for task in TASKS]


def sizes() -> Iterator[Claim]:
    """64 against 32 px, on all regions and on those that have 64 px."""
    rule = "better in all three, all of these"
    shorter = judged([pair for name in AT_64 for pair in by_size(name, SHORT, SHORT)])
    for words, experiments, notes in (
        ("all regions", ("full_64", FULL), [short_verdict(shorter)]),
        ("regions of 64 px or more", (LARGE_REGIONS, LARGE_REGIONS), ["10,000 updates, 12 σ"]),
    ):
        text = f"64×64 patches are better than 32×32, {words}"
        sized = list(zip(experiments, (64, 32), strict=True))
        if not all(has(e, f"{name}-n{size}", "test") for name in AT_64 for e, size in sized):
            yield later(3, text, "not trained", rule)
            continue
        found = {name: by_size(name, *experiments) for name in AT_64}
        every = [pair for pairs in found.values() for pair in pairs]
        figures = [f"`{name}` {gaps(*zip(*pairs, strict=True))}" for name, pairs in found.items()]
        seeds = seeds_said(min(len(side.values) for pair in every for side in pair))
        yield Claim(3, text, judged(every), "; ".join([*figures, *seeds, *notes]), rule)


def by_size(name: str, large: str, small: str) -> list[tuple[Spread, Spread]]:
    """The three tasks of a descriptor at 64 and at 32 px, of these experiments."""
    return list(zip(three_tasks(large, f"{name}-n64"), three_tasks(small, f"{name}-n32"), strict=True))


def short_verdict(verdict: str) -> str:
    """What the same comparison says of shorter trainings, of which there are three."""
    return f"after 10,000 updates, 3 seeds: {verdict}"


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
    baselines = {name: result for name, result in read("baselines").items() if "test" in result["scores"]}
    best = [max(100 * look(result, "test", "tie_safe", task) for result in baselines.values()) for task in TASKS]
    missing = [said for name, said in COMPETITORS.items() if name not in baselines]
    for size, experiment in ((32, FULL), (64, "full_64")):
        text = f"`dual` s=2 at {size}×{size} is ahead of all other methods"
        rule = "better than `fc` of that size in all three, above every baseline"
        if not all(has(experiment, f"{name}-n{size}", "test") for name in ("dual-s2", "fc")):
            yield later(4, text, "not trained", rule)
            continue
        ours, fc = (three_tasks(experiment, f"{name}-n{size}") for name in ("dual-s2", "fc"))
        is_ahead = all(mine.mean > other for mine, other in zip(ours, best, strict=True))
        verdict, seeds = judged(list(zip(ours, fc, strict=True))), min(len(side[0].values) for side in (ours, fc))
        above = f"{'above' if is_ahead else 'not above'} all {len(baselines)} baselines in each task"
        figures = [f"{gaps(ours, fc)} to `fc`", above, *seeds_said(seeds)]
        if seeds == 1:  # three shorter trainings must say the same
            shorter = [three_tasks(SHORT, f"{name}-n{size}") for name in ("dual-s2", "fc")]
            also = judged(list(zip(*shorter, strict=True)))
            verdict = verdict if also == verdict else once(verdict, seeds)
            figures.append(short_verdict(also))
        figures += [f"without {', '.join(missing)}"] * bool(missing)
        yield Claim(4, text, verdict if is_ahead else FAILS, "; ".join(figures), rule)


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
