"""The claims that the HPatches tasks decide: statements 3, 4 and 8."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from jobs import AT_64, FIGURE_3, best_of_grid
from results import FULL, FULL_LARGE, TASKS, Result, TaskScore, has, look, parameters, read, score, three_tasks
from verdicts import (
    FAILS,
    HOLDS,
    NOTHING,
    Claim,
    better,
    fewest,
    gaps,
    judged,
    limited,
    on_sequences,
    quoted,
    times,
    with_trainings,
    yes_or_no,
)

from matchkernel.evaluation.uncertainty import Spread

LARGE = "regions of 64 px or more"
ON_ALL, ON_LARGE = {32: FULL, 64: "full_64"}, {32: FULL_LARGE, 64: FULL_LARGE}  # sizes of patches -> experiments


def at_32(*names: str) -> list[list[TaskScore]]:
    """The three tasks of descriptors of Figure 3."""
    return [three_tasks(FULL, f"{name}-n32") for name in names]


def compared(one: Sequence[Spread], other: Sequence[Spread]) -> str:
    """The verdict on three tasks that should be better."""
    return judged(list(zip(one, other, strict=True)))


def on_hpatches() -> Iterator[Claim]:
    """Statement 3, on the test sequences."""
    yield beats_fc()
    yield lighter()
    yield best_of_all()
    yield best_s()
    yield from sizes()
    for ending, words in (("", ""), ("-batch", " with BatchNorm")):
        yield sum_is_behind(ending, words)
        yield concat_is_no_top(ending, words)
        yield recovered(ending, words)


def beats_fc() -> Claim:
    """`dual` s = 2 against `fc`, in the means and by sequence."""
    dual, fc = at_32("dual-s2", "fc")
    ends = [
        [score(FULL, f"{name}-n32", "test", "by_sequence", sequence, "matching") for name in ("dual-s2", "fc")]
        for sequence in look(read(FULL)["fc-n32-seed0"], "test", "by_sequence")
    ]
    won, lost = sum(better(a, b) for a, b in ends), sum(better(b, a) for a, b in ends)
    text = f"{gaps(dual, fc)}; matching better in {won} of {len(ends)} sequences, worse in {lost}"
    verdict = on_sequences(compared(dual, fc), zip(dual, fc, strict=True))
    claim = Claim(3, "`dual` s=2 beats `fc`", verdict, text, "better in all three")
    return with_trainings(claim, fewest(dual, fc))


def lighter() -> Claim:
    """A descriptor with fewer parameters against `fc`."""
    light, fc = at_32("cartesian-s1", "fc")
    few, many = (parameters({"variant": v, **s}) for v, s in (("cartesian", {"s": 1}), ("fc", {})))
    worse = any(better(b, a) for a, b in zip(light, fc, strict=True))
    text = f"{gaps(light, fc)} with {few:,} against {many:,}"
    words = "Fewer parameters than those of `fc` are enough: `cartesian` s=1"
    claim = Claim(3, words, yes_or_no(not worse and few < many), text, "worse in no task")
    return with_trainings(claim, fewest(light, fc))


def best_of_all() -> Claim:
    """`dual` s = 2 against every other descriptor of Figure 3."""
    (dual,) = at_32("dual-s2")
    others = {name: at_32(name)[0] for name in FIGURE_3 if name != "dual-s2"}
    ahead = {name: sum(better(b, a) for a, b in zip(dual, other, strict=True)) for name, other in others.items()}
    beaten = [name for name, other in others.items() if compared(dual, other) == HOLDS]
    in_all, in_two, in_one = ([name for name, count in ahead.items() if count == wanted] for wanted in (3, 2, 1))
    level = [name for name, count in ahead.items() if not count and name not in beaten]
    text = f"beats {len(beaten)} of {len(others)} in all three; beaten in all three by {quoted(in_all)}"
    for words, names in (("two", in_two), ("one", in_one), ("none", level)):
        text += f", in {words} by {quoted(names)}" * bool(names)
    verdict = yes_or_no(len(beaten) == len(others))
    rule = "better in all three than each other descriptor trained alike at N = 32; κ = 8 for s=2, 1 for s=1"
    return with_trainings(Claim(3, "`dual` s=2 is the best", verdict, text, rule), fewest(dual, *others.values()))


def best_s() -> Claim:
    """`dual` s = 1 and s = 2, each with the κ and the augmentation that are best on validation."""
    best = best_of_grid(read("dual_grid"))
    one, two = (three_tasks("confirmed", best[s]) for s in (1, 2))
    text = f"{gaps(two, one)}; `{best[2]}` against `{best[1]}`"
    rule = (
        "κ (1, 8, 16) and augmentation (preset, double) chosen on validation after 10,000 updates, one seed; better in"
        " all three"
    )
    words = "`dual` s=2 is better than s=1, each with its best settings"
    claim = Claim(3, words, compared(two, one), text, rule, is_ours=True)
    return with_trainings(claim, fewest(one, two))


def sizes() -> Iterator[Claim]:
    """64 against 32 px, on all regions and on those that have 64 px."""
    for words, large, small in (("all regions", "full_64", FULL), (f"{LARGE} (12 σ)", FULL_LARGE, FULL_LARGE)):
        names = [n for n in AT_64 if has(large, f"{n}-n64", "test") and has(small, f"{n}-n32", "test")]
        found = {name: by_size(name, large, small) for name in names}
        every = [pair for pairs in found.values() for pair in pairs]
        trainings, figures = {}, []
        for name, pairs in found.items():
            sides = list(zip(*pairs, strict=True))
            trainings[f"`{name}`"] = fewest(*sides)
            figures.append(f"`{name}`{times(fewest(*sides))} {gaps(*sides)}")
        text, rule = f"64×64 patches are better than 32×32, {words}", "better in all three, all of these"
        verdict = on_sequences(judged(every), every)
        is_ours = large == FULL_LARGE
        yield Claim(3, text, limited(verdict, trainings), "; ".join(figures), rule, is_ours)


def by_size(name: str, large: str, small: str) -> list[tuple[Spread, Spread]]:
    """The three tasks of a descriptor at 64 and at 32 px, of these experiments."""
    return list(zip(three_tasks(large, f"{name}-n64"), three_tasks(small, f"{name}-n32"), strict=True))


def sum_is_behind(ending: str, words: str) -> Claim:
    """`sum` against all others."""
    names = [n for n in FIGURE_3 if not n.startswith(("sum", "concat", "fc"))]
    behind, fc, *others = at_32(f"sum{ending}", "fc", "concat", "concat-batch", *names)
    is_last = all(compared(other, behind) == HOLDS for other in (fc, *others))
    is_far = fc[1].mean - behind[1].mean > 5
    verdict = yes_or_no(is_last and is_far)
    verdict = on_sequences(verdict, (pair for other in (fc, *others) for pair in zip(behind, other, strict=True)))
    rule = "worse than all but the other sums, matching more than 5 below `fc`"
    claim = Claim(3, f"`sum`{words} is far behind", verdict, f"{gaps(behind, fc)} to `fc`", rule)
    return with_trainings(claim, fewest(behind, fc, *others))


def concat_is_no_top(ending: str, words: str) -> Claim:
    """`concat` against the best of the others in each task."""
    names = [n for n in FIGURE_3 if not n.startswith(("concat", "sum", "fc"))]
    long, fc, *others = at_32(f"concat{ending}", "fc", *names)
    beaten = [any(better(other[k], long[k]) for other in (fc, *others)) for k in range(len(TASKS))]
    verdict = yes_or_no(all(beaten))
    text = f"`concat`{words} is no top performer in spite of 8,192 numbers"
    claim = Claim(3, text, verdict, f"{gaps(long, fc)} to `fc`", "another is better in each task")
    return with_trainings(claim, fewest(long, fc, *others))


def recovered(ending: str, words: str) -> Claim:
    """What `cartesian` s = 1 recovers of what `sum` loses."""
    fc, light, plain = at_32("fc", "cartesian-s1", f"sum{ending}")
    is_lost = all(better(f, s) for f, s in zip(fc, plain, strict=True))
    is_most = all(c.mean - s.mean > (f.mean - s.mean) / 2 for f, c, s in zip(fc, light, plain, strict=True))
    figures = f"{gaps(light, plain)} to `sum`{words}; `fc` {gaps(fc, plain)}"
    text, rule = f"`cartesian` s=1 recovers most of what `sum`{words} loses", "more than half of what `fc` gains"
    verdict = on_sequences(yes_or_no(is_most), zip(fc, plain, strict=True)) if is_lost else NOTHING
    return with_trainings(Claim(3, text, verdict, figures, rule), fewest(fc, light, plain))


def abstract() -> Iterator[Claim]:
    """Statement 4: both versions, of 32×32 and of 64×64 patches, are ahead of all other methods."""
    for size, experiment in ON_ALL.items():
        is_ahead = above_baselines(three_tasks(experiment, f"dual-s2-n{size}"))
        claim = ahead_of_fc(ON_ALL, size, "ahead of all other methods")
        figures = (
            f"{claim.figures}; {'above' if is_ahead else 'not above'} all {len(baselines())} baselines in each task"
        )
        verdict, rule = claim.verdict if is_ahead else FAILS, f"{claim.rule}, above every baseline"
        yield replace(claim, verdict=verdict, figures=figures, rule=rule)
    for size in ON_LARGE:
        yield replace(ahead_of_fc(ON_LARGE, size, f"ahead of `fc`, {LARGE}"), is_ours=True)


def baselines() -> list[Result]:
    """The results of other descriptors on test."""
    return [result for result in read("baselines").values() if "test" in result["scores"]]


def above_baselines(ours: Sequence[Spread]) -> bool:
    """Whether a descriptor is above every baseline in each task."""
    best = [max(100 * look(result, "test", "tie_safe", task) for result in baselines()) for task in TASKS]
    return all(mine.mean > other for mine, other in zip(ours, best, strict=True))


def ahead_of_fc(experiments: Mapping[int, str], size: int, words: str) -> Claim:
    """`dual` s = 2 at a size against `fc` at this and at smaller ones."""
    ours = three_tasks(experiments[size], f"dual-s2-n{size}")
    fc = {s: three_tasks(experiments[s], f"fc-n{s}") for s in experiments if s <= size}
    pairs = [pair for other in fc.values() for pair in zip(ours, other, strict=True)]
    figures = "; ".join(f"{gaps(ours, other)} to `fc` at {s}×{s}" for s, other in fc.items())
    text = f"`dual` s=2 at {size}×{size} is {words}"
    rule = "better in all three than `fc` at this and smaller sizes"
    return with_trainings(Claim(4, text, on_sequences(judged(pairs), pairs), figures, rule), fewest(ours, *fc.values()))


def projected_sums() -> Iterator[Claim]:
    """Statement 8: M applied to the sum of the map, against `sum` as it is and with the BatchNorm that follows M."""
    for ours, name, words in (("sum-m", "sum-batch", "both with BatchNorm"), ("sum-m-plain", "sum", "both without")):
        projected, plain, fc = at_32(ours, name, "fc")
        gains_nothing = not any(better(a, b) for a, b in zip(projected, plain, strict=True))
        figures = f"{gaps(projected, plain)}; to `fc` {gaps(projected, fc)}"
        text, rule = f"M after `sum` gives nothing, {words}", "better in no task"
        yield with_trainings(Claim(8, text, yes_or_no(gains_nothing), figures, rule), fewest(projected, plain, fc))
