"""The seven descriptors of the paper as one module built from a configuration."""

import copy
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.model.backbone import Backbone, fold_into, normalize_patches
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.model.precision import exact_type, unit_rows, widened_type
from matchkernel.runtime.config import MIN_PATCH_SIZE, STRIDE, VARIANTS, DescriptorConfig
from matchkernel.runtime.positions import fourier_coefficients
from matchkernel.runtime.weights import Card

ORTHOGONAL_GAIN = 0.6  # HardNet's


class SumOverPositions(nn.Module):
    """Sum over positions, without encoding them: (B, d, n, n) -> (B, d) [M17].

    Computed as the mean, which does not depend on n; it differs from the sum by a factor that l2 normalisation removes.
    """

    def forward(self, phi: Tensor) -> Tensor:
        """The mean over positions."""
        return phi.mean((-2, -1))


class FixedNorm(nn.Module):
    """A BatchNorm without affine part as two fixed vectors, where there is no matrix to fold it into."""

    scale: Tensor
    shift: Tensor

    def __init__(self, norm: nn.BatchNorm1d) -> None:
        super().__init__()
        assert norm.running_mean is not None
        assert norm.running_var is not None
        exact = exact_type(norm.running_var.device)
        scale = (norm.running_var.to(exact) + norm.eps).rsqrt()
        self.register_buffer("scale", scale)
        self.register_buffer("shift", -norm.running_mean.to(exact) * scale)

    def forward(self, rows: Tensor) -> Tensor:
        """Scaled and shifted (..., D)."""
        return rows * self.scale + self.shift


class Descriptor(nn.Module):
    """Describe gray patches by unit vectors: (B, 1, N, N) floats of any range -> (B, D).

    patches -> per-patch normalisation -> one or two networks -> aggregation of each map -> M or W -> BatchNorm -> l2.
    See DescriptorConfig for the parts of each variant. The state dict holds learned tensors and BatchNorm statistics.

    Args:
        config: what to build.
        generator: source of the initial weights (default: torch's own).
    """

    def __init__(self, config: DescriptorConfig, generator: torch.Generator | None = None) -> None:
        super().__init__()
        variant = VARIANTS[config.variant]
        self.config = config
        self.is_folded = False  # True for a copy made by `fold`
        self.name = config.variant  # of the weights, if they were loaded
        self.card = Card()  # what their file records about them
        self.backbones = nn.ModuleList(Backbone(config) for _ in range(variant.networks))
        self.dropout = nn.Dropout(config.dropout or 0.0)
        self.aggregations = nn.ModuleList(_aggregations(config))
        assert config.D is not None  # resolved
        if variant.projects:
            has_bias = bool(variant.systems)  # m; the paper's count has none for W
            self.projection: nn.Module = nn.Linear(config.aggregated_width, config.D, bias=has_bias)
        else:
            self.projection = nn.Identity()
        has_norm = config.output_norm == "batch"
        self.output_norm: nn.Module = nn.BatchNorm1d(config.D, affine=False) if has_norm else nn.Identity()
        self.reset_parameters(generator)

    def forward(self, patches: Tensor) -> Tensor:
        """Unit descriptors of patches."""
        return unit_rows(self.embed(self.feature_maps(patches)))

    def feature_maps(self, patches: Tensor) -> list[Tensor]:
        """Phi of every aggregation, each (B, d, n, n): one shared map, or one map each (`dual`) [M1, M16]."""
        self._check(patches)
        maps = [self.feature_map(k, patches) for k in range(len(self.backbones))]
        return maps * (len(self.aggregations) // len(maps))

    def feature_map(self, k: int, patches: Tensor) -> Tensor:
        """Phi of network k, (B, d, n, n) [M1]."""
        dtype = next(self.backbones.parameters()).dtype
        phi: Tensor = self.dropout(self.backbones[k](normalize_patches(patches).to(dtype)))
        return phi

    def embed(self, maps: list[Tensor]) -> Tensor:
        """From feature maps to the descriptor before l2 normalisation, (B, D) [M2, M13, M14, M15]."""
        return self.project([aggregate(phi) for aggregate, phi in zip(self.aggregations, maps, strict=True)])

    def project(self, parts: list[Tensor]) -> Tensor:
        """From aggregated maps to the descriptor before l2 normalisation, (B, D)."""
        embedded: Tensor = self.output_norm(self.projection(torch.cat(parts, 1)))
        return embedded

    @torch.no_grad()
    def fold(self, *, device: torch.device | None = None) -> "Descriptor":
        """The copy that `describe` computes with: every BatchNorm is folded into the preceding convolution, M or W.

        On a CPU a half-precision model becomes float32, which is faster there, more accurate, and gives the same
        rows on every processor. Convolutions are laid out channels last, which is faster on CPUs
        (benchmarks/describe.py). A folded model is returned as it is, if nothing has to be done.

        Args:
            device: of the copy (default: the model's device).
        """
        weight = next(self.parameters())
        device = weight.device if device is None else device
        dtype = widened_type(weight.dtype) if device.type == "cpu" else weight.dtype
        if self.is_folded:
            return self if (weight.device, weight.dtype) == (device, dtype) else copy.deepcopy(self).to(device, dtype)
        result = copy.deepcopy(self).eval()
        for backbone in result.backbones:
            assert isinstance(backbone, Backbone)
            backbone.fold(dtype)
        if isinstance(result.projection, nn.Linear) and isinstance(result.output_norm, nn.BatchNorm1d):
            fold_into(result.projection, result.output_norm, dtype)
            result.output_norm = nn.Identity()
        elif isinstance(result.output_norm, nn.BatchNorm1d):  # of `sum` or `concat`
            result.output_norm = FixedNorm(result.output_norm)
        result.dropout = nn.Dropout(0.0)
        result.is_folded = True
        result.to(device, dtype, memory_format=torch.channels_last)  # type: ignore[call-overload]
        return result.requires_grad_(False)

    def reset_parameters(self, generator: torch.Generator | None = None) -> None:
        """Initialise: orthogonal weights with gain 0.6, m = 0, BatchNorm statistics at their initial values."""
        for module in self.modules():
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                nn.init.orthogonal_(module.weight, ORTHOGONAL_GAIN, generator=generator)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d)):
                module.reset_running_stats()

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """As nn.Module, but explains the error if `fc` weights of another patch size are given.

        The tensors of `concat` do not show the size they were trained at; `matchkernel.load` knows it from the file.
        """
        weight = state_dict.get("projection.weight")
        if self.config.variant == "fc" and isinstance(weight, Tensor) and _is_of_another_size(weight, self.config):
            raise ArgumentError(
                f"{why_size_is_fixed(self.config)}; these weights have W of shape {tuple(weight.shape)}"
            )
        return super().load_state_dict(state_dict, strict, assign)

    def extra_repr(self) -> str:
        """The configuration, for print(model)."""
        return ", ".join(f"{name}={value}" for name, value in self.config.to_dict().items())

    def _check(self, patches: Tensor) -> None:
        if not isinstance(patches, Tensor):
            raise ArgumentTypeError(f"patches must be a torch tensor, got {type(patches).__name__}")
        if not patches.is_floating_point():
            raise ArgumentTypeError(f"patches must be floats, got {patches.dtype}; matchkernel.describe takes integers")
        shape = tuple(patches.shape)
        if len(shape) != 4 or shape[1] != 1 or shape[2] != shape[3]:
            raise ArgumentError(f"patches must have shape (B, 1, N, N), got {shape}")
        check_patch_size(self.config, shape[2])


