"""Everything that determines a training run, as frozen dataclasses read from TOML, and the presets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, MatchKernelError
from matchkernel.runtime.config import VARIANTS, DescriptorConfig
from matchkernel.runtime.weights import NOT_BINDING
from matchkernel.storage.settings import (
    check_ranges,
    from_dict,
    merged,
    parse_override,
    read_toml,
    setting,
    short_repr,
    to_dict,
    without,
)
from matchkernel.training.augment import Augmentation
from matchkernel.training.loss import LossSettings
from matchkernel.training.optimizer import Optimizer
from matchkernel.training.start import base_config

PRESETS = Path(__file__).parent / "presets"


@dataclass(frozen=True)
class Synthetic:
    """Sets rendered into the run's folder, for trying out training without data: see matchkernel.data.synthetic."""

    points: int = setting(1000, low=2, high=10**6)
    patches: int = setting(4, low=2, high=1000)
    validation_points: int = setting(300, low=0, high=10**6)
    seed: int = setting(0, low=0, high=2**62)

    def __post_init__(self) -> None:
        check_ranges(self, "data.synthetic")


@dataclass(frozen=True)
class Data:
    """Where the patches come from: folders of patch sets, or `synthetic`."""

    train: tuple[str, ...] = ()
    validation: tuple[str, ...] = ()
    synthetic: Synthetic | None = None
    # Sets that a fixed share of every batch comes from, `sampling.mixed`, whatever the sizes of the sets in `train`.
    mix: tuple[str, ...] = setting((), omit_default=True)

    def __post_init__(self) -> None:
        check_ranges(self, "data")
        if bool(self.train) == (self.synthetic is not None):
            raise ArgumentError("data needs either `train`, folders of patch sets, or `synthetic`, a table")
        if self.mix and not self.train:
            raise ArgumentError("data.mix needs data.train, the sets that the other pairs come from")
        if not all([*self.train, *self.mix, *self.validation]):
            raise ArgumentError("data.train, data.mix and data.validation must be non-empty names of folders")


