"""Weight files without torch: the card that describes them, their tensors, and the network folded from these."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from matchkernel.errors import ArgumentError, ArgumentTypeError, MatchKernelError, WeightsError
from matchkernel.runtime.config import COUNTER, STRIDE, VARIANTS, DescriptorConfig
from matchkernel.runtime.hub import ADDRESS, MODEL, fetch, read_name
from matchkernel.runtime.positions import fourier_coefficients, position_matrix
from matchkernel.storage.arrays import KINDS, Stored, digest, read_header, read_tensors
from matchkernel.storage.settings import short_repr, without

SHIPPED = Path(__file__).parent / "trained"  # <name>.safetensors each
NORMALIZATION = "per patch: (x - mean) / (std + 1e-7)"
WRITTEN_BY_SAVE = ("format", "config", "normalization", "sha256")
TEXTS, TABLES = ("licence", "trained_on", "unknown_from", "command"), ("training", "metrics", "validation")
WHOLE_NUMBERS = ("step", "seed")
LIMITS = {"match_threshold": 2.0, "match_ratio": 1.0}  # of matches, and their maxima: unit rows are at most 2 apart
ENTRIES = (*TEXTS, *TABLES, *WHOLE_NUMBERS, *LIMITS, "training_sets")  # of a card, besides those that save writes
# Settings of a training that say where its files are, or how it is watched: what is learned does not depend on them.
NOT_BINDING = (
    "data.train", "data.validation", "teacher.weights", "start.weights",
    *(f"loop.{name}" for name in ("compile", "resident", "log_every", "save_every", "validate_every", "tensorboard")),
)  # fmt: skip
NOT_OF_RECIPE = (*NOT_BINDING, "data.mix", "data.synthetic.seed", "preset", "seed")
SOME = "some patches"  # instead of a sha256: of this scene
EPSILON = 1e-5  # BatchNorm's
IGNORED = "statistics."  # tensors that earlier versions wrote for models trained at several patch sizes
FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors calls them


@dataclass(frozen=True)
class Card:
    """What is known about trained weights. A weight file keeps it as strings: tables and lists as JSON.

    Attributes:
        config: the configuration; written by `save` from the model.
        normalization: how patches are normalised; written by `save`.
        sha256: digest of everything else in the file; written by `save`.
        licence: terms of the weights.
        trained_on: names of the training sets, separated by commas.
        training_sets: name and sha256 of the patches of each training set, so that a renamed copy is recognised; and
            the scenes with SOME instead, so that patches that are cut anew are.
        unknown_from: teachers and starts of which it is not known what they were trained on.
        training: the configuration of the training.
        command: the command that trains such weights.
        step: number of updates made.
        seed: of the training, if `training` does not contain it.
        metrics: scores by name.
        validation: scores on the validation sets of the training.
        match_threshold: maximum distance of a match.
        match_ratio: maximum ratio of nearest to second-nearest distance of a match.
        other: any other strings.

    Example:
        >>> Card.from_strings({"licence": "CC0-1.0", "match_threshold": "0.9"}).match_threshold
        0.9
    """

    config: DescriptorConfig | None = None
    normalization: str = NORMALIZATION
    sha256: str = ""
    licence: str | None = None
    trained_on: str | None = None
    training_sets: tuple[tuple[str, str], ...] = ()
    unknown_from: str | None = None
    training: dict[str, Any] = field(default_factory=dict)
    command: str | None = None
    step: int | None = None
    seed: int | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    validation: dict[str, Any] = field(default_factory=dict)
    match_threshold: float | None = None
    match_ratio: float | None = None
    other: dict[str, str] = field(default_factory=dict)

    @property
    def seen_sets(self) -> tuple[tuple[str, str], ...]:
        """`training_sets`, and the other names in `trained_on` without a sha256."""
        named = {name for name, _ in self.training_sets}
        return (*self.training_sets, *((name, "") for name in listed_names(self.trained_on) if name not in named))

    @property
    def set_names(self) -> frozenset[str]:
        """Names of all sets that the weights have seen in training, also through a teacher or a start."""
        return frozenset(name for name, _ in self.seen_sets)

    @property
    def has_unknown_sets(self) -> bool:
        """Whether they may have seen sets that are not recorded."""
        return bool(self.unknown_from) or not self.set_names

    @classmethod
    def from_strings(cls, strings: Mapping[str, str]) -> "Card":
        """Parse a card from strings by name; a string that is invalid for its name is refused."""
        if not all(isinstance(text, str) for entry in strings.items() for text in entry):
            raise ArgumentTypeError("the names and values of a card must be strings")
        values: dict[str, Any] = {"other": {}}
        for name, text in strings.items():
            if name in WRITTEN_BY_SAVE:
                raise ArgumentError(f"the card may not contain {name}, which save writes itself")
            if name not in ENTRIES:
                values["other"][name] = text
                continue
            try:
                values[name] = _read_entry(name, text)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise ArgumentError(f"{name} of the card cannot be {short_repr(text)}") from None
        return cls(**values)

    @property
    def training_seed(self) -> int | None:
        """The seed of the training, if the card has it: as `seed`, or in the configuration of the training."""
        seed = self.training.get("seed") if self.seed is None else self.seed
        return seed if isinstance(seed, int) and not isinstance(seed, bool) else None

    @property
    def recipe(self) -> dict[str, Any]:
        """The settings of the training that all runs share which differ only by chance or in their data."""
        return without(self.training, NOT_OF_RECIPE)

    def to_strings(self) -> dict[str, str]:
        """The card as stored in a weight file, without the entries that `save` writes itself."""
        sets = [{"name": name, "patches_sha256": sha256} for name, sha256 in self.training_sets]
        strings: dict[str, str | None] = {name: getattr(self, name) for name in TEXTS}
        strings |= {name: json.dumps(getattr(self, name), sort_keys=True) for name in TABLES if getattr(self, name)}
        strings |= {"training_sets": json.dumps(sets) if sets else None}
        for name in (*WHOLE_NUMBERS, *LIMITS):
            value = getattr(self, name)
            strings[name] = None if value is None else str(value)
        return {**{name: text for name, text in strings.items() if text is not None}, **self.other}


def read_card(name_or_path: str | Path) -> Card:
    """The card of a weight file; its tensors are not read.

    Args:
        name_or_path: a name of `available()`, or a .safetensors file.

    Example:
        >>> from matchkernel.runtime.weights import read_card
        >>> read_card("tiny").config.variant
        'cartesian'
    """
    path = find_weights(name_or_path)
    return card_of(path, read_header(path)[0])


def card_of(path: Path, metadata: Mapping[str, str]) -> Card:
    """The card in the metadata of a weight file; an invalid card raises a WeightsError that names the file."""
    if "checkpoint" in metadata:
        raise WeightsError(f"{path}: a checkpoint of a training run; its weights are best or final.safetensors")
    if "matchkernel" in metadata:
        raise WeightsError(f"{path}: the weights of a matcher, not of a descriptor")
    if "config" not in metadata or "sha256" not in metadata:
        raise WeightsError(f"{path}: a safetensors file, but not one of matchkernel's (it has no configuration)")
    try:
        config = DescriptorConfig.from_dict(json.loads(metadata["config"]))
    except (ValueError, TypeError, AttributeError, RecursionError, MatchKernelError) as error:
        raise WeightsError(f"{path}: its configuration cannot be used ({error})") from None
    try:
        card = Card.from_strings({name: text for name, text in metadata.items() if name not in WRITTEN_BY_SAVE})
    except (ArgumentError, ArgumentTypeError) as error:
        raise WeightsError(f"{path}: {error}") from None
    return replace(card, config=config, normalization=metadata.get("normalization", ""), sha256=metadata["sha256"])


def available() -> list[str]:
    """Names of the trained weights shipped with the package.

    Example:
        >>> from matchkernel import available
        >>> available()
        ['dual', 'dual-paper', 'fc', 'light', 'light-wide', 'small-wide', 'tiny']
    """
    return sorted(path.stem for path in SHIPPED.glob("*.safetensors"))


def find_weights(name_or_path: str | Path) -> Path:
    """The file of weights given by name, by path, as a folder of save_pretrained, or as hf://owner/name on a hub."""
    if str(name_or_path).startswith(ADDRESS):
        return fetch(str(name_or_path))
    if str(name_or_path) in available():
        return SHIPPED / f"{name_or_path}.safetensors"
    path = Path(name_or_path)
    with suppress(OSError):  # a name too long for the file system is not a file
        if path.is_file():
            return path
        if (path / MODEL).is_file():
            return path / MODEL
    hint = "; --untrained or matchkernel.build makes an untrained one" if str(name_or_path) in VARIANTS else ""
    raise WeightsError(
        f"{name_or_path}: no such file, and no weights of that name in the package ({', '.join(available())}){hint}"
    )


