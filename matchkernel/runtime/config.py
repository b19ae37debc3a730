"""One frozen configuration for all seven descriptors: what may be set, what it defaults to, what is refused."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from matchkernel.errors import ArgumentError
from matchkernel.storage.settings import check_ranges, from_dict, setting, short_repr, to_dict

AUTO, TORCH, ONNX, INT8, CUDA_HALF = "auto", "torch", "onnx", "onnx-int8", "cuda-half"
ENGINES = (AUTO, TORCH, ONNX, INT8, CUDA_HALF)  # what computes descriptors; here, so that naming them loads nothing
PHOTO_MODEL, PHOTO_MODEL_BEFORE = "small-wide", "light-wide"  # default for photos, now and until version 0.2


def photo_model(recorded: str) -> str:
    """The default for photos where features of a model are there: what an earlier version's default began stays so."""
    return recorded if recorded == PHOTO_MODEL_BEFORE else PHOTO_MODEL


@dataclass(frozen=True)
class Variant:
    """The parts of a descriptor: how the map is aggregated and what follows."""

    symbol: str  # the paper's
    systems: tuple[str, ...] = ()  # coordinate systems of the spatial encoding; none: the map itself is used
    networks: int = 1  # separate convolutional networks
    projects: bool = True  # a learned matrix (M or W) follows
    any_size: bool = True  # no learned tensor and no output width depends on the patch size
    dropout: float = 0.0  # default


VARIANTS: Mapping[str, Variant] = {
    "cartesian": Variant("ψ^xy", systems=("cartesian",)),
    "polar": Variant("ψ^ρθ", systems=("polar",)),
    "combined": Variant("ψ^c", systems=("cartesian", "polar")),
    "dual": Variant("⋆ψ^c", systems=("cartesian", "polar"), networks=2),
    "fc": Variant("ψ (HardNet+)", any_size=False, dropout=0.3),
    "sum": Variant("ψ^sum", projects=False),
    "concat": Variant("ψ^cat", projects=False, any_size=False),
}

WIDTHS, HALVINGS = (32, 32, 64, 64, None), (3, 5)  # HardNet's, see DescriptorConfig; None is d
STRIDE = 4  # pixels between neighbouring cells of the feature map: two of the convolutions have stride 2
COUNTER = ".num_batches_tracked"  # of BatchNorm, a whole number
MAX_CONVOLUTIONS = 32
MIN_PATCH_SIZE = 8
GRIDS = ("cells", "endpoints", "fields")
MAX_KAPPA = 1e8  # the recurrence takes about 10 sqrt(kappa) steps; such a kernel is 0.0001 rad wide
MAX_S = 32  # (2s + 1)^2 = 4225 position values per channel: far beyond use, and a bound for what a file may request
MAX_WIDTH = 65536
MAX_PATCH_SIZE = 512


