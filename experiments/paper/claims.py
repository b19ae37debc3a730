"""The paper's claims, judged on the stored results by the rules of verdicts.py."""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
from data import AMOUNTS, sequences_of
from hpatches_claims import above_baselines, abstract, at_32, on_hpatches, projected_sums
from jobs import MAPPED
from results import (
    CHANGES,
    FULL,
    FULL_LARGE,
    FULL_TURNED,
    GEOMETRY_DRAWS,
    TASKS,
    Interval,
    geometric,
    geometric_difference,
    look,
    paired,
    parameters,
    runs,
    score,
)
from score import MAPPED_PAIRS
from verdicts import (
    FAILS,
    HOLDS,
    LEVEL,
    PART,
    Claim,
    better,
    by_intervals,
    limited,
    spread,
    times,
    with_trainings,
    yes_or_no,
)

from matchkernel.data.positives import Tolerances
from matchkernel.runtime.overview import CountedRow, table_1

BENCHMARKS = Path(__file__).parents[2] / "benchmarks" / "results"
ABOUT = 0.1  # "about equal": within this share
UNAUGMENTED = "unaugmented"  # s = 2 trained without rotation, scale and shift; flips and quarter turns remain


@dataclass(frozen=True)
class Test:
    """How a statement is tested, what the test cannot see, how it was tested at first and what did not hold then."""

    number: int
    what: str
    unseen: str
    first: str = ""


def tests() -> list[Test]:
    """The tests of the statements."""
    most = {kind: f"{np.abs(amounts).max():g}" for kind, amounts in AMOUNTS.items()}
    tested = {g: part for k in "ABC" for g, part in look(runs(*trained_on("fc", k))[0], "geometry").items()}
    drawn = [sum(tested[g]["ordinary"]["negatives"] for g in "ABC" if g != trained) for trained in "ABC"]
    matches = sum(part["positives"] for part in tested.values())
    shares = [100 * share for share in widths_by_trainings()]
    sequences, large = (len(look(runs(e, "fc-n32")[0], "test", "by_sequence")) for e in (FULL, FULL_LARGE))
    allowed, sums = Tolerances(), "is" if above_baselines(*at_32("sum")) else "is not"
    return [
        Test(1, "counted from the shapes of the tensors", "whether the models work"),
        Test(
            2,
            f"FPR@95 on the groups a model was not trained on; {matches:,} matches that geometry found and no"
            " track has;"
            f" {min(drawn):,} to {max(drawn):,} random non-matches for a model, and the most similar;"
            f" {GEOMETRY_DRAWS} bootstrap samples of points and of trainings on a group; [all six"
            " combinations](#trained-on-one-group-tested-on-the-others-the-papers-table-2)",
            f"matches where no detector finds a keypoint, or whose frames differ by more than {allowed.pixels:g} px,"
            f" {allowed.octaves:g} octave or {allowed.degrees:g} degrees; which of them are wrong; other scenes",
            "SIFT's own tracks: next to no errors to count; 10,000 updates; `dual` s=2 did not hold",
        ),
        Test(
            3,
            f"the three HPatches tasks on {sequences} test sequences ({large} have regions of 64 px)",
            "less than the spread over seeds; κ and augmentation that were not tried, and the chosen ones of `dual`"
            " beside other descriptors; detail beyond 64 px",
            "10,000 updates; no s=2 of single networks; `sum` and `concat` without BatchNorm only; 64×64 on regions"
            " most of which have fewer than 32 px; best and 64×64 did not hold",
        ),
        Test(
            4,
            "as 3, and the best baseline",
            f"baselines trained on our data, but for the whitening of `mkd`: plain `sum` {sums} above all of them too;"
            " methods whose weights were not to be had; s=1 at 64×64;"
            " [more on large regions](#patches-of-64-px-and-larger-regions)",
            "10,000 updates; all regions only",
        ),
        Test(
            5,
            "share of patches changed by a known amount that are found first among all, paired patch by patch;"
            " bootstrap over sequences, patches and trainings; beside it AUC, the share of other patches less similar,"
            " which depends on how far lost patches are",
            f"other sequences than these {len(sequences_of('validation'))} (trainings alone make"
            f" {min(shares):.0f} to {max(shares):.0f} % of an interval's width); changes of both patches at once, or"
            f" larger than {most['shift']} half sides, {most['rotation']} degrees, {most['scale']} octave",
            "mean similarity that is kept, which a descriptor that sees nothing keeps best; s=1, 10,000 updates;"
            " rotation did not hold",
        ),
        Test(
            6,
            f"similarity maps of {MAPPED_PAIRS} matching pairs of the validation sequences",
            "whether codes or features do it: plain `sum` only fails to be above itself; pairs that are not"
            " well aligned",
            "no s=2 of single networks; 10,000 updates",
        ),
        Test(7, "counted; memory of a process measured", "other frameworks"),
        Test(
            8,
            "as 3",
            "why M or BatchNorm helps",
            "M alone and with BatchNorm, both against plain `sum`; 10,000 updates; neither held; with two"
            f" seeds, both with BatchNorm held{_by_a_hair()}",
        ),
    ]


