"""Verdicts on the paper's claims: one family of comparisons a claim, intervals that hold together, and fixed rules.

python experiments/paper/verdicts.py

A comparison is a weighted sum of scores that favours the claim above 0. Its interval covers other units (sequences of
images, groups of scenes tested on) and other trainings: a bootstrap of both at once, studentised; Student's quantiles
where there are three units or fewer. It has 95 % by itself, or together with all others of its family. What needs all
comparisons is read from the former (an intersection-union test, whose error is at most that of one), what needs one of
them from the latter (its error is that of the whole family).
`margin` is a difference that nobody would choose by: 0.5 points, for FPR@95 a tenth of that of `fc`. The rules:

better       holds: all above 0. Level: all within the margin. Does not hold: one below 0. In part: one above 0.
not worse    holds: all above 0, the margin added. Does not hold: one below it.
no gain      holds: all below the margin. Does not hold: one above it.
What is left is not decided.
"""

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
from choose import CANDIDATES, chosen, read_results
from scipy.stats import t as student

from matchkernel.cli.console import run_script

RESULTS = Path(__file__).parents[1] / "results"
TASKS = ("verification", "matching", "retrieval")
POINTS, SHARE = 0.5, 0.1  # margins: points of mAP or of patches found first; share of the FPR@95 of `fc`
FAR = 2.0  # points: "far behind"
UNITS = {**dict.fromkeys(TASKS, "mAP"), "ordinary": "FPR@95", "near": "%", "first": "found", "auc": "AUC"}
DRAWS, LEVEL, FEW = 20_000, 0.95, 3
HOLDS, FAILS, EQUAL, PART, OPEN = "holds", "does not hold", "level", "in part", "not decided"
ALONE = tuple(f"full/{name}-n32" for name in ("cartesian-s1", "cartesian-s2", "polar-s1", "polar-s2"))
BOTH = tuple(f"full/{name}-n32" for name in ("combined-s1", "combined-s2", "dual-s1"))
VARIANTS = ("full/fc-n32", *ALONE, *BOTH)  # beside the best; `sum` and `concat` have claims of their own
BASELINES = tuple(
    f"baselines/{name}"
    for name in (
        *("brief", "orb", "rootsift", "sift", "beblid", "teblid", "mkd-liberty", "mkd", "binboost", "vgg", "desdis-8"),
        *("desdis-16", "deepdesc", "desdis-32", "hardtfeat", "tfeat"),
    )
)
Blocks = list[np.ndarray]  # (trainings, units) each; the score of a unit is the sum over blocks


@dataclass(frozen=True)
class Comparison:
    """A sum of scores: `weights` by source FILE/JOB, of one score, less `threshold`."""

    weights: tuple[tuple[str, float], ...]
    score: str
    threshold: float = 0.0


@dataclass(frozen=True)
class Claim:
    """A row: its statement in the dated record, what the paper claims, comparisons and rule.

    Rows of one `family` share their intervals. `equal` is what the comparisons are, in margins, if models are equal.
    """

    statement: int
    text: str
    comparisons: tuple[Comparison, ...]
    rule: str = "better"
    family: str = ""
    equal: float = 0.0

    @property
    def needed(self) -> str:
        """What every interval has to show."""
        unit = UNITS[self.comparisons[0].score.split()[0]]
        if self.rule == "no gain":
            return f"< {POINTS} {unit}"
        limit = self.comparisons[0].threshold
        added = " (`fc` × 1.1)" if self.equal and not limit else ""
        return f"> {limit:g} {unit}{added}".replace("-", "−")


def against(
    ours: str, others: Sequence[str], scores: Sequence[str] = TASKS, sign: float = 1.0
) -> tuple[Comparison, ...]:
    """Ours less each other in each score."""
    return tuple(Comparison(((ours, sign), (other, -sign)), score) for other in others for score in scores)