def listed_names(text: str | None) -> list[str]:
    """The names of a list with commas."""
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _read_entry(name: str, text: str) -> Any:
    """The value of an entry of a card; an error of Python if the text cannot be one."""
    if name in TABLES:
        return dict(json.loads(text).items())
    if name in WHOLE_NUMBERS:
        return int(text)
    if name in LIMITS:
        value = float(text)
        if not 0 < value <= LIMITS[name]:
            raise ValueError
        return value
    if name == "training_sets":
        sets = tuple((entry["name"], entry.get("patches_sha256") or "") for entry in json.loads(text))
        if not all(isinstance(part, str) for entry in sets for part in entry):
            raise TypeError
        return sets
    return text


@dataclass(frozen=True)
class Weights:
    """Learned tensors, and what is known about them.

    Attributes:
        name: of the weights, for messages and results.
        config: the descriptor they belong to.
        card: what their file records about them.
        tensors: by their names in the state dict of the torch module.
    """

    name: str
    config: DescriptorConfig
    card: Card
    tensors: Mapping[str, Stored]

    @property
    def kind(self) -> str:
        """The type of their numbers, as safetensors calls it."""
        return next(iter(self.tensors.values())).kind

    @cached_property
    def state_sha256(self) -> str:
        """sha256 of what determines the descriptors: the configuration and the tensors, but not the card."""
        return digest({"config": str(self.config.to_dict())}, self.tensors)