def _by_a_hair() -> str:
    """By how little M after `sum` gives something, both with BatchNorm."""
    excess = {
        task: a.mean - b.mean - spread(a, b) for task, a, b in zip(TASKS, *at_32("sum-m", "sum-batch"), strict=True)
    }
    beyond = [f"{gap:.3f} in {task}" for task, gap in excess.items() if gap > 0]
    return f", with three not, by {' and '.join(beyond)}" if beyond else ""


@cache
def _table_1() -> list[CountedRow]:
    return table_1()


def counts() -> Iterator[Claim]:
    """Statement 1, counted from the shapes of the tensors, which a test compares with live models."""
    rows = _table_1()
    free = [row for row in rows if row.variant != "fc"]
    same, independent = sum(row.agrees for row in rows), sum(row.independent_of_size for row in free)
    dual, fc = (parameters(c) for c in ({"variant": "dual", "s": 2}, {"variant": "fc"}))
    large = parameters({"variant": "fc", "patch_size": 64})
    text = f"{same} of {len(rows)} rows; `dual` s=2 {dual:,}, `fc` {fc:,}"
    yield Claim(1, "Parameter counts of Table 1", yes_or_no(same == len(rows)), text, "every row equal")
    text = f"{independent} of {len(free)}; `fc` grows to {large:,} at N = 64"
    yield Claim(
        1, "Counts do not depend on the patch size", yes_or_no(independent == len(free)), text, "equal at N and 2N"
    )


def trained_on(name: str, group: str) -> tuple[str, str]:
    """Experiment and name of a descriptor trained on a group at the paper's length."""
    return (FULL, f"{name}-n32") if group == "A" else ("full_transfer", f"{name}-on-{group}")


def transferred_by_geometry() -> Iterator[Claim]:
    """Statement 2: trained on one group, tested on the others."""
    kinds = {"ordinary": "random non-matches", "hard": "the non-matches most similar by RootSIFT"}
    for pairs, words in kinds.items():
        paper = {"ordinary": (" (paper: 1.36 ± .01 against 1.43 ± .02)", " (paper: 1.53 ± .03)")}.get(pairs, ("", ""))
        two_text = f"`dual` s=2 has a lower FPR@95 than `fc`{paper[0]}, {pairs} pairs"
        one_text = f"`dual` s=1 about equals `fc` or is better, with fewer parameters{paper[1]}, {pairs} pairs"
        two = lower_by_geometry("dual-s2", pairs, two_text, f"both ends below 0; {words}", 0.0)
        one = lower_by_geometry("dual-s1", pairs, one_text, "upper end at most a tenth of `fc` above 0", ABOUT)
        yield from (replace(claim, is_ours=pairs == "hard") for claim in (two, one))


def lower_by_geometry(name: str, pairs: str, text: str, rule: str, share: float) -> Claim:
    """A descriptor against `fc`, over the groups to train on; it may be worse by a share of `fc`."""
    sides = [[trained_on(n, group) for group in "ABC"] for n in (name, "fc")]
    ours, fc = (geometric(side, pairs) for side in sides)
    gap, limit = geometric_difference(*sides, pairs), share * fc.mean
    figures = [f"{ours.text()} against {fc.text()}, {gap.text()}"]
    trainings = {}
    for group, one, two in zip("ABC", *sides, strict=True):
        trainings[f"on {group}"] = count = min(len(runs(*one)), len(runs(*two)))
        figures.append(f"{group}{times(count)} {geometric_difference([one], [two], pairs).text()}")
    verdict = HOLDS if gap.high < limit else FAILS if gap.low > limit else LEVEL
    return Claim(2, text, limited(verdict, trainings), "; ".join(figures), rule)


