"""Models by our own recipe as tables: what was tried, what is shipped, and small networks that learn from them."""

from collections.abc import Iterator
from itertools import product
from math import log2

from job import DUAL, GEOMETRY, HALF_LIGHT, KAPPA, PAPER, SCREENING, WHOLE_LIGHT, Job, seeded, settings

AGAIN = "-seed1"  # ending of the names of second trainings in `ship`
HYNET = "loss.same_side=true loss.hybrid=2.0 loss.margin=1.2"
SIZES = "sampling.patch_sizes=[24,32,48]"

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

LARGE = "sampling.pairs=4096 sampling.steps=6000"
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