def _tolerance(ours: str, theirs: str, change: str) -> tuple[Comparison, ...]:
    """Both measures, both s: one chosen on these sequences alone could not decide."""
    return tuple(
        Comparison(((f"full/{ours}-s{s}-n32", 1.0), (f"full/{theirs}-s{s}-n32", -1.0)), f"{measure} {change}")
        for s in (1, 2)
        for measure in ("first", "auc")
    )


def _in_tasks(*weights: tuple[str, float], threshold: float = 0.0) -> tuple[Comparison, ...]:
    return tuple(Comparison(weights, task, threshold) for task in TASKS)


BEST, FC, SUM, LIGHT = "full/dual-s2-n32", "full/fc-n32", "full/sum-n32", "full/cartesian-s1-n32"
SUM_BATCH, SUM_M, SUM_M_BATCH = "full/sum-batch-n32", "full/sum-m-plain-n32", "full/sum-m-n32"
LARGE = "full_64/dual-s2-n64"
CHANGES = [f"{measure} {change}" for change in ("shift", "rotation", "scale") for measure in ("first", "auc")]
NEAR = tuple(Comparison(((source, 1.0),), "near", 50.0) for source in (FC, BEST, *ALONE, *BOTH))
LOWER = against("dual-s2", ["fc"], ["ordinary"], -1.0)  # a lower FPR@95 is better
ABOUT = (Comparison((("dual-s1", -1.0), ("fc", 1.0 + SHARE)), "ordinary"),)  # the margin is measured, so resampled, too
LARGER = tuple(
    Comparison(((f"full_64/{name}-n64", 1.0), (f"full/{name}-n32", -1.0)), task)
    for name in ("fc", "cartesian-s1", "dual-s2")
    for task in TASKS
)
MOVED = {"shift": ("cartesian", "polar"), "rotation": ("polar", "cartesian"), "scale": ("polar", "cartesian")}
CLAIMS: dict[str, Claim] = {
    "table 2": Claim(2, "`dual` s=2 has a lower FPR@95 than `fc`", LOWER, family="2"),
    "table 2, light": Claim(2, "`dual` s=1 is about as good as `fc`", ABOUT, "not worse", "2", equal=1.0),
    "best": Claim(3, "`dual` s=2 is the best variant", against(BEST, VARIANTS)),
    "beats fc": Claim(3, "`dual` s=2 beats `fc`", against(BEST, [FC])),
    "frequencies": Claim(
        3, "`dual` s=2 beats `dual` s=1, with chosen settings", against("chosen/dual-s2", ["chosen/dual-s1"])
    ),
    "fewer": Claim(
        3,
        "`cartesian` s=1 is about as good as `fc`",
        _in_tasks((LIGHT, 1.0), (FC, -1.0), threshold=-POINTS),
        "not worse",
        equal=1.0,
    ),
    "larger": Claim(3, "patches of 64 px are better than of 32 px", LARGER),
    "sum": Claim(3, "`sum` is far behind `fc`", _in_tasks((FC, 1.0), (SUM, -1.0), threshold=FAR)),
    "sum, batch": Claim(3, "the same with BatchNorm", _in_tasks((FC, 1.0), (SUM_BATCH, -1.0), threshold=FAR)),
    "concat": Claim(3, "`concat` is no top performer", against(BEST, ["full/concat-n32"])),
    "light": Claim(
        3, "`cartesian` s=1 is nearer to `fc` than to `sum`", _in_tasks((LIGHT, 1.0), (SUM, -0.5), (FC, -0.5))
    ),
    "ahead": Claim(4, "`dual` s=2 is ahead of 16 other methods", against(BEST, BASELINES)),
    "beats fc, 64": Claim(4, "`dual` s=2 at 64 px beats `fc` of 32 and 64 px", against(LARGE, [FC, "full_64/fc-n64"])),
    "ahead, 64": Claim(4, "`dual` s=2 at 64 px is ahead of 16 other methods", against(LARGE, BASELINES)),
    **{
        name: Claim(5, f"`{ours}` tolerates {name} better than `{theirs}`", _tolerance(ours, theirs, name), family="5")
        for name, (ours, theirs) in MOVED.items()
    },
    "one layer": Claim(5, "`fc` tolerates less than `dual` s=2", against(BEST, [FC], CHANGES), family="5"),
    "maps": Claim(6, "similarity maps of every architecture are highest near position p", NEAR),
    "m after sum": Claim(8, "M after `sum` gives nothing", against(SUM_M, [SUM]), "no gain"),
    "m after sum, batch": Claim(8, "the same, both with BatchNorm", against(SUM_M_BATCH, [SUM_BATCH]), "no gain"),
}