# What statement 5 is tested with -> its experiment, and the names of the two in it.
TOLERANT = {
    "s=2": (FULL, "cartesian-s2-n32", "polar-s2-n32"),
    "s=1": (FULL, "cartesian-s1-n32", "polar-s1-n32"),
    UNAUGMENTED: (FULL_TURNED, "cartesian-s2-plain", "polar-s2-plain"),
}
SHORTER = (f"{UNAUGMENTED}, 10,000 updates", "turned")  # with two trainings of both
CENTRED = ("polar-fields-s2-plain", "cartesian-s2-plain")  # the first with its pole in the centre of a patch
BETTER_AT = {"shift": "cartesian", "rotation": "polar", "scale": "polar"}
BY_FIRST = " by the share found first"  # after a verdict that AUC does not share


def tolerance() -> Iterator[Claim]:
    """Statement 5: which coordinates tell patches apart under which change."""
    for change, one in BETTER_AT.items():
        (other,) = {"cartesian", "polar"} - {one}
        pairs = {
            words: tuple(runs(experiment, {"cartesian": cartesian, "polar": polar}[n]) for n in (one, other))
            for words, (experiment, cartesian, polar) in TOLERANT.items()
        }
        first, auc = ([paired(*two, change, what) for two in pairs.values()] for what in ("first", "auc"))
        by_first, by_auc = by_intervals(first), by_intervals(auc)
        trainings = {words: min(map(len, two)) for words, two in pairs.items()}
        said = [f"{words}{times(trainings[words])} {gap.text()}" for words, gap in zip(pairs, first, strict=True)]
        said.append(said_of_auc(by_auc, auc))
        if change == "rotation":
            said += about_the_pole()
        text = f"`{one}` tolerates {change} better than `{other}`"
        rule = f"both ends above 0 for s=2, s=1 and {UNAUGMENTED}"
        verdict = limited(with_auc(by_first, by_auc), trainings)
        yield Claim(5, text, verdict, "; ".join(said), rule)
    yield both_tolerances()
    weak = "One fully connected layer (`fc`) is weaker under displacement than `dual` s=2"
    yield more_tolerant("dual-s2", ("fc",), weak, tuple(CHANGES))
    rigid = "`concat` tolerates misplaced patches less than `cartesian` s=2"
    yield more_tolerant("cartesian-s2", ("concat", "concat-batch"), rigid, ("shift",))


def widths_by_trainings() -> Iterator[float]:
    """How much of the width of an interval of statement 5 trainings alone give."""
    for (experiment, cartesian, polar), change in product(TOLERANT.values(), BETTER_AT):
        pair = runs(experiment, polar), runs(experiment, cartesian)
        yield paired(*pair, change, "first", by_trainings_only=True).width / paired(*pair, change, "first").width


def with_auc(by_first: str, by_auc: str) -> str:
    """The verdict by the share found first, which says so where AUC has another."""
    return by_first if by_auc == by_first else by_first + BY_FIRST


def said_of_auc(verdict: str, gaps: Iterable[Interval]) -> str:
    """What AUC says of the same, beside the differences that decide."""
    return f"AUC: {verdict}, {', '.join(gap.text() for gap in gaps)}"


def about_the_pole() -> list[str]:
    """Turns about the pole of the polar grid, 1.5 px beside the centre of a patch, and a grid with it in the centre."""
    said = []
    for experiment, cartesian, polar in TOLERANT.values():
        pair = runs(experiment, polar), runs(experiment, cartesian)
        said.append(paired(*pair, "pole", "first").text() + times(min(map(len, pair))))
    label, short = SHORTER
    pair = runs(short, CENTRED[0]), runs(short, CENTRED[1])
    centred = paired(*pair, "rotation", "first").text()
    return [
        f"about the polar grid's pole, 1.5 px aside: {', '.join(said)}",
        f"{label}, pole centred{times(min(map(len, pair)))} {centred}",
    ]


