"""The models of every experiment: what is trained on what, and what is measured."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import log2
from typing import Any

Settings = dict[str, Any]
SEEDS = (0, 1, 2)
AGAIN = "-seed1"  # names of second trainings of `ship` end so
STEPS = 10_000  # of 512 pairs, in the experiments of the paper
SCREENING = 5_000  # steps when choices are compared on validation
PAPER_STEPS = 39_060  # of 512 pairs: the paper's 20 million

# The eight of the HPatches experiment: six of them at N = 32 with s = 1, as the paper's light ones, `dual` with both.
DESCRIPTORS: dict[str, Settings] = {
    "fc": {"variant": "fc"},
    "dual-s2": {"variant": "dual", "s": 2},
    "dual-s1": {"variant": "dual", "s": 1},
    "cartesian-s1": {"variant": "cartesian", "s": 1},
    "polar-s1": {"variant": "polar", "s": 1},
    "combined-s1": {"variant": "combined", "s": 1},
    "sum": {"variant": "sum"},
    "concat": {"variant": "concat"},
}
# M behind `sum`: with s = 0 the position code is a constant, so this is M applied to the plain sum of the map; with
# BatchNorm after it, as after every M here, and without.
PROJECTED_SUMS: dict[str, Settings] = {
    "sum-m": {"variant": "cartesian", "s": 0, "center_weight": False},
    "sum-m-plain": {"variant": "cartesian", "s": 0, "center_weight": False, "output_norm": "none"},
}
# Whose similarity maps are measured, and how shifts, turns and scales change their descriptors.
MAPPED = ("fc", "dual-s2", "dual-s1", "cartesian-s1", "polar-s1", "combined-s1")
TRANSFERRED = ("fc", "dual-s1", "dual-s2")  # trained on every group, tested on the others
CONTROL = "sum"  # measured with them: what features without a position give
KAPPAS = (1, 2, 4, 8, 16)
MAGNIFICATIONS = (5, 8, 10)  # beside 6, that of the ordinary sets
TRACKS = "tracks"  # the cut without geometric positives
# Regions that models by our recipe are trained on -> their cut, and octaves of zoom: down to those of 6 sigma.
TRAINED_REGIONS = {"x6": ("", 0.0)} | {f"x6-to-x{m}": (f"x{m}", round(log2(m / 6), 3)) for m in (8, 10, 12)}
OURS = {"dual": "dual", "light": "light-cartesian"}  # models by our recipe -> their jobs, without the regions
# The models of the package -> the jobs of `ship` they come from.
PACKAGE = {**{name: f"{job}-x6" for name, job in OURS.items()}, "dual-paper": "dual-paper", "fc": "fc"}
BEST = "best-2048"  # changes of the recipe that gained, together
SIZED = ("mixed-sizes", BEST, f"{BEST}-mixed-sizes")  # recipes that are used at other patch sizes too

PRESET_GEOMETRY = {"rotation_degrees": 8.0, "scale_octaves": 0.12, "shift": 0.05}  # of the preset `paper`
LIGHT = {"gamma": 0.4, "contrast": 0.3, "light_gradient": 0.2, "blur": 0.7, "noise": 4.0}
HYNET = {"same_side": True, "hybrid": 2.0, "margin": 1.2}
GEOMETRY = {"rotation_degrees": 15.0, "scale_octaves": 0.25, "shift": 0.1, "aspect_octaves": 0.15}
SOME_GEOMETRY = {"rotation_degrees": 11.0, "scale_octaves": 0.18, "shift": 0.075, "aspect_octaves": 0.08}  # half way


@dataclass(frozen=True)
class Job:
    """One model."""

    name: str
    train: str  # a group of scenes, see data.scenes_of
    settings: Settings  # laid over the preset `paper`
    scores: tuple[str, ...] = ()  # beyond validation: test, strips, groups, sizes, tolerance, maps
    train_cut: str = ""  # trained on SETS/<train_cut>/<scene>: another cut of the same photos
    score_cut: str = ""  # scored on SETS/<score_cut>/...


def descriptors() -> Iterator[Job]:
    """The HPatches experiment: every descriptor, trained on group A, three seeds; and N = 64 for three of them."""
    resolution_free = ("dual-s2", "dual-s1", "cartesian-s1")
    for seed in SEEDS:
        for name, model in DESCRIPTORS.items():
            scores = ("test", "strips", *(("groups",) if name in TRANSFERRED else ()))
            scores += ("sizes",) if name in resolution_free else ()
            scores += ("tolerance", "maps") if name in (*MAPPED, CONTROL) else ()
            settings = {"model": model, "sampling": {"steps": STEPS}, "seed": seed}
            yield Job(f"{name}-n32-seed{seed}", "A", settings, scores)
    for name, model in PROJECTED_SUMS.items():
        for seed in SEEDS:
            settings = {"model": model, "sampling": {"steps": STEPS}, "seed": seed}
            yield Job(f"{name}-n32-seed{seed}", "A", settings, ("test", "strips"))
    for seed in SEEDS:
        for name in ("fc", "cartesian-s1", "dual-s2"):
            model = {**DESCRIPTORS[name], "patch_size": 64}
            settings = {"model": model, "sampling": {"steps": STEPS}, "seed": seed}
            yield Job(f"{name}-n64-seed{seed}", "A", settings, ("test", "strips"))


def transfer() -> Iterator[Job]:
    """Table 2's protocol: train on B and on C, test on the two others (A is trained in `descriptors`)."""
    for seed in SEEDS:
        for group in "BC":
            for name in TRANSFERRED:
                settings = {"model": DESCRIPTORS[name], "sampling": {"steps": STEPS}, "seed": seed}
                yield Job(f"{name}-on-{group}-seed{seed}", group, settings, ("groups",))