@cache
def read(name: str) -> dict[str, Any]:
    """A file of results."""
    found: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def trainings(source: str) -> list[dict[str, Any]]:
    """The scores of all trainings of FILE/JOB, by seed; chosen/VARIANT is the job that validation chose for it."""
    file, job = source.split("/")
    if file == "chosen":
        file, job = chosen(read_results(RESULTS))[job].split("/")
    names = (
        [job] if job in read(file) else [f"{job}-seed{seed}" for seed in range(10) if f"{job}-seed{seed}" in read(file)]
    )
    return [read(file)[name]["scores"] for name in names]


@cache
def _cached_blocks(source: str, score: str) -> tuple[np.ndarray, ...]:
    if score == "ordinary":  # by the group tested on: half from each of the two groups trained on, the blocks
        sources = {"A": f"full/{source}-n32", **{group: f"full_transfer/{source}-on-{group}" for group in "BC"}}
        return tuple(
            np.array(
                [
                    [50 * scores["geometry"][o]["ordinary"]["fpr95"] if o != group else 0.0 for o in "ABC"]
                    for scores in trainings(own)
                ]
            )
            for group, own in sources.items()
        )
    if score == "near":
        return (np.array([[100 * scores["maps"]["near"]] for scores in trainings(source)]),)
    if score in TASKS:
        rows = [scores["test"]["by_sequence"] for scores in trainings(source)]
        return (np.array([[100 * by[name][score] for name in sorted(by)] for by in rows]),)
    if score == "validation":  # the mean of the tasks
        rows = [scores["validation"]["by_sequence"] for scores in trainings(source)]
        return (np.array([[100 * fmean(by[name][task] for task in TASKS) for name in sorted(by)] for by in rows]),)
    measure, change = score.split()
    curves = [scores["separability"][change] for scores in trainings(source)]
    if measure == "auc":
        patches = [100 - np.array(curve["auc_missing_by_patch"].split(), float) / 100 for curve in curves]
    else:
        changed = sum(amount != 0 for amount in curves[0]["amounts"])
        patches = [100 / changed * np.array(curve["first_by_patch"].split(), float) for curve in curves]
    return (np.array([part.reshape(6, -1).mean(1) for part in patches]),)  # by validation sequence


def blocks_of(source: str, score: str) -> Blocks:
    """Scores in percent, (trainings, units) of each block."""
    return list(_cached_blocks(source, score))


def mean_of(blocks: Blocks) -> np.ndarray:
    """(units,) mean over trainings."""
    return np.sum([block.mean(0) for block in blocks], axis=0)


Values = Mapping[tuple[str, str], Blocks]


def values_of(
    comparisons: Sequence[Comparison], instead: Mapping[str, str] | None = None
) -> dict[tuple[str, str], Blocks]:
    """The stored scores that comparisons need; of other models for those that `instead` names."""
    needed = {(source, c.score) for c in comparisons for source, _ in c.weights}
    return {(source, score): blocks_of((instead or {}).get(source, source), score) for source, score in sorted(needed)}


