"""Every model of the experiments as tables: a name, the settings it changes (as `--set` takes them), what is measured.

To add a model, add a line to a table (or a table to EXPERIMENTS). Names of jobs are the keys of the results in
experiments/results: a job whose settings change needs a new name.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product
from math import log2
from pathlib import Path
from typing import Any

from matchkernel.storage.settings import merged, parse_override

Settings = dict[str, Any]
SEEDS = (0, 1, 2)
AGAIN = "-seed1"  # ending of the names of second trainings in `ship`
STEPS = "sampling.steps=10000"  # of 512 pairs, in the paper's experiments
SCREENING = "sampling.steps=5000"  # when choices are compared on validation

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
# HardNet has after its last layer, and `sum` followed by M.
FIGURE_3 = {
    "fc": "model.variant=fc",
    "dual-s2": "model.variant=dual model.s=2",
    "dual-s1": "model.variant=dual model.s=1",
    "cartesian-s1": "model.variant=cartesian model.s=1",
    "polar-s2": "model.variant=polar model.s=2",
    "cartesian-s2": "model.variant=cartesian model.s=2",
    "sum-batch": "model.variant=sum model.output_norm=batch",
    "sum-m": PROJECTED_SUMS["sum-m"],
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
HYNET = "loss.same_side=true loss.hybrid=2.0 loss.margin=1.2"
GEOMETRY = "augmentation.rotation_degrees={} augmentation.scale_octaves={} augmentation.shift={}"
LIGHT = (
    "augmentation.gamma={} augmentation.contrast={} augmentation.light_gradient={}"
    " augmentation.blur={} augmentation.noise={}"
)
HALF_LIGHT, WHOLE_LIGHT = LIGHT.format(0.2, 0.15, 0.1, 0.35, 2.0), LIGHT.format(0.4, 0.3, 0.2, 0.7, 4.0)
SIZES = "sampling.patch_sizes=[24,32,48]"

KAPPAS = (1, 2, 4, 8, 16)
KAPPA = "model.kappa_cartesian={0}.0 model.kappa_polar={0}.0"
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

RECIPE_BASE = f"model.variant=dual model.s=1 {SCREENING} sampling.pairs=1024"
# One change at a time from the base above, trained on all scenes that shipped weights may see.
RECIPE = {
    "base": "",
    f"base{AGAIN}": "seed=1",
    "photometric": WHOLE_LIGHT,
    "pairs-2048": "sampling.pairs=2048",
    "same-side": "loss.same_side=true",
    "s2-kappa8": "model.s=2",
    "s2-kappa2": f"model.s=2 {KAPPA.format(2)}",
    "cartesian": "model.variant=cartesian",
    "hynet-loss": HYNET,
    "encoding-norm": "model.encoding_norm=true",
    "geometry": f"{GEOMETRY.format(15.0, 0.25, 0.1)} augmentation.aspect_octaves=0.15",
    "second-order": "loss.same_side=true loss.squared=true loss.second_order=1.0",
    "average": "optimizer.average=0.999",
    "mixed-sizes": SIZES,
    "cosine": "optimizer.schedule=cosine",
    "rate-half": "optimizer.rate=5.0",
    "rate-double": "optimizer.rate=20.0",
    "cartesian-s2": "model.variant=cartesian model.s=2",
    "polar": "model.variant=polar",
    "combined": "model.variant=combined",
}
BEST = "best-2048"  # changes of the recipe that gained, together
BEST_BASE = f"model.s=2 sampling.pairs=2048 {HYNET} optimizer.rate=20.0"
# One change at a time from `best-2048`; the last three are the candidates for the light model of the package.
BEST_CHANGES = {
    "": "",
    "-rate-40": "optimizer.rate=40.0",
    "-geometry": f"{GEOMETRY.format(11.0, 0.18, 0.075)} augmentation.aspect_octaves=0.08",
    "-photometric": HALF_LIGHT,
    "-encoding-norm": "model.encoding_norm=true",
    "-s1": "model.s=1",
    "-mixed-sizes": SIZES,
    "-in-4096": "sampling.pairs=4096 sampling.steps=2500",  # the same total number of pairs in larger batches
    "-in-8192": "sampling.pairs=8192 sampling.steps=1250",
    "-cartesian": "model.variant=cartesian model.s=1",
    "-polar": "model.variant=polar model.s=1",
    "-combined": "model.variant=combined model.s=1",
}
SIZED = ("mixed-sizes", BEST, f"{BEST}-mixed-sizes")  # recipes that are used at other patch sizes too

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
# Which coordinates tolerate which change: with the preset's geometric augmentation and without any, and the polar grid
# with its pole in the centre of the patch instead of 1.5 px beside it.
TURNED = {
    "cartesian-s2": "model.variant=cartesian model.s=2",
    "polar-s2": "model.variant=polar model.s=2",
    "polar-fields-s2": "model.variant=polar model.s=2 model.grid=fields",
}
GRID_RESULTS = Path(__file__).parents[1] / "results" / "dual_grid.json"
LARGE_REGIONS = "large"  # the cut of regions of at least 64 px

LARGE = "sampling.pairs=4096 sampling.steps=6000"
DUAL, PAPER = "model.variant=dual model.s=2", "sampling.steps=39060"  # the paper's 20 million pairs, in batches of 512
OUR_LOSS = f"{HYNET} optimizer.rate=40.0"
OUR_RECIPE = f"{LARGE} {OUR_LOSS}"
# Models trained twice, then what lies between the paper's recipe and ours, trained once.
BY_PAPER = {"dual-paper": f"{DUAL} {PAPER}", "fc": f"model.variant=fc {PAPER}"}
BY_US = {
    "dual": f"{DUAL} model.encoding_norm=true {OUR_RECIPE}",
    "light-cartesian": f"model.variant=cartesian model.s=1 model.encoding_norm=true {OUR_RECIPE}",
}
BETWEEN = {
    "dual-paper-in-4096": f"{DUAL} {LARGE}",
    "dual-hynet-in-4096": f"{DUAL} {LARGE} {HYNET}",
    "fc-by-our-recipe": f"model.variant=fc {OUR_RECIPE}",
    "dual-in-2048": f"{DUAL} model.encoding_norm=true {OUR_LOSS} sampling.pairs=2048 sampling.steps=12000",
}
# Regions that models by our recipe are trained on -> their cut, and octaves of zoom: down to those of 6 sigma.
REGIONS = {"x6": ("", 0.0)} | {f"x6-to-x{m}": (f"x{m}", round(log2(m / 6), 3)) for m in (8, 10, 12)}
# Changes of `light`'s recipe that are scored by poses (docs/photos.md) at half its length: regions, photometric
# changes, and batches that hold several points of the same photos; then what gained, at full length.
HALF_LENGTH = "sampling.steps=3000"
FOR_POSES = {
    **{region: (region, "") for region in REGIONS},
    "x6-to-x8-photometric": ("x6-to-x8", HALF_LIGHT),
    "x6-to-x8-per-photo-16": ("x6-to-x8", "sampling.per_photo=16"),
}
FOR_PHOTOS = "x6-to-x12"  # the regions whose weights found the best poses on validation, at half length
# Models of the package -> the jobs of `ship`, of `poses` and of `students` that they come from.
FROM_POSES, FROM_STUDENTS = {"light-wide": f"light-{FOR_PHOTOS}-seed0"}, {"tiny": "tiny-seed0"}
PACKAGE = {"dual": "dual-x6", "light": "light-cartesian-x6", "dual-paper": "dual-paper", "fc": "fc"}


# Small networks that learn from larger ones. The width is that of the first convolution, which halves the map at once.
STUDENT_NETWORKS = {
    "w8": "model.d=32 model.widths=[8,8,16,16,32] model.halvings=[1,4]",
    "w16": "model.d=64 model.widths=[16,16,32,32,64] model.halvings=[1,4]",
    "w32": "model.d=128 model.widths=[32,32,64,64,128] model.halvings=[1,4]",
    "w16-four": "model.d=64 model.widths=[16,32,64] model.halvings=[1,2]",
    "w16-five": "model.d=64 model.widths=[16,32,64,64] model.halvings=[1,2]",
    "w16-four-late": "model.d=64 model.widths=[16,32,64] model.halvings=[1,3]",
    "w32-four": "model.d=128 model.widths=[32,64,128] model.halvings=[1,2]",
    "w16-s2": "model.d=64 model.widths=[16,16,32,32,64] model.halvings=[1,4] model.s=2",
    "w16-combined": "model.d=64 model.widths=[16,16,32,32,64] model.halvings=[1,4] model.variant=combined",
}
# What a student copies from its teacher, tried on `w16`.
COPIED = {
    "alone": None,
    "rows": "teacher.rows=1.0",
    "rows-4": "teacher.rows=4.0",
    "rows-only": "teacher.rows=1.0 teacher.pairs=0.0",
    "similarities": "teacher.rows=0.0 teacher.similarities=0.5",
    "similarities-2": "teacher.rows=0.0 teacher.similarities=2.0",
}
# Ensembles that teach: weights kept by their experiments.
WIDE_TEACHERS = ("students/teacher-dual", "poses/light-x6-to-x12-seed0", "students/teacher-light-seed1")
STUDENT_LENGTH = "sampling.pairs=4096 sampling.steps=1500"
# Regions of 6 sigma, their teachers, and the networks that learn from them longer. `tiny` is to describe 8 times as
# many patches a second as HardNet, 16 times in int8. Processors differ, so of those with a quarter more than that where
# the choice was made the best by matching and retrieval together is taken.
TEACHERS = ("ship/dual-x6", "ship/light-cartesian-x6")
LONGER = ("w16-four", "w16-five", "w16", "w32-four")
LONGER_LENGTH = "sampling.pairs=4096 sampling.steps=4000"
TINY = "w16-four"
TINY_LENGTH = "sampling.pairs=4096 sampling.steps=8000"


@dataclass(frozen=True)
class Job:
    """One model."""

    name: str
    train: str  # a group of scenes, see data.scenes_of
    settings: Settings  # override the preset `paper`
    scores: tuple[str, ...] = ()  # beyond validation: test, strips, groups, sizes, tolerance, maps, separability,
    #                        places, geometry
    train_cut: str = ""  # trained on SETS/<train_cut>/<scene>: another cut of the same photos
    score_cut: str = ""  # scored on SETS/<score_cut>/...
    teachers: tuple[str, ...] = ()  # KEEP/<teacher>.safetensors each


def settings(*texts: str) -> Settings:
    """Settings written as `table.key=value ...`; later ones override earlier ones."""
    return merged(*map(parse_override, " ".join(texts).split()))


def seeded(name: str, train: str, text: str, seed: int, scores: Iterable[str] = (), **cuts: str) -> Job:
    """A job with this seed, which is part of its name."""
    return Job(f"{name}-seed{seed}", train, settings(text, f"seed={seed}"), tuple(scores), **cuts)


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
        yield seeded(f"{name}-n32", "A", f"{text} {PAPER}", seed, ("test", "separability", "places", *maps))


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
    """Settings never tried, two seeds."""
    for seed, (name, text) in product((0, 1), UNTRIED.items()):
        yield seeded(name, "A", f"{text} {STEPS}", seed)


def turned() -> Iterator[Job]:
    """Models whose tolerance is compared: with geometric augmentation and without."""
    amounts = {"": "", "-plain": GEOMETRY.format(0.0, 0.0, 0.0)}
    for seed, (name, text), (ending, geometry) in product(SEEDS, TURNED.items(), amounts.items()):
        yield seeded(f"{name}{ending}", "A", f"{text} {geometry} {STEPS}", seed, ("separability",))


def large() -> Iterator[Job]:
    """32 against 64 px, trained and tested on regions that have 64 px or more."""
    for seed, name, size in product(SEEDS, AT_64, (32, 64)):
        text = f"{FIGURE_3[name]} model.patch_size={size} {STEPS}"
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


def recipe() -> Iterator[Job]:
    """Changes of the recipe one at a time, then some that gained together."""
    best = {f"{BEST}{name}": f"{BEST_BASE} {change}" for name, change in BEST_CHANGES.items()}
    for name, change in {**RECIPE, **best}.items():
        yield Job(name, "shipped", settings(RECIPE_BASE, change), ("sizes",) if name in SIZED else ())


def ship() -> Iterator[Job]:
    """The weights of the package, each trained twice, and what lies between the paper's recipe and ours."""
    for seed, ending in enumerate(("", AGAIN)):
        for name, text in BY_PAPER.items():
            yield Job(f"{name}{ending}", "shipped", settings(text, f"seed={seed}"))
        for (region, (cut, zoom)), (name, text) in product(REGIONS.items(), BY_US.items()):
            zoomed = settings(text, f"augmentation.zoom_octaves={zoom} seed={seed}")
            yield Job(f"{name}-{region}{ending}", "shipped", zoomed, train_cut=cut)
    yield from (Job(name, "shipped", settings(text)) for name, text in BETWEEN.items())