def both_tolerances() -> Claim:
    """The combined encoding against the coordinates that should be better at each change."""
    sides = {name: runs(FULL, f"{name}-s2-n32") for name in ("combined", "cartesian", "polar")}
    verdicts, found = [], {}
    for what in ("first", "auc"):
        found[what] = {c: paired(sides["combined"], sides[one], c, what) for c, one in BETTER_AT.items()}
        kept = [gap.high >= 0 for gap in found[what].values()]
        verdicts.append(HOLDS if all(kept) else PART if any(kept) else FAILS)
    words = [f"{change} {gap.text()} to `{BETTER_AT[change]}`" for change, gap in found["first"].items()]
    text = "; ".join([*words, said_of_auc(verdicts[1], found["auc"].values())])
    claim = Claim(5, "`combined` s=2 tolerates what either does", with_auc(*verdicts), text, "no upper end below 0")
    return with_trainings(claim, min(map(len, sides.values())))


def more_tolerant(name: str, others: Sequence[str], text: str, changes: Sequence[str]) -> Claim:
    """An encoding against descriptors that the paper takes to be rigid."""
    sides = {n: runs(FULL, f"{n}-n32") for n in (name, *others)}
    first, auc = (
        {(n, change): paired(sides[name], sides[n], change, what) for n in others for change in changes}
        for what in ("first", "auc")
    )
    words = [f"{change} {gap.text()}" + f" to `{n}`" * (len(others) > 1) for (n, change), gap in first.items()]
    by_first, by_auc = (by_intervals(list(gaps.values())) for gaps in (first, auc))
    figures, rule = "; ".join([*words, said_of_auc(by_auc, auc.values())]), "both ends above 0, all of these"
    claim = Claim(5, text, with_auc(by_first, by_auc), figures, rule)
    return with_trainings(claim, min(map(len, sides.values())))


def maps() -> Iterator[Claim]:
    """Statement 6: similarity maps are high at p and fall off around it."""
    names, free = (*MAPPED, "cartesian-s2", "polar-s2", "combined-s2"), ("sum", "sum-batch", "sum-m")
    near = {name: score(FULL, f"{name}-n32", "maps", "near") for name in (*names, *free)}
    high = True
    for run in (run for name in names for run in runs(FULL, f"{name}-n32")):
        close, far = look(run, "maps", "by_distance")[:2], look(run, "maps", "by_distance")[2:]
        high &= look(run, "maps", "near") > 0.5 and min(close) > max(far)
    holds = high and all(better(near[name], near["sum"]) for name in names)
    chance = 100 * look(runs(FULL, "fc-n32")[0], "maps", "near_chance")
    low, most = (pick(near[name].mean for name in names) for pick in (min, max))
    without = ", ".join(f"`{name}` {near[name].mean:.1f}" for name in free)
    text = f"maximum within one cell of p in {low:.1f} to {most:.1f} % (`fc` {near['fc'].text(1)}; without codes"
    text += f" {without}; chance {chance:.1f})"
    rule = "more than half and more than `sum`; mean at 0 and 1 cells above that further away; every training"
    words = "Similarity maps of every architecture are high near p, of `fc` too"
    trainings = min(len(shares.values) for shares in near.values())
    yield with_trainings(Claim(6, words, yes_or_no(holds), text, rule), trainings)


def memory() -> Iterator[Claim]:
    """Statement 7: counted, and measured by benchmarks/aggregation_memory.py."""
    found = json.loads((BENCHMARKS / "aggregation_memory.json").read_text(encoding="utf-8"))
    ratio = found["numbers_a_patch"]["expanded"] / found["numbers_a_patch"]["aggregated"]
    measured = {part["pass"]: part["ratio"] for part in found["measured"]}  # of the largest batch
    words = ", ".join(f"{ratio} × ({name})" for name, ratio in measured.items())
    text = f"{ratio:.1f} × counted; process memory {words}"
    yield Claim(
        7, "20.9 times less memory in aggregation", yes_or_no(round(ratio, 1) == 20.9), text, "numbers per patch"
    )


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