def read_weights(name_or_path: str | Path) -> Weights:
    """Read and check a weight file. Only hf:// addresses are downloaded, and no code is executed.

    Args:
        name_or_path: a name of `available()`, a .safetensors file, a folder of `save_pretrained`, or hf://owner/name.
    """
    path = find_weights(name_or_path)
    of_folder = path.name == MODEL and path != Path(name_or_path)
    metadata, header = read_header(path)
    card = card_of(path, metadata)
    assert card.config is not None  # read
    _check_header(path, header, card.config)  # before any tensor is read
    tensors = read_tensors(path)
    if card.sha256 != digest(metadata, tensors):
        raise WeightsError(f"{path}: damaged, its contents do not match its recorded sha256; download or save it again")
    wanted = {name: tensors[name] for name in card.config.tensor_shapes}
    name = read_name(path.parent, card.config) if of_folder else path.stem
    weights = Weights(name, card.config, card, wanted)
    if bad := bad_numbers(weights):
        raise WeightsError(f"{path}: holds {bad}")
    return weights


def _check_header(path: Path, header: Mapping[str, Mapping[str, object]], config: DescriptorConfig) -> None:
    """Refuse tensors of other names, types or shapes than the configuration asks for."""
    wanted = config.tensor_shapes
    for name in sorted(wanted.keys() | {name for name in header if not name.startswith(IGNORED)}):
        kinds = ("I64",) if name.endswith(COUNTER) else FLOATS
        expected = [f"{kind} {list(wanted[name])}" for kind in kinds] if name in wanted else ["nothing"]
        found = f"{header[name]['dtype']} {header[name]['shape']}" if name in header else "nothing"
        if found not in expected:
            raise WeightsError(
                f"{path}: does not contain the weights of {config.variant!r} that it claims: tensor {name[:80]!r} is"
                f" {found[:80]}, expected {' or '.join(expected)}"
            )


def bad_numbers(weights: Weights) -> str:
    """What makes these tensors unusable, with all of them in the precision of the first."""
    precision = KINDS[weights.kind]
    for name, tensor in weights.tensors.items():
        values = tensor.array()
        if not name.endswith(COUNTER):
            with np.errstate(over="ignore"):
                values = values.astype("float32" if precision == "bfloat16" else precision)
        if not np.isfinite(values).all():
            return f"NaN or infinite values in {name}, as torch.{precision}"
        if name.endswith(".running_var") and (values < 0).any():
            return f"negative variances in {name}"
    return ""