def poses() -> Iterator[Job]:
    """Changes of the recipe of `light` at half its length; the best regions at full length."""
    for name, (region, change) in FOR_POSES.items():
        cut, zoom = REGIONS[region]
        text = f"{BY_US['light-cartesian']} {HALF_LENGTH} augmentation.zoom_octaves={zoom} {change}"
        yield Job(f"light-half-{name}", "shipped", settings(text), train_cut=cut)
    cut, zoom = REGIONS[FOR_PHOTOS]
    text = f"{BY_US['light-cartesian']} augmentation.zoom_octaves={zoom}"
    yield seeded(f"light-{FOR_PHOTOS}", "shipped", text, 0, train_cut=cut)


def student(
    name: str,
    network: str,
    copied: str | None,
    length: str = STUDENT_LENGTH,
    seed: int = 0,
    region: str = FOR_PHOTOS,
    teachers: tuple[str, ...] = WIDE_TEACHERS,
) -> Job:
    """A small network by the recipe of `light`, taught unless `copied` is None."""
    cut, zoom = REGIONS[region]
    light = f"model.variant=cartesian model.s=1 model.encoding_norm=true {OUR_LOSS} augmentation.zoom_octaves={zoom}"
    texts = settings(light, network, length, copied or "", f"seed={seed}")
    return Job(name, "shipped", texts, train_cut=cut, teachers=() if copied is None else teachers)