def ablation() -> Iterator[Job]:
    """One change at a time from `dual` s = 2 with kappa 8, trained on group A; `base` with two seeds."""
    model = {"variant": "dual", "s": 2, "kappa_cartesian": 8.0, "kappa_polar": 8.0}  # whatever the defaults become
    base: Settings = {"model": model, "sampling": {"steps": SCREENING}}
    yield from (_changed("base", "A", base, {}, seed) for seed in (0, 1))
    for name, change in {**kappa_changes(), **norm_changes(), **other_changes()}.items():
        yield _changed(name, "A", base, change, 0)
    yield _changed("positives-geometric", "B", base, {}, 0)  # B: brandenburg has the keypoints they are found among
    yield _changed("positives-tracks", "B", base, {}, 0, train_cut=TRACKS)
    for amount in MAGNIFICATIONS:
        cut = f"x{amount}"
        yield _changed(f"magnification-{amount}", "A", base, {}, 0, train_cut=cut, score_cut=cut)


def kappa_changes() -> dict[str, Settings]:
    """Every kappa, of both coordinate systems together, for s = 1, 2, 3; that of `base` is left out."""
    pairs = [(s, kappa) for s in (1, 2, 3) for kappa in KAPPAS if (s, kappa) != (2, 8)]
    return {
        f"kappa-s{s}-{kappa}": {"model": {"s": s, "kappa_cartesian": float(kappa), "kappa_polar": float(kappa)}}
        for s, kappa in pairs
    }


def norm_changes() -> dict[str, Settings]:
    """A norm before M (s = 1 beside `kappa-s1-1`, s = 2 beside `base`), and none after it."""
    return {
        "encoding-norm-s1": {"model": {"s": 1, "kappa_cartesian": 1.0, "kappa_polar": 1.0, "encoding_norm": True}},
        "encoding-norm-s2": {"model": {"encoding_norm": True}},
        "output-norm-none": {"model": {"output_norm": "none"}},
    }


def other_changes() -> dict[str, Settings]:
    """Batch, dropout, statistics, and augmentation, of geometry and of light apart."""
    geometry, light = {"none": 0.0, "half": 0.5, "double": 2.0}, {"half": 0.5, "whole": 1.0, "double": 2.0}
    return {
        **{f"pairs-{pairs}": {"sampling": {"pairs": pairs}} for pairs in (1024, 2048, 4096)},
        **{f"dropout-{share}": {"model": {"dropout": share}} for share in (0.1, 0.3)},
        "statistics-joint": {"loop": {"statistics": "joint"}},
        **{f"geometry-{word}": {"augmentation": _times(PRESET_GEOMETRY, k)} for word, k in geometry.items()},
        **{f"photometric-{word}": {"augmentation": _times(LIGHT, k)} for word, k in light.items()},
    }


def recipe() -> Iterator[Job]:
    """Changes of `dual` s = 1 with 1024 pairs a batch, one at a time, then some that gained together.

    Trained on everything that shipped weights may see.
    """
    base: Settings = {"model": {"variant": "dual", "s": 1}, "sampling": {"steps": SCREENING, "pairs": 1024}}
    changes: dict[str, Settings] = {
        "base": {},
        "base-seed1": {"seed": 1},
        "photometric": {"augmentation": LIGHT},
        "pairs-2048": {"sampling": {"pairs": 2048}},
        "same-side": {"loss": {"same_side": True}},
        "s2-kappa8": {"model": {"s": 2}},
        "s2-kappa2": {"model": {"s": 2, "kappa_cartesian": 2.0, "kappa_polar": 2.0}},
        "cartesian": {"model": {"variant": "cartesian"}},
        "hynet-loss": {"loss": HYNET},
        "encoding-norm": {"model": {"encoding_norm": True}},
        "geometry": {"augmentation": GEOMETRY},
        "second-order": {"loss": {"same_side": True, "squared": True, "second_order": 1.0}},
        "average": {"optimizer": {"average": 0.999}},
        "mixed-sizes": {"sampling": {"patch_sizes": [24, 32, 48]}},
        "cosine": {"optimizer": {"schedule": "cosine"}},
        "rate-half": {"optimizer": {"rate": 5.0}},
        "rate-double": {"optimizer": {"rate": 20.0}},
        "cartesian-s2": {"model": {"variant": "cartesian", "s": 2}},
        "polar": {"model": {"variant": "polar"}},
        "combined": {"model": {"variant": "combined"}},
    }
    for name, change in {**changes, **best_changes()}.items():
        yield Job(name, "shipped", _over(base, change), ("sizes",) if name in SIZED else ())