@dataclass(frozen=True)
class Convolution:
    """A 3 x 3 convolution with padding 1, BatchNorm folded into it, followed by ReLU; float32."""

    weight: np.ndarray  # (outputs, inputs, 3, 3)
    bias: np.ndarray  # (outputs,)
    stride: int


@dataclass(frozen=True)
class FoldedNetwork:
    """A descriptor as it is computed at inference, for one patch size; float32.

    Attributes:
        config: of the descriptor.
        size: side of the patches.
        networks: the convolutions of each network.
        matrices: (n * n, P) for each aggregation, which multiplies the map: c F, or the mean; None: the map itself.
        projection: (D, width) of M or W and (D,) added to the product; None if nothing is learned there.
        scale_and_shift: (D,) each, of the BatchNorm that `sum` and `concat` may have.
    """

    config: DescriptorConfig
    size: int
    networks: list[list[Convolution]]
    matrices: list[np.ndarray | None]
    projection: tuple[np.ndarray, np.ndarray] | None
    scale_and_shift: tuple[np.ndarray, np.ndarray] | None = None


def fold(weights: Weights, size: int) -> FoldedNetwork:
    """Fold every BatchNorm into the convolution or matrix before it, in float64, so that only one rounding is added.

    Args:
        weights: of a descriptor, or of a folded copy of one.
        size: side of the patches.
    """
    config, variant = weights.config, VARIANTS[weights.config.variant]
    values = {name: tensor.array().astype(np.float64) for name, tensor in weights.tensors.items()}
    networks = []
    for k in range(variant.networks):
        at = f"backbones.{k}.layers."
        layers = [
            Convolution(*_folded(values, f"{at}{3 * number}", f"{at}{3 * number + 1}"), stride)
            for number, (_, _, stride) in enumerate(config.convolutions)
        ]
        networks.append(layers)
    projection = scale_and_shift = None
    if variant.projects:
        projection = _folded(values, "projection", "output_norm")
    elif config.output_norm == "batch":
        scale, shift = _norm(values, "output_norm")
        scale_and_shift = scale.astype(np.float32), shift.astype(np.float32)
    return FoldedNetwork(config, size, networks, _aggregation_matrices(config, size), projection, scale_and_shift)


def _folded(values: Mapping[str, np.ndarray], layer: str, norm: str) -> tuple[np.ndarray, np.ndarray]:
    """Weight and bias, in float32, of a layer and the BatchNorm after it; a folded copy has none there."""
    weight = values[f"{layer}.weight"]
    bias = values.get(f"{layer}.bias", np.zeros(len(weight)))
    if f"{norm}.running_var" in values:
        scale, shift = _norm(values, norm)
        weight, bias = weight * scale.reshape(-1, *[1] * (weight.ndim - 1)), bias * scale + shift
    return weight.astype(np.float32), bias.astype(np.float32)


def _norm(values: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """A BatchNorm as a factor and a number to add; a folded copy that keeps one has both."""
    if f"{name}.scale" in values:
        return values[f"{name}.scale"], values[f"{name}.shift"]
    scale = 1 / np.sqrt(values[f"{name}.running_var"] + EPSILON)
    return scale, -values[f"{name}.running_mean"] * scale


def _aggregation_matrices(config: DescriptorConfig, size: int) -> list[np.ndarray | None]:
    """The matrix that multiplies the map of each aggregation, (n * n, P) float32; None where the map itself is used."""
    variant, n = VARIANTS[config.variant], size // STRIDE
    if not variant.systems:
        return [np.full((n * n, 1), 1 / n**2, np.float32) if variant.any_size else None]
    assert config.s is not None  # resolved
    assert config.grid is not None
    return [
        np.float32(64 / n**2)  # c of [M12]
        * position_matrix(
            system, n, fourier_coefficients(kappa, config.s), grid=config.grid, center_weight=bool(config.center_weight)
        ).astype(np.float32)
        for system, kappa in zip(variant.systems, config.kappas, strict=True)
    ]