def students() -> Iterator[Job]:
    """Teachers and networks of several kinds at a quarter of the length of `light`; then longer ones."""
    cut, zoom = REGIONS[FOR_PHOTOS]
    for name, (model, seed) in {"dual": ("dual", 0), "light-seed1": ("light-cartesian", 1)}.items():
        text = f"{BY_US[model]} augmentation.zoom_octaves={zoom} seed={seed}"
        yield Job(f"teacher-{name}", "shipped", settings(text), train_cut=cut)
    for name, copied in COPIED.items():
        yield student(f"copy-{name}", STUDENT_NETWORKS["w16"], copied)
    for name, network in STUDENT_NETWORKS.items():
        if name not in ("w16", "w16-five"):  # the first is `copy-rows`
            yield student(name, network, COPIED["rows"])
    longer = {"region": "x6", "teachers": TEACHERS}
    rows = COPIED["rows-only"]
    for name in LONGER:
        yield student(f"{name}-x6", STUDENT_NETWORKS[name], rows, LONGER_LENGTH, **longer)
    for seed in (0, 1):
        yield student(f"tiny-seed{seed}", STUDENT_NETWORKS[TINY], rows, TINY_LENGTH, seed, **longer)
    for name, model in {"light": BY_US["light-cartesian"], "dual": BY_US["dual"]}.items():
        yield student(f"{name}-taught", model, rows, LONGER_LENGTH, **longer)


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
    "turned": list(turned()),
    "large": list(large()),
}