def intervals(comparisons: Sequence[Comparison], values: Values, draws: int = DRAWS, seed: int = 0) -> np.ndarray:
    """(comparisons, 5) value, low and high by itself, low and high of the family.

    Trainings and units are drawn with replacement, the same for all scores of a model; deviations of few trainings are
    widened by sqrt(T / (T - 1)).
    """
    random = np.random.default_rng(seed)
    shapes = {source: [len(block) for block in blocks] for (source, _), blocks in values.items()}
    chosen = {source: [random.integers(t, size=(draws, t)) for t in own] for source, own in shapes.items()}
    units = next(iter(values.values()))[0].shape[1]
    places = random.integers(units, size=(draws, units))
    exact, drawn, noise = {}, {}, {}
    for (source, score), blocks in values.items():
        moved, variance = np.zeros((draws, units)), 0.0
        for block, index in zip(blocks, chosen[source], strict=True):
            count, mean = len(block), block.mean(0)
            wider = np.sqrt(count / (count - 1)) if count > 1 else 0.0
            moved += mean + wider * (block[index] - mean).mean(1)
            variance += block.mean(1).var(ddof=1) / count if count > 1 else 0.0
        exact[source, score], noise[source, score] = mean_of(blocks), variance
        drawn[source, score] = np.take_along_axis(moved, places, 1)
    found, sizes = [], []
    for c in comparisons:
        one = sum(w * exact[source, c.score] for source, w in c.weights)
        many = sum(w * drawn[source, c.score] for source, w in c.weights)
        of_trainings = sum(w**2 * noise[source, c.score] for source, w in c.weights)
        found.append((one.mean() - c.threshold, _deviation(one[None], of_trainings)[0]))
        sizes.append(np.abs(many.mean(1) - one.mean()) / _deviation(many, of_trainings))
    alone, together = np.quantile(sizes, LEVEL, axis=1), np.quantile(np.max(sizes, axis=0), LEVEL)
    if units <= FEW:  # or nothing but trainings: too few to draw from. Of a family by Sidak's rule
        freedom = (units if units > 1 else min(len(block) for blocks in values.values() for block in blocks)) - 1
        alone = np.full(len(sizes), student.ppf((1 + LEVEL) / 2, freedom))
        together = student.ppf((1 + LEVEL ** (1 / len(sizes))) / 2, freedom)
    return np.array(
        [(v, v - t * d, v + t * d, v - together * d, v + together * d) for (v, d), t in zip(found, alone, strict=True)]
    )


def _deviation(rows: np.ndarray, of_trainings: float) -> np.ndarray:
    """Standard deviation of the means of (draws, units), for other units and other trainings."""
    of_units = rows.var(1, ddof=1) / rows.shape[1] if rows.shape[1] > 1 else np.zeros(len(rows))
    return np.sqrt(np.maximum(of_units + of_trainings, 1e-12))


def verdict(found: np.ndarray, rule: str, margin: float) -> str:
    """What the intervals of a claim decide; see the top."""
    _, low, high, low_of_one, high_of_one = found.T
    if rule == "better":
        if (low > 0).all():
            return HOLDS
        if (low > -margin).all() and (high < margin).all():
            return EQUAL
        if (high_of_one < 0).any():
            return FAILS
        return PART if (low_of_one > 0).any() else OPEN
    if rule == "no gain":
        low, high_of_one = margin - high, margin - low_of_one
    if (low > 0).all():
        return HOLDS
    return FAILS if (high_of_one < 0).any() else OPEN


def family_of(name: str) -> list[str]:
    """The claims whose intervals hold together with those of a claim."""
    family = CLAIMS[name].family
    return [other for other, claim in CLAIMS.items() if other == name or (family and claim.family == family)]


def margin_of(claim: Claim, values: Values) -> float:
    """In points."""
    if claim.comparisons[0].score != "ordinary":
        return POINTS
    return SHARE * float(mean_of(values["fc", "ordinary"]).mean())


def decide(name: str, values: Values | None = None, draws: int = DRAWS, seed: int = 0) -> tuple[str, np.ndarray]:
    """The verdict of a claim, and the intervals of its comparisons, of stored scores unless others are given."""
    names = family_of(name)
    comparisons = [c for other in names for c in CLAIMS[other].comparisons]
    values = values_of(comparisons) if values is None else values
    first = sum(len(CLAIMS[other].comparisons) for other in names[: names.index(name)])
    claim = CLAIMS[name]
    own = intervals(comparisons, values, draws, seed)[first : first + len(claim.comparisons)]
    return verdict(own, claim.rule, margin_of(claim, values)), own


