"""How weights are adapted, and the record of what has been done, so that a later run goes on."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.errors import FileError
from matchkernel.storage.files import read_small_text, write_json
from matchkernel.storage.settings import Checked, setting

RECORD, ADAPTED = "adapt.json", "adapted.safetensors"


@dataclass(frozen=True)
class AdaptSettings(Checked):
    """What is adapted, for how long, and how. Options of `matchkernel adapt` are derived from these fields."""

    model: str = setting("light-wide", about="weights to adapt: a name, or a .safetensors file")
    minutes: float | None = setting(
        None, above=0, high=10_000, about="minutes of training (default: 10, up to 60 where 100 updates need more)"
    )
    layers: str = setting(
        "all", choices=("all", "last", "head"), about="which layers are trained: all, last (and the head) or head"
    )
    rate: float = setting(0.1, above=0, high=1e6, about="highest learning rate")
    pairs: int = setting(512, low=2, high=2**16, about="pairs of patches per update; fewer if there are fewer points")
    remember: float = setting(
        1.0, low=0, high=1e6, about="weight of the distance from the descriptors of --model; 0 for none"
    )
    mix: tuple[str, ...] = setting((), about="patch set for half of the pairs; may be given several times")
    check: tuple[str, ...] = setting((), about="patch set to measure forgetting on; may be given several times")
    keep: bool = setting(False, about="write the weights that are best on validation even if test does not gain")
    geometric: bool = setting(True, about="look for positives that no track contains; cutting takes longer")
    seed: int = setting(0, low=0, high=2**62, about="random seed")


class Record(dict[str, Any]):
    """Results of finished stages by name, JSON values, in a folder's adapt.json; written whole after each stage."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / RECORD
        if self.path.exists():
            try:
                self.update(json.loads(read_small_text(self.path)))
            except (ValueError, TypeError, RecursionError):
                raise FileError(f"{self.path}: is not a valid JSON object; choose another --out") from None

    def forget(self, *stages: str) -> None:
        """Drop the results of stages that are made again."""
        for stage in stages:
            self.pop(stage, None)
        write_json(self.path, self)

    def finish(self, stage: str, result: Any) -> None:
        """Keep the result of a stage."""
        self[stage] = result
        write_json(self.path, self)