@dataclass(frozen=True)
class Sampling:
    """Pairs per update, and the number of updates."""

    pairs: int = setting(512, low=2, high=2**20)
    steps: int = setting(39_060, low=1, high=10**9)
    epoch_pairs: int = 0  # above 0: an epoch ends with a smaller batch if `pairs` does not divide it (HardNet)
    mixed: float = setting(0.5, above=0, below=1, omit_default=True)  # share of the pairs that comes from data.mix

    def __post_init__(self) -> None:
        check_ranges(self, "sampling")
        fits = self.pairs <= self.epoch_pairs <= 10**12 and self.epoch_pairs % self.pairs != 1
        if self.epoch_pairs and not fits:
            raise ArgumentError(
                f"sampling.epoch_pairs must be 0 or from `pairs` to 10^12, and not leave a single pair,"
                f" got {short_repr(self.epoch_pairs)}"
            )

    def pairs_at(self, step: int) -> int:
        """Pairs in the batch of update `step` (from 1); 0 is the last batch of an epoch."""
        updates = -(-self.epoch_pairs // self.pairs) or 1
        rest = self.epoch_pairs % self.pairs
        return rest if rest and step % updates == 0 else self.pairs


@dataclass(frozen=True)
class TeacherSettings:
    """Trained models whose rows the model copies: an ensemble, whose similarity is the mean of theirs.

    Attributes:
        weights: weight files, or names of the package's weights.
        rows: weight of the squared distance of each row to the teacher's, reduced to D principal dimensions.
        pairs: weight of the ordinary loss of pairs; 0 leaves it out.
    """

    weights: tuple[str, ...] = ()
    rows: float = setting(1.0, above=0, high=1e6)
    pairs: float = setting(1.0, low=0, high=1e6)

    def __post_init__(self) -> None:
        check_ranges(self, "teacher")
        if not all(self.weights) or not self.weights:
            raise ArgumentError("teacher.weights must name one or more weight files")


@dataclass(frozen=True)
class StartSettings:
    """Trained weights that a run starts from, instead of random ones.

    Attributes:
        weights: a weight file, or a name of the package's weights.
        layers: which layers are trained: "all", "last" (the last convolution and the head), or "head" (M or W, and the
            BatchNorm after it).
    """

    weights: str = ""
    layers: str = setting("all", choices=("all", "last", "head"))

    def __post_init__(self) -> None:
        check_ranges(self, "start")
        if not self.weights:
            raise ArgumentError("start.weights must name a weight file, or weights of the package")


@dataclass(frozen=True)
class Loop:
    """How the run is carried out. `precision` and `statistics` affect what is learned, others at most its rounding.

    Attributes:
        precision: "bf16" (autocast; float32 on a CPU without bfloat16 arithmetic), "fp32", or "auto": bf16 on a GPU.
        compile: compile the step and replay it as a CUDA graph: "yes", "no", or "auto": on one GPU.
        statistics: BatchNorm statistics of anchors and positives "separate", as in two forward passes, or "joint".
        resident: keep all patches in GPU memory: "yes", "no", or "auto": if they take less than half of what is free.
        log_every: steps between lines of the log.
        save_every: steps between checkpoints.
        validate_every: steps between validations (and one at the end).
        select_by: the measure whose best weights are kept: "map" or "fpr95".
        tensorboard: also write event files.
    """

    precision: str = setting("auto", choices=("auto", "bf16", "fp32"))
    compile: str = setting("auto", choices=("auto", "yes", "no"))
    statistics: str = setting("separate", choices=("separate", "joint"))
    resident: str = setting("auto", choices=("auto", "yes", "no"))
    log_every: int = setting(100, low=1)
    save_every: int = setting(2000, low=1)
    validate_every: int = setting(5000, low=1)
    select_by: str = setting("map", choices=("map", "fpr95"))
    tensorboard: bool = False

    def __post_init__(self) -> None:
        check_ranges(self, "loop")


REMOVED: dict[str, dict[str, Any]] = {  # settings of version 0.2 that no longer exist, and their defaults
    "sampling": {"patch_sizes": [], "per_photo": 1},
    "augmentation": {"jpeg": 0},
    "loss": {
        "form": "triplet_margin",
        "squared": False,
        "negatives": "hardest",
        "second_order": 0.0,
        "neighbours": 8,
        "norm_penalty": 0.0,
        "reduction": "mean",
    },
    "optimizer": {"kind": "sgd", "beta_first": 0.9, "beta_second": 0.999, "average": 0.0},
    "teacher": {"similarities": 0.0},
    "loop": {"sync_batch_norm": False},
}


def without_removed(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Nested tables without the settings that no longer exist; refused if one of them is not at its default."""
    result = dict(tables)
    for table, defaults in REMOVED.items():
        if not isinstance(values := tables.get(table), Mapping):
            continue
        for name, default in defaults.items():
            if values.get(name, default) != default:
                raise ArgumentError(
                    f"{table}.{name} = {short_repr(values[name])}: this setting was removed; matchkernel 0.2 has it"
                )
        result[table] = {name: value for name, value in values.items() if name not in defaults}
    return result


@dataclass(frozen=True)
class TrainingConfig:
    """A training run: what is trained on what, and how. See docs/training.md for all settings.

    Example:
        >>> from matchkernel.training.config import TrainingConfig
        >>> config = TrainingConfig.from_dict({"data": {"train": "sets/mine"}, "sampling": {"pairs": 1024}})
        >>> config.sampling.pairs, config.sampling.steps, config.model.variant  # the others are the preset's
        (1024, 39060, 'dual')
    """

    data: Data
    model: DescriptorConfig = field(default_factory=DescriptorConfig)
    sampling: Sampling = field(default_factory=Sampling)
    augmentation: Augmentation = field(default_factory=Augmentation)
    loss: LossSettings = field(default_factory=LossSettings)
    optimizer: Optimizer = field(default_factory=Optimizer)
    loop: Loop = field(default_factory=Loop)
    teacher: TeacherSettings | None = None
    start: StartSettings | None = None
    preset: str = "paper"
    seed: int = setting(0, low=0, high=2**63 - 1)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.start is not None and self.start.layers == "head" and not VARIANTS[self.model.variant].projects:
            raise ArgumentError(f"start.layers = 'head': {self.model.variant} has no head, neither M nor W")

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "TrainingConfig":
        """Build from nested tables, which override the preset they name (default: paper)."""
        if not isinstance(values, Mapping):
            raise ArgumentTypeError(f"a run must be a table of names and values, got {short_repr(values)}")
        values = without_removed(values)
        preset = values.get("preset", "paper")
        if not isinstance(preset, str) or preset not in presets():
            raise ArgumentError(f"preset must be one of {', '.join(presets())}, got {short_repr(preset)}")
        if "data" not in values:
            raise ArgumentError("data is missing: a table with `train`, folders of patch sets, or `synthetic`")
        own = merged(_started(values), values)
        return from_dict(cls, merged(_preset(preset, own.get("model")), own))

    @classmethod
    def from_toml(cls, path: str | Path, overrides: Sequence[str] = ()) -> "TrainingConfig":
        """Read a TOML file, with `key=value` overrides."""
        values = merged(read_toml(path), *map(parse_override, overrides))
        try:
            return cls.from_dict(values)
        except MatchKernelError as error:
            if isinstance(error, FileError):
                raise
            raise FileError(f"{path}{' or --set' * bool(overrides)}: {error}") from None

    def to_dict(self) -> dict[str, Any]:
        """All settings as nested tables; `from_dict` gives the same configuration back."""
        return to_dict(self)

    def binding(self) -> dict[str, Any]:
        """The settings that a resumed run must share: those that determine what is learned.

        The paths of patch sets and weights may change; their contents are compared by hashes.
        """
        return without(self.to_dict(), NOT_BINDING)


def presets() -> list[str]:
    """Names of the presets."""
    return sorted(path.stem for path in PRESETS.glob("*.toml"))


def _preset(name: str, model: Any) -> dict[str, Any]:
    """The tables of a preset; of its table `model` what the variant of a run has."""
    tables = read_toml(PRESETS / f"{name}.toml")
    variant = model.get("variant", "dual") if isinstance(model, Mapping) else ""
    if "model" in tables and isinstance(variant, str) and variant in VARIANTS:  # others are refused with their reason
        has = {*DescriptorConfig(variant).to_dict(), "dropout"}
        tables["model"] = {key: value for key, value in tables["model"].items() if key in has}
    return tables


def _started(values: Mapping[str, Any]) -> dict[str, Any]:
    """The model of the weights that a run starts from; the run's own table `model` may change some settings."""
    start, model = values.get("start"), values.get("model", {})
    weights = start.get("weights") if isinstance(start, Mapping) else None
    if not isinstance(weights, str) or not weights or not isinstance(model, Mapping):
        return {}  # no start, or to be refused with the other settings
    return {"model": base_config(weights, model)}
