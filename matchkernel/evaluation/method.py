"""Methods to score: of square patches (Method) and of photos (PhotoMethod), with a record of how they compute."""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as nnf

from matchkernel.data.patch_set import PatchSet, known_names, patches_sha256
from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.evaluation.distances import DISTANCES
from matchkernel.model.describe import resize_patches
from matchkernel.photos.features import Features, Matches
from matchkernel.photos.match import match as match_nearest
from matchkernel.photos.nearest import Distance
from matchkernel.storage.files import file_hash
from matchkernel.storage.work import Progress, progress_counter

# Patches per batch. A network always gets this many, the last batch padded with blank patches: PyTorch chooses its
# algorithms by batch size, so the last bits of a row would otherwise depend on the number of patches in its batch.
BATCH = 64
# Keys of a photo method's settings that do not change its features.
MATCHING = ("filter", "matcher", "context", "aligned")
SAME_NAME = "trained on another set of the name {}: if both show the same place, the scores are too high"
RESIZED = "others resized to it by exact area means (linear to enlarge)"


@dataclass(frozen=True)
class Method:
    """A descriptor to be scored."""

    name: str  # in tables
    distance: Distance  # it was made for
    facts: dict[str, Any]  # what its results record besides the scores: `parameters`, `hand_crafted`, `settings`, ...
    # (K, N, N) uint8 patches of any size and a progress callback -> (K, D) float32, or (K, D / 8) uint8 of packed bits;
    # a patch that cannot be described gets a row of zeros.
    compute: Callable[[np.ndarray, Progress | None], np.ndarray] | None = field(repr=False)
    trained_on: frozenset[str] = frozenset()  # names of sets it must not be tested on
    trained_sha256: frozenset[str] = frozenset()  # of the patches of these sets, which identifies renamed copies
    warnings: tuple[str, ...] = ()  # repeated in every result
    files: Path | None = None  # folder of its descriptors of HPatches, see descriptor_files
    identified: frozenset[str] = frozenset()  # names in `trained_on` of sets whose sha256 is in `trained_sha256`

    def describe(self, patches: np.ndarray, progress: Progress | None = None) -> np.ndarray:
        """Rows of patches, see `compute`."""
        if self.compute is None:
            raise ArgumentError(f"{self.name}: descriptors from files cannot describe other patches")
        return self.compute(patches, progress)

    def chosen_distance(self, wanted: Distance | None) -> Distance:
        """The requested distance, or its own; refuses Hamming for numbers and other distances for bits."""
        if wanted is not None and wanted not in DISTANCES:
            raise ArgumentError(f"distance must be one of {', '.join(DISTANCES)}, got {wanted!r}")
        if wanted is not None and (wanted == "hamming") != (self.distance == "hamming"):
            kind = "bits, which need" if self.distance == "hamming" else "numbers, which have no"
            raise ArgumentError(f"{self.name} gives {kind} Hamming distance, got {wanted}")
        return wanted or self.distance

    def that_learned_from(self, sets: Collection[tuple[str, str]], names: Iterable[str]) -> "Method":
        """The same with its training sets: names with sha256 of the patches, empty if any count, and names alone."""
        named, alone = {name for name, _ in sets}, {name for name, sha256 in sets if not sha256}
        hashes = frozenset(sha256 for _, sha256 in sets if sha256)
        return replace(
            self, trained_on=frozenset(named.union(names)), trained_sha256=hashes, identified=frozenset(named - alone)
        )

    def was_trained_on(self, name: str, patches: PatchSet) -> bool:
        """Whether a test set is or contains a training set: by sha256 of the patches, or by a name without one."""
        names, hashes = self.trained_on & {name, *known_names(patches)}, patches_sha256(patches)
        return bool(names - self.identified if hashes else names) or not self.trained_sha256.isdisjoint(hashes)

    def doubts(self, name: str, patches: PatchSet) -> list[str]:
        """A warning for a test set that has the name of a training set, but other patches."""
        names = ", ".join(sorted(self.identified & {name, *known_names(patches)}))
        return [SAME_NAME.format(names)] if names else []


@dataclass(frozen=True)
class PhotoMethod:
    """A way to find and to match keypoints."""

    name: str  # in tables
    licence: str  # of its weights or code
    # Everything that determines the result, JSON values. Those of MATCHING only concern `match`; there is a "matcher"
    # if the method matches in its own way.
    settings: dict[str, Any]
    # (H, W) or (H, W, 3) uint8 pixels and the image's name -> features; features of two images -> matches, filtered.
    extract: Callable[[np.ndarray, str], Features] = field(repr=False)
    match: Callable[[Features, Features], Matches] = field(default=match_nearest, repr=False)
    trained_on: frozenset[str] = frozenset()  # names of the scenes that its weights learned from
    warnings: tuple[str, ...] = ()  # repeated in its results


