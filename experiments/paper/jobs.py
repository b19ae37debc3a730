"""The models of every experiment: what is trained on what, and what is measured."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

Settings = dict[str, Any]
SEEDS = (0, 1, 2)
STEPS = 10_000  # of 512 pairs, in the experiments of the paper
SCREENING = 5_000  # steps when recipes are compared

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
LIGHT = {"gamma": 0.4, "contrast": 0.3, "light_gradient": 0.2, "blur": 0.7, "noise": 4.0}
STRONG_LIGHT = {"gamma": 0.8, "contrast": 0.6, "light_gradient": 0.4, "blur": 1.0, "noise": 8.0, "jpeg": 30}
HYNET = {"same_side": True, "hybrid": 2.0, "margin": 1.2}
GEOMETRY = {"rotation_degrees": 15.0, "scale_octaves": 0.25, "shift": 0.1, "aspect_octaves": 0.15}


@dataclass(frozen=True)
class Job:
    """One model."""

    name: str
    train: str  # a group of scenes, see data.scenes_of
    settings: Settings  # laid over the preset `paper`
    scores: tuple[str, ...] = ()  # beyond validation: test, strips, groups, sizes, tolerance


def descriptors() -> Iterator[Job]:
    """The HPatches experiment: every descriptor, trained on group A, three seeds; and N = 64 for three of them."""
    resolution_free = ("dual-s2", "dual-s1", "cartesian-s1")
    for seed in SEEDS:
        for name, model in DESCRIPTORS.items():
            scores = ("test", "strips", "groups", "tolerance", *(("sizes",) if name in resolution_free else ()))
            settings = {"model": model, "sampling": {"steps": STEPS}, "seed": seed}
            yield Job(f"{name}-n32-seed{seed}", "A", settings, scores)
    for seed in SEEDS:
        for name in ("fc", "cartesian-s1", "dual-s2"):
            model = {**DESCRIPTORS[name], "patch_size": 64}
            settings = {"model": model, "sampling": {"steps": STEPS}, "seed": seed}
            yield Job(f"{name}-n64-seed{seed}", "A", settings, ("test", "strips"))


def transfer() -> Iterator[Job]:
    """Table 2's protocol: train on B and on C, test on the two others (A is trained in `descriptors`)."""
    for seed in SEEDS:
        for group in "BC":
            for name in ("fc", "dual-s1", "dual-s2"):
                settings = {"model": DESCRIPTORS[name], "sampling": {"steps": STEPS}, "seed": seed}
                yield Job(f"{name}-on-{group}-seed{seed}", group, settings, ("groups",))


def recipe() -> Iterator[Job]:
    """One change at a time from `dual` s = 1 with 1024 pairs a batch, on everything that shipped weights may see."""
    base: Settings = {"model": {"variant": "dual", "s": 1}, "sampling": {"steps": SCREENING, "pairs": 1024}}
    changes: dict[str, Settings] = {
        "base": {},
        "base-seed1": {"seed": 1},
        "light": {"augmentation": LIGHT},
        "pairs-2048": {"sampling": {"pairs": 2048}},
        "same-side": {"loss": {"same_side": True}},
        "s2-kappa8": {"model": {"s": 2}},
        "s2-kappa2": {"model": {"s": 2, "kappa_cartesian": 2.0, "kappa_polar": 2.0}},
        "cartesian": {"model": {"variant": "cartesian"}},
        "hynet-loss": {"loss": HYNET},
        "encoding-norm": {"model": {"encoding_norm": True}},
        "geometry": {"augmentation": GEOMETRY},
        "strong-light": {"augmentation": STRONG_LIGHT},
        "second-order": {"loss": {"same_side": True, "squared": True, "second_order": 1.0}},
        "average": {"optimizer": {"average": 0.999}},
        "mixed-sizes": {"sampling": {"patch_sizes": [24, 32, 48]}},
        "pairs-512": {"sampling": {"pairs": 512}},
        "pairs-4096": {"sampling": {"pairs": 4096}},
        "dropout": {"model": {"dropout": 0.1}},
        "cartesian-s2": {"model": {"variant": "cartesian", "s": 2}},
        "polar": {"model": {"variant": "polar"}},
        "combined": {"model": {"variant": "combined"}},
    }
    for name, change in changes.items():
        yield Job(name, "shipped", {**base, **{key: _laid(base.get(key), value) for key, value in change.items()}})


def ship() -> Iterator[Job]:
    """The weights of the package: the paper's recipe, its baseline, and the best recipe so far."""
    paper = {"steps": 39_060}
    best: Settings = {"sampling": {"pairs": 4096, "steps": 6_000}, "loss": HYNET}
    yield Job("dual-paper", "shipped", {"model": {"variant": "dual", "s": 2}, "sampling": paper})
    yield Job("dual", "shipped", {"model": {"variant": "dual", "s": 2}, **best})
    yield Job("fc", "shipped", {"model": {"variant": "fc"}, "sampling": paper})
    for variant in ("cartesian", "polar", "combined"):
        yield Job(f"light-{variant}", "shipped", {"model": {"variant": variant, "s": 1}, **best})


def _laid(under: Any, over: Any) -> Any:
    return {**(under or {}), **over} if isinstance(over, dict) else over


EXPERIMENTS: dict[str, list[Job]] = {
    "descriptors": list(descriptors()),
    "transfer": list(transfer()),
    "recipe": list(recipe()),
    "ship": list(ship()),
}
