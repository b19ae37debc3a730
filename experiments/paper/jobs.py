"""Every model of the experiments as tables: a name, the settings it changes (as `--set` takes them), what is measured.

To add a model, add a line to a table (or a table to EXPERIMENTS). Names of jobs are the keys of the results in
experiments/results: a job whose settings change needs a new name.
"""

import json
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from job import GEOMETRY, HALF_LIGHT, KAPPA, LIGHT, PAPER, SCREENING, SEEDS, WHOLE_LIGHT, Job, seeded
from own_jobs import poses, recipe, ship, students

STEPS = "sampling.steps=10000"  # of 512 pairs, in the paper's experiments

# The HPatches experiment: all at N = 32; the light ones with s = 1, `dual` with both; `full` has s = 2 of all.
DESCRIPTORS = {
    "fc": "model.variant=fc",
    "dual-s2": "model.variant=dual model.s=2",
    "dual-s1": "model.variant=dual model.s=1",
    "cartesian-s1": "model.variant=cartesian model.s=1",
    "polar-s1": "model.variant=polar model.s=1",
    "combined-s1": "model.variant=combined model.s=1",
    "sum": "model.variant=sum",
    "concat": "model.variant=concat",
}
# M after `sum`: with s = 0 the position code is constant, so M is applied to the plain sum of the map; with BatchNorm
# after it, as after every M here, and without.
PROJECTED_SUMS = {
    "sum-m": "model.variant=cartesian model.s=0 model.center_weight=false",
    "sum-m-plain": "model.variant=cartesian model.s=0 model.center_weight=false model.output_norm=none",
}
AT_64 = ("fc", "cartesian-s1", "dual-s2")  # trained at N = 64 too
# The paper's Figure 3 at the paper's length, most decisive first: `sum` and `concat` also with the BatchNorm that
# HardNet has after its last layer, and `sum` followed by M, with it and without.
FIGURE_3 = {
    "fc": "model.variant=fc",
    "dual-s2": "model.variant=dual model.s=2",
    "dual-s1": "model.variant=dual model.s=1",
    "cartesian-s1": "model.variant=cartesian model.s=1",
    "polar-s2": "model.variant=polar model.s=2",
    "cartesian-s2": "model.variant=cartesian model.s=2",
    "sum-batch": "model.variant=sum model.output_norm=batch",
    **PROJECTED_SUMS,
    "concat-batch": "model.variant=concat model.output_norm=batch",
    "polar-s1": "model.variant=polar model.s=1",
    "combined-s2": "model.variant=combined model.s=2",
    "combined-s1": "model.variant=combined model.s=1",
    "sum": "model.variant=sum",
    "concat": "model.variant=concat",
}
MAPPED = ("fc", "dual-s2", "dual-s1", "cartesian-s1", "polar-s1", "combined-s1")  # similarity maps and tolerance
CONTROL = "sum"  # measured with them: what features without a position give
RESIZED = ("dual-s2", "dual-s1", "cartesian-s1")  # used at other patch sizes too
TRANSFERRED = ("fc", "dual-s1", "dual-s2")  # trained on every group, tested on the others

DUAL_2 = DESCRIPTORS["dual-s2"]

KAPPAS = (1, 2, 4, 8, 16)
ABLATION_BASE = f"model.variant=dual model.s=2 {KAPPA.format(8)} {SCREENING}"  # whatever the defaults become
# One change at a time from the base above, trained on group A.
ABLATION = {
    **{f"kappa-s{s}-{k}": f"model.s={s} {KAPPA.format(k)}" for s, k in product((1, 2, 3), KAPPAS) if (s, k) != (2, 8)},
    "encoding-norm-s1": f"model.s=1 {KAPPA.format(1)} model.encoding_norm=true",  # to compare with kappa-s1-1
    "encoding-norm-s2": "model.encoding_norm=true",
    "output-norm-none": "model.output_norm=none",
    "pairs-1024": "sampling.pairs=1024",
    "pairs-2048": "sampling.pairs=2048",
    "pairs-4096": "sampling.pairs=4096",
    "dropout-0.1": "model.dropout=0.1",
    "dropout-0.3": "model.dropout=0.3",
    "statistics-joint": "loop.statistics=joint",
    "geometry-none": GEOMETRY.format(0.0, 0.0, 0.0),  # none, half and double of the preset's
    "geometry-half": GEOMETRY.format(4.0, 0.06, 0.025),
    "geometry-double": GEOMETRY.format(16.0, 0.24, 0.1),
    "photometric-half": HALF_LIGHT,
    "photometric-whole": WHOLE_LIGHT,
    "photometric-double": LIGHT.format(0.8, 0.6, 0.4, 1.4, 8.0),
}
MAGNIFICATIONS = (5, 8, 10)  # beside 6, that of the ordinary sets
TRACKS = "tracks"  # the cut without geometric positives

