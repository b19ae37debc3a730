"""Everything that determines the training of a context matcher."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, FileError, MatchKernelError
from matchkernel.model.context import ContextConfig
from matchkernel.storage.settings import check_ranges, from_dict, merged, parse_override, read_toml, setting, to_dict

NOT_BINDING = ("log_every", "save_every", "validate_every", "licence")  # a resumed run may change these


@dataclass(frozen=True)
class MatcherConfig:
    """A training run of the matcher; the defaults are the shipped recipe (configs/context.toml).

    Attributes:
        keypoints: the maximum per photo.
        warps: warped copies of each photo.
        used: how many keypoints of a photo a pair uses, one of these at random.
        fewest: warped copies with fewer keypoints are not used.
        shared_points: photos that share so many 3-D points make a pair.
        same_place: scenes that show the same place, names with spaces between; their photos are not unrelated.
        pose_pairs: pairs labelled by the cameras of the model.
        warp_pairs: pairs of warped copies of one photo, labelled by the homography.
        other_pairs: pairs of photos of different scenes, of which every candidate is wrong.
        listed: candidates per pair of photos in training, of which an update uses some.
        candidates: see ContextConfig, as are top, d, layers, dv and threshold.
        steps: number of updates.
        minutes: the training ends after so much time, if above 0; the rate falls accordingly.
        batch: pairs per update.
        rate: learning rate of AdamW, which rises over the first `warmup` updates, then falls as a cosine to 1 %.
        average: decay of the running average of the weights, which is the result.
        noise: standard deviation added to the features of candidates.
        validate_every: updates between validations; one more comes at the end.
        licence: what the card says about the rights to the weights.
    """

    keypoints: int = setting(4096, low=2, high=10**5)
    warps: int = setting(3, low=0, high=100)
    used: tuple[int, ...] = setting((1000, 2000, 2000, 3000), low=2)
    fewest: int = setting(300, low=2)
    shared_points: int = setting(15, low=1)
    same_place: tuple[str, ...] = ()
    pose_pairs: int = setting(5000, low=0, high=10**7)
    warp_pairs: int = setting(2000, low=0, high=10**7)
    other_pairs: int = setting(300, low=0, high=10**7)
    listed: int = setting(1536, low=2, high=2**14)
    candidates: int = setting(1024, low=2, high=2**16)
    top: int = setting(2, low=1, high=16)
    d: int = setting(64, low=1, high=1024)
    layers: int = setting(5, low=1, high=100)
    dv: int = setting(6, low=1, high=1024)
    threshold: float = setting(0.5, above=0, below=1)
    steps: int = setting(3000, low=1, high=10**9)
    minutes: float = setting(0.0, low=0, high=10**6)
    batch: int = setting(24, low=1, high=2**16)
    rate: float = setting(2e-3, above=0, high=1e3)
    weight_decay: float = setting(0.01, low=0, high=1e3)
    warmup: int = setting(100, low=1)
    average: float = setting(0.998, low=0, below=1)
    noise: float = setting(0.02, low=0, high=10)
    log_every: int = setting(50, low=1)
    save_every: int = setting(500, low=1)
    validate_every: int = setting(2000, low=1)
    seed: int = setting(0, low=0, high=2**62)
    licence: str = ""

    def __post_init__(self) -> None:
        check_ranges(self)
        if not self.used:
            raise ArgumentError("used must name at least one number of keypoints")

    @classmethod
    def read(cls, path: str | Path | None, overrides: Sequence[str] = ()) -> "MatcherConfig":
        """From a TOML file (None: the defaults), with `key=value` overrides."""
        values = merged({} if path is None else read_toml(path), *map(parse_override, overrides))
        try:
            return from_dict(cls, values)
        except MatchKernelError as error:
            raise (error if path is None else FileError(f"{path} or --set: {error}")) from None

    def binding(self) -> dict[str, Any]:
        """The settings that a resumed run must share."""
        return {name: value for name, value in to_dict(self).items() if name not in NOT_BINDING}

    def network(self, descriptor: str, digest: str) -> ContextConfig:
        """The configuration of the network for this descriptor."""
        sizes = {name: getattr(self, name) for name in ("d", "layers", "dv", "candidates", "top", "threshold")}
        return ContextConfig(descriptor, digest, **sizes)