@dataclass(frozen=True)
class DescriptorConfig:
    """Everything that determines a descriptor except its learned parameters.

    A setting left at None takes the default of its variant. A setting that does not apply (s for `fc`, D for
    `sum`, ...) stays None, and giving it a value is refused rather than ignored.

    Attributes:
        variant: one of cartesian, polar, combined, dual, fc, sum, concat.
        s: frequencies of the feature map (default 2).
        kappa_cartesian: concentration of the kernel on x and y (default 1 for s <= 1, else 8).
        kappa_polar: the same for rho and theta.
        d: channels of the feature map, the width of the last convolution.
        widths: channels of the convolutions before it (default: the paper's five, 32, 32, 64, 64, d). Narrower or fewer
            make a smaller network.
        halvings: numbers, from 1, of the two convolutions that halve the map (default: the paper's 3 and 5).
        D: dimension of a descriptor (default 128; d for `sum`, n^2 d for `concat`).
        patch_size: N, a multiple of 4. The only size that `fc` and `concat` accept; for others the size trained at.
        grid: "cells", "endpoints" or "fields", see positions.
        center_weight: weigh position p by w_p (default True).
        encoding_norm: scale each system's vec(Phi^T F) to mean square 1 instead of c (default False).
        output_norm: "batch", a BatchNorm without affine part after M or W (default), or "none". `sum` and `concat` have
            none unless "batch" is asked for.
        dropout: share of the elements of Phi dropped in training (default 0.3 for `fc`, else 0; `sum` and `concat` have
            it if it is given).

    Example:
        >>> config = DescriptorConfig("cartesian", s=1)
        >>> config.kappa_cartesian, config.D, f"{config.parameters:,}"
        (1.0, 128, '433,568')
    """

    variant: str = setting("dual", choices=VARIANTS)
    s: int | None = setting(None, low=0, high=MAX_S)
    kappa_cartesian: float | None = setting(None, above=0, high=MAX_KAPPA)
    kappa_polar: float | None = setting(None, above=0, high=MAX_KAPPA)
    d: int = setting(128, low=1, high=MAX_WIDTH)
    widths: tuple[int, ...] | None = setting(None, low=1, high=MAX_WIDTH)
    halvings: tuple[int, ...] | None = setting(None, low=1, high=MAX_CONVOLUTIONS)
    D: int | None = setting(None, low=1)
    patch_size: int = setting(32, low=MIN_PATCH_SIZE, high=MAX_PATCH_SIZE)
    grid: str | None = setting(None, choices=GRIDS)
    center_weight: bool | None = None
    encoding_norm: bool | None = None
    output_norm: str | None = setting(None, choices=("batch", "none"))
    dropout: float | None = setting(None, low=0, below=1)

    def __post_init__(self) -> None:
        check_ranges(self)
        if self.patch_size % STRIDE:
            raise ArgumentError(f"patch_size must be a multiple of {STRIDE}, got {self.patch_size}")
        self._check_convolutions()
        self._resolve_encoding()
        self._resolve_output()

    @property
    def convolutions(self) -> list[tuple[int, int, int]]:
        """Channels in, channels out and stride of every 3 x 3 convolution."""
        outputs = [width or self.d for width in (*(WIDTHS if self.widths is None else self.widths), self.d)]
        halvings = self.halvings or HALVINGS
        strides = [2 if number in halvings else 1 for number in range(1, len(outputs) + 1)]
        return list(zip([1, *outputs], outputs, strides, strict=False))

    @property
    def receptive_side(self) -> int:
        """Side of the square of pixels that a cell of the map sees: 23 in the paper; cell i is centred on pixel 4 i."""
        side, step = 1, 1
        for _, _, stride in self.convolutions:
            side, step = side + 2 * step, step * stride
        return side

    @property
    def n(self) -> int:
        """Side of the feature map at patch_size."""
        return self.patch_size // STRIDE

    @property
    def aggregated_width(self) -> int:
        """Dimension of the aggregated feature maps of a patch, before M or W."""
        variant = VARIANTS[self.variant]
        if variant.systems:
            assert self.s is not None  # resolved
            return len(variant.systems) * self.d * (2 * self.s + 1) ** 2
        return self.d * (1 if variant.any_size else self.n**2)

    @property
    def parameters(self) -> int:
        """Number of learned parameters."""
        return self.convolution_parameters + self.head_parameters

    @property
    def convolution_parameters(self) -> int:
        """Number of learned parameters of the convolutions."""
        return self._count("backbones.")

    @property
    def head_parameters(self) -> int:
        """Number of learned parameters after the convolutions: M and m, or W."""
        return self._count("projection.")

    @property
    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the tensors of the descriptor by name, in the order of its state dict."""
        variant = VARIANTS[self.variant]
        shapes: dict[str, tuple[int, ...]] = {}
        for network in range(variant.networks):
            for number, (inputs, outputs, _) in enumerate(self.convolutions):
                shapes[f"backbones.{network}.layers.{3 * number}.weight"] = (outputs, inputs, 3, 3)
                shapes |= _norm_shapes(f"backbones.{network}.layers.{3 * number + 1}", outputs)
        assert self.D is not None  # resolved
        if variant.projects:
            shapes["projection.weight"] = (self.D, self.aggregated_width)
            if variant.systems:
                shapes["projection.bias"] = (self.D,)
        if self.output_norm == "batch":
            shapes |= _norm_shapes("output_norm", self.D)
        return shapes

    @property
    def kappas(self) -> tuple[float, ...]:
        """The concentration of each coordinate system, in the order of the variant's systems."""
        by_system = {"cartesian": self.kappa_cartesian, "polar": self.kappa_polar}
        return tuple(kappa for system in VARIANTS[self.variant].systems if (kappa := by_system[system]) is not None)

    @classmethod
    def from_dict(cls, settings: Mapping[str, Any]) -> "DescriptorConfig":
        """Build from names and values; an unknown name is refused."""
        return from_dict(cls, settings)

    def to_dict(self) -> dict[str, Any]:
        """The resolved settings, None left out; `from_dict` gives the same configuration back."""
        return to_dict(self)

    def _count(self, part: str) -> int:
        shapes = self.tensor_shapes.items()
        return sum(
            math.prod(shape) for name, shape in shapes if name.startswith(part) and name.endswith((".weight", ".bias"))
        )

    def _check_convolutions(self) -> None:
        if self.widths is not None and len(self.widths) >= MAX_CONVOLUTIONS:
            raise ArgumentError(f"widths must have fewer than {MAX_CONVOLUTIONS} entries, got {len(self.widths)}")
        number = len(self.convolutions)
        halvings = self.halvings or HALVINGS
        if len(set(halvings)) != 2 or len(halvings) != 2 or max(halvings) > number:
            raise ArgumentError(
                f"halvings must be two different numbers of the {number} convolutions, such as [1, 2],"
                f" got {list(halvings)}"
            )

    def _resolve_encoding(self) -> None:
        systems = VARIANTS[self.variant].systems
        self._default("s", 2 if systems else None)
        kappa = None if self.s is None else (1.0 if self.s <= 1 else 8.0)
        for system in ("cartesian", "polar"):
            self._default(f"kappa_{system}", kappa if system in systems else None)
        self._default("grid", "cells" if systems else None)
        self._default("center_weight", True if systems else None)
        self._default("encoding_norm", False if systems else None)

    def _resolve_output(self) -> None:
        variant = VARIANTS[self.variant]
        if variant.projects or self.output_norm != "batch":  # `sum` and `concat` may ask for one
            self._default("output_norm", "batch" if variant.projects else None)
        if variant.projects:
            self._default("dropout", variant.dropout)
        fixed = None if variant.projects else self.d * (1 if variant.any_size else self.n**2)
        if self.D is None:
            object.__setattr__(self, "D", 128 if fixed is None else fixed)
        if fixed is not None and fixed != self.D:
            raise ArgumentError(
                f"{self.variant} has D = {fixed} with these settings, got D = {short_repr(self.D)}; leave D out"
            )
        if fixed is None and self.D is not None and self.D > MAX_WIDTH:
            raise ArgumentError(f"D must be from 1 to {MAX_WIDTH:,}, got {short_repr(self.D)}")

    def _default(self, name: str, value: Any) -> None:
        """Fill in a setting that was left out; refuse one that was given but does not apply (value is None)."""
        if getattr(self, name) is None:
            object.__setattr__(self, name, value)
        elif value is None:
            raise ArgumentError(f"{self.variant} has no {name}: leave it out (got {short_repr(getattr(self, name))})")


def _norm_shapes(name: str, width: int) -> dict[str, tuple[int, ...]]:
    return {f"{name}.running_mean": (width,), f"{name}.running_var": (width,), f"{name}{COUNTER}": ()}