def best_changes() -> dict[str, Settings]:
    """2,048 pairs a batch, HyNet's loss and twice the rate, with the paper's s = 2; and what may add to them."""
    best: Settings = {"model": {"s": 2}, "sampling": {"pairs": 2048}, "loss": HYNET, "optimizer": {"rate": 20.0}}
    changes: dict[str, Settings] = {
        "": {},
        "-rate-40": {"optimizer": {"rate": 40.0}},
        "-geometry": {"augmentation": SOME_GEOMETRY},
        "-photometric": {"augmentation": _times(LIGHT, 0.5)},
        "-encoding-norm": {"model": {"encoding_norm": True}},
        "-s1": {"model": {"s": 1}},
        "-mixed-sizes": {"sampling": {"patch_sizes": [24, 32, 48]}},
        # as many pairs in all, more of them at a time
        "-in-4096": {"sampling": {"pairs": 4096, "steps": SCREENING // 2}},
        "-in-8192": {"sampling": {"pairs": 8192, "steps": SCREENING // 4}},
        # candidates for the light model of the package
        **{f"-{variant}": {"model": {"variant": variant, "s": 1}} for variant in ("cartesian", "polar", "combined")},
    }
    return {f"{BEST}{name}": _over(best, change) for name, change in changes.items()}


def ship() -> Iterator[Job]:
    """The weights of the package, each trained twice, and what lies between the paper's recipe and ours."""
    paper, large = {"steps": PAPER_STEPS}, {"pairs": 4096, "steps": 6_000}
    longer = {"pairs": large["pairs"] // 2, "steps": 2 * large["steps"]}
    ours: Settings = {"sampling": large, "loss": HYNET, "optimizer": {"rate": 40.0}}
    dual, fc = {"variant": "dual", "s": 2}, {"variant": "fc"}
    normed = {"encoding_norm": True}
    models: dict[str, Settings] = {
        "dual": {"model": dual | normed, **ours},
        "light-cartesian": {"model": {"variant": "cartesian", "s": 1} | normed, **ours},
    }
    for seed, ending in enumerate(("", AGAIN)):
        yield Job(f"dual-paper{ending}", "shipped", {"model": dual, "sampling": paper, "seed": seed})
        yield Job(f"fc{ending}", "shipped", {"model": fc, "sampling": paper, "seed": seed})
        for (region, (cut, zoom)), (name, settings) in product(TRAINED_REGIONS.items(), models.items()):
            zoomed = settings | {"augmentation": {"zoom_octaves": zoom}, "seed": seed}
            yield Job(f"{name}-{region}{ending}", "shipped", zoomed, train_cut=cut)
    yield Job("dual-paper-in-4096", "shipped", {"model": dual, "sampling": large})
    yield Job("dual-hynet-in-4096", "shipped", {"model": dual, "sampling": large, "loss": HYNET})
    yield Job("fc-by-our-recipe", "shipped", {"model": fc, **ours})
    yield Job("dual-in-2048", "shipped", {"model": dual | normed, **ours, "sampling": longer})


def _changed(name: str, train: str, base: Settings, change: Settings, seed: int, **cuts: str) -> Job:
    return Job(f"{name}-seed{seed}", train, _over(base, {**change, "seed": seed}), **cuts)


def _over(base: Settings, change: Settings) -> Settings:
    """A change laid over settings, table by table."""
    return {**base, **{key: _laid(base.get(key), value) for key, value in change.items()}}


def _laid(under: Any, over: Any) -> Any:
    return {**(under or {}), **over} if isinstance(over, dict) else over


def _times(amounts: Settings, factor: float) -> Settings:
    return {name: factor * amount for name, amount in amounts.items()}


EXPERIMENTS: dict[str, list[Job]] = {
    "descriptors": list(descriptors()),
    "transfer": list(transfer()),
    "ablation": list(ablation()),
    "recipe": list(recipe()),
    "ship": list(ship()),
}