def build(variant: str = "dual", *, generator: torch.Generator | None = None, **settings: Any) -> Descriptor:
    """Make an untrained descriptor. Settings are those of DescriptorConfig.

    Example:
        >>> import torch
        >>> from matchkernel import build
        >>> model = build("cartesian", s=1).eval()
        >>> model(torch.rand(3, 1, 32, 32)).shape
        torch.Size([3, 128])
    """
    return Descriptor(DescriptorConfig.from_dict({"variant": variant, **settings}), generator)


def check_model(model: object) -> None:
    """Refuse anything that is not a descriptor, such as the name of one."""
    if not isinstance(model, Descriptor):
        hint = "; matchkernel.load opens a name or a file" if isinstance(model, (str, Path)) else ""
        raise ArgumentTypeError(f"model must be a matchkernel Descriptor, got {type(model).__name__}{hint}")


def check_patch_size(config: DescriptorConfig, N: int) -> None:
    """Refuse a patch size that the descriptor does not support, with the reason."""
    if not VARIANTS[config.variant].any_size and config.patch_size != N:
        raise ArgumentError(f"{why_size_is_fixed(config)}, got {N} px; `describe` can resize them (--resize)")
    if N % STRIDE or N < MIN_PATCH_SIZE:
        raise ArgumentError(
            f"the side of patches must be a multiple of 4, at least 8, got {N}; `describe` can resize them (--resize)"
        )


def why_size_is_fixed(config: DescriptorConfig) -> str:
    """One clause that explains why `fc` and `concat` work at one patch size only."""
    n, N = config.n, config.patch_size
    if config.variant == "fc":
        return f"fc learns a separate matrix W_p for each of {n} x {n} positions, so it takes {N} px patches only"
    return f"concat lists the features of {n} x {n} positions, so D = {config.D} holds for {N} px patches only"


def _is_of_another_size(weight: Tensor, config: DescriptorConfig) -> bool:
    """Whether W fits the descriptor except for the number of positions."""
    cells = weight.shape[-1] // config.d
    fits = tuple(weight.shape) == (config.D, config.d * cells) and math.isqrt(cells) ** 2 == cells
    return fits and cells != config.n**2


def _aggregations(config: DescriptorConfig) -> list[nn.Module]:
    variant = VARIANTS[config.variant]
    if variant.systems:
        assert config.s is not None  # resolved
        assert config.grid is not None
        return [
            SpatialEncoding(
                system,
                config.n,
                fourier_coefficients(kappa, config.s),
                grid=config.grid,
                center_weight=bool(config.center_weight),
                unit_norm=bool(config.encoding_norm),
            )
            for system, kappa in zip(variant.systems, config.kappas, strict=True)
        ]
    return [SumOverPositions() if variant.any_size else nn.Flatten()]
