"""What a job is, and settings that many of them share."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from matchkernel.storage.settings import merged, parse_override

Settings = dict[str, Any]
SEEDS = (0, 1, 2)
SCREENING = "sampling.steps=5000"  # when choices are compared on validation
DUAL, PAPER = "model.variant=dual model.s=2", "sampling.steps=39060"  # the paper's 20 million pairs, in batches of 512
KAPPA = "model.kappa_cartesian={0}.0 model.kappa_polar={0}.0"
GEOMETRY = "augmentation.rotation_degrees={} augmentation.scale_octaves={} augmentation.shift={}"
LIGHT = (
    "augmentation.gamma={} augmentation.contrast={} augmentation.light_gradient={}"
    " augmentation.blur={} augmentation.noise={}"
)
HALF_LIGHT, WHOLE_LIGHT = LIGHT.format(0.2, 0.15, 0.1, 0.35, 2.0), LIGHT.format(0.4, 0.3, 0.2, 0.7, 4.0)


@dataclass(frozen=True)
class Job:
    """One model."""

    name: str
    train: str  # a group of scenes, see data.scenes_of
    settings: Settings  # override the preset `paper`
    scores: tuple[str, ...] = ()  # beyond validation: test, strips, groups, sizes, tolerance, maps, separability,
    #                        pole, places, geometry
    train_cut: str = ""  # trained on SETS/<train_cut>/<scene>: another cut of the same photos
    score_cut: str = ""  # scored on SETS/<score_cut>/...
    teachers: tuple[str, ...] = ()  # KEEP/<teacher>.safetensors each


def settings(*texts: str) -> Settings:
    """Settings written as `table.key=value ...`; later ones override earlier ones."""
    return merged(*map(parse_override, " ".join(texts).split()))


def seeded(name: str, train: str, text: str, seed: int, scores: Iterable[str] = (), **cuts: str) -> Job:
    """A job with this seed, which is part of its name."""
    return Job(f"{name}-seed{seed}", train, settings(text, f"seed={seed}"), tuple(scores), **cuts)