# Settings of `dual` among which the best s is chosen on validation; those chosen are trained at full length.
DUAL_GRID = {
    f"dual-s{s}-kappa{k}-{amount}": f"model.variant=dual model.s={s} {KAPPA.format(k)} {geometry}"
    for s, k in product((1, 2), (1, 8, 16))
    for amount, geometry in (("preset", ""), ("double", GEOMETRY.format(16.0, 0.24, 0.1)))
}
# What was never tried, one change at a time from `dual` s = 2 and from `fc`.
UNTRIED = {
    "dual-no-weight": f"{DUAL_2} model.center_weight=false",
    "dual-endpoints": f"{DUAL_2} model.grid=endpoints",
    "dual-fields": f"{DUAL_2} model.grid=fields",
    "dual-kappa-1-8": f"{DUAL_2} model.kappa_cartesian=1.0",  # those of the first author's hand-crafted descriptor
    "dual-kappa-8-1": f"{DUAL_2} model.kappa_polar=1.0",
    "fc-dropout-0": "model.variant=fc model.dropout=0.0",
    "fc-dropout-0.1": "model.variant=fc model.dropout=0.1",
    "fc-dropout-0.2": "model.variant=fc model.dropout=0.2",
    "fc-dropout-0.5": "model.variant=fc model.dropout=0.5",
    "dual-text": f"{DUAL_2} preset=paper-text",
    "fc-text": "model.variant=fc preset=paper-text",
}
# Which coordinates tolerate which change without geometric augmentation in training; and the polar grid with its pole
# in the centre of the patch instead of 1.5 px beside it.
TURNED = {
    "cartesian-s2": "model.variant=cartesian model.s=2",
    "polar-s2": "model.variant=polar model.s=2",
    "polar-fields-s2": "model.variant=polar model.s=2 model.grid=fields",
}
GRID_RESULTS = Path(__file__).parents[1] / "results" / "dual_grid.json"
LARGE_REGIONS = "large"  # the cut of regions of at least 64 px


def descriptors() -> Iterator[Job]:
    """The HPatches experiment: every descriptor, trained on group A, three seeds; three of them at N = 64 too."""
    asked = {"groups": TRANSFERRED, "sizes": RESIZED, "tolerance": (*MAPPED, CONTROL), "maps": (*MAPPED, CONTROL)}
    for seed, (name, text) in product(SEEDS, DESCRIPTORS.items()):
        scores = [score for score, names in asked.items() if name in names]
        yield seeded(f"{name}-n32", "A", f"{text} {STEPS}", seed, ("test", "strips", *scores))
    for (name, text), seed in product(PROJECTED_SUMS.items(), SEEDS):
        yield seeded(f"{name}-n32", "A", f"{text} {STEPS}", seed, ("test", "strips"))
    for seed, name in product(SEEDS, AT_64):
        text = f"{DESCRIPTORS[name]} model.patch_size=64 {STEPS}"
        yield seeded(f"{name}-n64", "A", text, seed, ("test", "strips"))


def full() -> Iterator[Job]:
    """Figure 3 at the paper's length; every model with seed 0 before any with seed 1."""
    for seed, (name, text) in product(SEEDS, FIGURE_3.items()):
        maps = () if name.startswith("concat") else ("maps",)
        pole = ("pole",) if name.startswith(("cartesian", "polar")) else ()
        yield seeded(f"{name}-n32", "A", f"{text} {PAPER}", seed, ("test", "separability", "places", *pole, *maps))


def full_64() -> Iterator[Job]:
    """Three of them at N = 64."""
    for seed, name in product(SEEDS, AT_64):
        text = f"{FIGURE_3[name]} model.patch_size=64 {PAPER}"
        yield seeded(f"{name}-n64", "A", text, seed, ("test",))