@cache
def decided(name: str, is_fair: bool = False) -> tuple[str, np.ndarray]:
    """As `decide`; `is_fair` takes each variant with its best settings on validation, see choose.py."""
    if not is_fair:
        return decide(name)
    winners = {f"full/{variant}-n32": winner for variant, winner in chosen(read_results(RESULTS)).items()}
    return decide(name, values_of([c for other in family_of(name) for c in CLAIMS[other].comparisons], winners))


def text(interval: np.ndarray, comparison: Comparison) -> str:
    """A value with its interval, as measured: a threshold is not subtracted, and a share has no sign."""
    sign = "" if comparison.score == "near" else "+"
    numbers = interval[:3] + comparison.threshold
    value, low, high = (f"{number:{sign}.2f}".replace("-", "−") for number in numbers)
    return f"{value} [{low}, {high}]"


def deciding(name: str, is_fair: bool = False) -> str:
    """The interval that decided: the one least in favour of the claim, of `no gain` the most.

    Where scores have several units, differences count in half widths of their intervals, and the unit is named.
    """
    claim, (said, own) = CLAIMS[name], decided(name, is_fair)
    units = [UNITS[c.score.split()[0]] for c in claim.comparisons]
    if len(set(units)) > 1:
        place = (own[:, 0] / (own[:, 2] - own[:, 0])).argmin()
        return f"{text(own[place], claim.comparisons[place])} {units[place]}"
    if claim.rule == "no gain":
        place = own[:, 3 if said == FAILS else 2].argmax()
    else:
        place = own[:, 4 if said == FAILS else 1].argmin()
    return text(own[place], claim.comparisons[place])


def variants_of(claim: Claim) -> set[str]:
    """Our variants in a claim that the fair table can judge; none if it needs other sets or other scores."""
    sources = {source for c in claim.comparisons for source, _ in c.weights if not source.startswith("baselines/")}
    variants = {source.removeprefix("full/").removeprefix("chosen/").removesuffix("-n32") for source in sources}
    return variants if variants <= set(CANDIDATES) and all(c.score in TASKS for c in claim.comparisons) else set()


def main() -> None:
    """Print all rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fair", action="store_true", help="each variant with its best settings on validation")
    is_fair = parser.parse_args().fair
    winners = chosen(read_results(RESULTS))
    for name, claim in CLAIMS.items():
        if is_fair and not variants_of(claim):
            continue
        if is_fair and (missing := sorted(variants_of(claim) - set(winners))):
            print(f"{claim.statement}  {claim.text}: no settings chosen yet for {', '.join(missing)}")
            continue
        said, own = decided(name, is_fair)
        above, below = int((own[:, 3] > 0).sum()), int((own[:, 4] < 0).sum())
        print(f"{claim.statement}  {claim.text}: {said}; of {len(own)} together {above} above 0, {below} below")
        for comparison, found in zip(claim.comparisons, own, strict=True) if len(own) <= 9 else []:
            print(f"      {comparison.score:15} {text(found, comparison)}")
        if len(own) > 9:
            print(f"      {'the least':15} {deciding(name, is_fair)}")
        if claim.comparisons == ABOUT:
            (raw,) = against("dual-s1", ["fc"], ["ordinary"], -1.0)
            found = intervals([raw], values := values_of([raw]))[0]
            print(f"      {'fixed margin':15} {text(found, raw)}, {margin_of(claim, values):.2f} allowed")
    for variant in winners if is_fair else ():
        for one, other in combinations(CANDIDATES[variant], 2):
            (c,) = against(other, [one], ["validation"])
            print(f"validation: {other} less {one}: {text(intervals([c], values_of([c]))[0], c)}")


if __name__ == "__main__":
    run_script(main)