def descriptor_files(folder: Path, *, bits: bool = False, name: str | None = None) -> Method:
    """Descriptors of an HPatches set from any source, as CSV files in the official layout (see read_descriptors).

    With `bits` their numbers are bytes of packed bits, compared by Hamming distance.
    """
    own = folder.resolve().name
    return Method(name or own, "hamming" if bits else "l2", {"settings": {"files": own}}, None, files=folder)


def patch_method(
    name: str,
    size: int,
    compute: Callable[[Tensor], np.ndarray],
    settings: dict[str, str],
    *,
    parameters: int = 0,
    hand_crafted: bool = True,
    is_binary: bool = False,
) -> Method:
    """A method that works on patches of one size; others are resized.

    Patches are described in batches, in bounded memory; a row does not depend on the other patches. A constant patch,
    or one in which the method finds nothing, gets a row of zeros.

    Args:
        name: in tables.
        size: side of the patches in pixels.
        compute: (BATCH, 1, size, size) floats 0 to 255 -> (BATCH, D) floats, or uint8 with packed bits.
        settings: how rows are computed, for results.
        parameters: number of learned parameters, including a learned whitening.
        hand_crafted: the method is designed, not learned.
        is_binary: rows are bits, compared by Hamming distance.
    """
    width = compute(torch.zeros(BATCH, 1, size, size)).shape[1]

    def describe(patches: np.ndarray, progress: Progress | None) -> np.ndarray:
        check_patches(patches, name)
        rows = np.zeros((len(patches), width), np.uint8 if is_binary else np.float32)
        add = progress_counter(progress, len(patches))
        for start in range(0, len(patches), BATCH):
            batch, is_varied = padded_batch(patches[start : start + BATCH], size)
            found = compute(batch)[: len(is_varied)]
            is_described = is_varied & np.isfinite(found).all(1)
            rows[start : start + BATCH] = np.where(is_described[:, None], found, 0)
            add(len(is_varied))
        return rows

    facts = {"parameters": parameters, "hand_crafted": hand_crafted, "settings": settings}
    return Method(name, "hamming" if is_binary else "l2", facts, describe)


def network_method(name: str, module: nn.Module, size: int, path: Path, settings: dict[str, str]) -> Method:
    """A method that runs a network, (K, 1, size, size) -> (K, D), on patches with gray levels 0 to 255.

    `settings` say where the network comes from; patch size and weight file are added.
    """
    patch = {"patch": f"{size} px, {RESIZED}; gray levels 0 to 255"}
    weights = {"weights": path.name, "sha256": file_hash(path)}
    parameters = sum(parameter.numel() for parameter in module.parameters())
    options: dict[str, Any] = {"parameters": parameters, "hand_crafted": False}
    return patch_method(name, size, forward(module), {**patch, **settings, **weights}, **options)


class UnitRows(nn.Module):
    """Divide every row by its length."""

    def forward(self, rows: Tensor) -> Tensor:
        """(K, D) -> (K, D)."""
        return nnf.normalize(rows)


def forward(module: nn.Module) -> Callable[[Tensor], np.ndarray]:
    """A function that runs a network without gradients."""

    @torch.no_grad()
    def compute(batch: Tensor) -> np.ndarray:
        return module(batch).numpy()

    return compute


def padded_batch(patches: np.ndarray, size: int) -> tuple[Tensor, np.ndarray]:
    """Resize (k, N, N) uint8 patches, k at most BATCH, and pad the batch with blank ones.

    Returns:
        (BATCH, 1, size, size) float32 from 0 to 255; (k,) bool, False for constant patches.
    """
    batch = torch.from_numpy(np.array(patches, order="C")).float()[:, None]
    if batch.shape[-1] != size:
        batch = resize_patches(batch, size)
    low, high = batch.flatten(1).aminmax(dim=1)
    is_varied = high - low > 16 * torch.finfo(batch.dtype).eps * high  # resizing a fine checkerboard leaves rounding
    blank = batch.new_zeros(BATCH - len(batch), *batch.shape[1:])
    return torch.cat([batch, blank]), is_varied.numpy()


def check_patches(patches: object, name: str) -> None:
    """Refuse anything but (K, N, N) uint8."""
    if not isinstance(patches, np.ndarray) or patches.dtype != np.uint8:
        kind = patches.dtype if isinstance(patches, np.ndarray) else type(patches).__name__
        raise ArgumentTypeError(f"{name} takes a numpy array of uint8 patches, got {kind}")
    if patches.ndim != 3 or patches.shape[1] != patches.shape[2] or not patches.shape[1]:
        raise ArgumentError(f"{name} takes patches of shape (K, N, N), got {patches.shape}")
