"""Weight files without torch: read, checked, and folded into what is computed at inference."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from matchkernel.errors import WeightsError
from matchkernel.runtime.card import Card, card_of, find_weights
from matchkernel.runtime.config import COUNTER, STRIDE, VARIANTS, DescriptorConfig
from matchkernel.runtime.position_matrix import position_matrix
from matchkernel.runtime.von_mises import fourier_coefficients
from matchkernel.storage.stored import KINDS, Stored, digest, read_header, read_tensors

IGNORED = "statistics."  # tensors that earlier versions wrote for models trained at several patch sizes
FLOATS = ("F16", "BF16", "F32", "F64")  # as safetensors calls them
EPSILON = 1e-5  # BatchNorm's


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
    """Read and check a weight file. Nothing is downloaded and no code is executed.

    Args:
        name_or_path: a name of `available()`, or a .safetensors file.
    """
    path = find_weights(name_or_path)
    metadata, header = read_header(path)
    card = card_of(path, metadata)
    assert card.config is not None  # read
    _check_header(path, header, card.config)  # before any tensor is read
    tensors = read_tensors(path)
    if card.sha256 != digest(metadata, tensors):
        raise WeightsError(f"{path}: damaged, its contents do not match its recorded sha256; download or save it again")
    wanted = {name: tensors[name] for name in card.config.tensor_shapes}
    weights = Weights(path.stem, card.config, card, wanted)
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
        weights: of the descriptor.
        size: side of the patches.
    """
    config = weights.config
    values = {name: tensor.array().astype(np.float64) for name, tensor in weights.tensors.items()}
    networks = []
    for k in range(VARIANTS[config.variant].networks):
        layers = []
        for number, (_, _, stride) in enumerate(config.convolutions):
            at = f"backbones.{k}.layers."
            scale, shift = _norm(values, f"{at}{3 * number + 1}")
            weight = values[f"{at}{3 * number}.weight"] * scale[:, None, None, None]
            layers.append(Convolution(weight.astype(np.float32), shift.astype(np.float32), stride))
        networks.append(layers)
    projection, final = None, _norm(values, "output_norm") if config.output_norm == "batch" else None
    if VARIANTS[config.variant].projects:
        scale, shift = (np.ones(config.D or 0), np.zeros(config.D or 0)) if final is None else final
        weight = values["projection.weight"] * scale[:, None]
        bias = values.get("projection.bias", 0) * scale + shift
        projection, final = (weight.astype(np.float32), bias.astype(np.float32)), None
    exact = None if final is None else (final[0].astype(np.float32), final[1].astype(np.float32))
    return FoldedNetwork(config, size, networks, aggregation_matrices(config, size), projection, exact)


def _norm(values: Mapping[str, np.ndarray], name: str) -> tuple[np.ndarray, np.ndarray]:
    """A BatchNorm as a factor and a number to add."""
    scale = 1 / np.sqrt(values[f"{name}.running_var"] + EPSILON)
    return scale, -values[f"{name}.running_mean"] * scale


def aggregation_matrices(config: DescriptorConfig, size: int) -> list[np.ndarray | None]:
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