def full_transfer() -> Iterator[Job]:
    """The other groups to train on, at the paper's length (A is in `full`)."""
    for seed, group, name in product(SEEDS, "BC", TRANSFERRED):
        yield seeded(f"{name}-on-{group}", group, f"{DESCRIPTORS[name]} {PAPER}", seed)


def dual_grid() -> Iterator[Job]:
    """Settings of `dual` to choose among on validation."""
    yield from (seeded(name, "A", f"{text} {STEPS}", 0) for name, text in DUAL_GRID.items())


def best_of_grid(results: Mapping[str, Any]) -> dict[int, str]:
    """s -> the best settings of `dual` on validation, by the mean of the three tasks; empty until all are trained."""
    if any(f"{name}-seed0" not in results for name in DUAL_GRID):
        return {}

    def mean(name: str) -> float:
        found = results[f"{name}-seed0"]["scores"]["validation"]
        return sum(float(found[task]) for task in ("verification", "matching", "retrieval"))

    return {s: max((name for name in DUAL_GRID if name.startswith(f"dual-s{s}-")), key=mean) for s in (1, 2)}


def confirmed() -> Iterator[Job]:
    """The best settings of each s at the paper's length, on test; known when `dual_grid` has results."""
    results = json.loads(GRID_RESULTS.read_text(encoding="utf-8")) if GRID_RESULTS.exists() else {}
    for seed, name in product(SEEDS, best_of_grid(results).values()):
        yield seeded(name, "A", f"{DUAL_GRID[name]} {PAPER}", seed, ("test",))


def untried() -> Iterator[Job]:
    """Settings never tried."""
    for seed, (name, text) in product((0, 1), UNTRIED.items()):
        yield seeded(name, "A", f"{text} {STEPS}", seed)


def turned(length: str) -> Iterator[Job]:
    """Models whose tolerance is not trained: without geometric augmentation (those with it are in `full`)."""
    for seed, (name, text) in product(SEEDS, TURNED.items()):
        unchanged = f"{text} {GEOMETRY.format(0.0, 0.0, 0.0)} {length}"
        yield seeded(f"{name}-plain", "A", unchanged, seed, ("separability", "pole"))


def large(length: str) -> Iterator[Job]:
    """32 against 64 px, trained and tested on regions that have 64 px or more."""
    for seed, name, size in product(SEEDS, AT_64, (32, 64)):
        text = f"{FIGURE_3[name]} model.patch_size={size} {length}"
        cuts = {"train_cut": LARGE_REGIONS, "score_cut": LARGE_REGIONS}
        yield seeded(f"{name}-n{size}", "A", text, seed, ("test",), **cuts)


def transfer() -> Iterator[Job]:
    """The protocol of the paper's Table 2: train on B and on C, test on the two others (A is in `descriptors`)."""
    for seed, group, name in product(SEEDS, "BC", TRANSFERRED):
        yield seeded(f"{name}-on-{group}", group, f"{DESCRIPTORS[name]} {STEPS}", seed, ("groups",))


def ablation() -> Iterator[Job]:
    """One change at a time; `base` with two seeds; then positives (on group B) and magnifications."""
    yield from (seeded("base", "A", ABLATION_BASE, seed) for seed in (0, 1))
    yield from (seeded(name, "A", f"{ABLATION_BASE} {change}", 0) for name, change in ABLATION.items())
    yield seeded(
        "positives-geometric", "B", ABLATION_BASE, 0
    )  # brandenburg of B has the keypoints they are found among
    yield seeded("positives-tracks", "B", ABLATION_BASE, 0, train_cut=TRACKS)
    for m in MAGNIFICATIONS:
        yield seeded(f"magnification-{m}", "A", ABLATION_BASE, 0, train_cut=f"x{m}", score_cut=f"x{m}")


EXPERIMENTS: dict[str, list[Job]] = {
    "descriptors": list(descriptors()),
    "transfer": list(transfer()),
    "ablation": list(ablation()),
    "recipe": list(recipe()),
    "ship": list(ship()),
    "poses": list(poses()),
    "students": list(students()),
    "full": list(full()),
    "full_64": list(full_64()),
    "full_transfer": list(full_transfer()),
    "dual_grid": list(dual_grid()),
    "confirmed": list(confirmed()),
    "untried": list(untried()),
    "turned": list(turned(STEPS)),
    "full_turned": list(turned(PAPER)),
    "large": list(large(STEPS)),
    "full_large": list(large(PAPER)),
}
