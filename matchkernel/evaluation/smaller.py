"""Smaller forms of trained weights, shorter rows or int8, and what they lose on patches of points held out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.evaluation.patch_sets import retrieval_map
from matchkernel.model.describe import describe, resize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.calibrate import calibrate
from matchkernel.model.engines.choose import folded_network
from matchkernel.model.reduce import check_dimensions, principal_directions, reduced
from matchkernel.model.weights import state_digest
from matchkernel.photos.adapters.onnx import metadata_of, prepare
from matchkernel.runtime.config import INT8
from matchkernel.runtime.graph import Ranges, descriptor_file
from matchkernel.runtime.onnx import FILE, LARGEST, OnnxEngine
from matchkernel.storage.files import check_output, replacing

CALIBRATION, HELD_OUT = 1024, 4000  # maximum numbers of patches, of all sets together
FEWEST = 64  # patches to calibrate on
MIN_COSINE, MAX_LOSS = 0.995, 1.0  # mean cosine, and loss of mAP in points, beyond which an int8 file is not kept


@dataclass(frozen=True)
class Reduction:
    """Weights with shorter rows."""

    model: Descriptor
    shown: int  # patches that the directions were chosen on
    held_out: int  # other patches, of other points, that the rest was measured on
    kept: float  # mean share of the squared length of a row that lies in the directions kept
    map_before: float  # retrieval mAP of the longer rows among the patches held out, in per cent
    map_after: float  # the same of the shorter ones


def reduce_rows(model: Descriptor, D: int, sets: Sequence[PatchSet]) -> Reduction:
    """Choose the D directions that keep most of the products of rows, on every other point of patch sets.

    The sets are like those that the model was trained on, with at least two patches of some points.
    """
    check_dimensions(model, D)
    shown, held_out, labels = shown_and_held_out(sets, model.config.patch_size)
    directions = principal_directions(describe(shown.numpy(), model), D)
    shorter = reduced(model, directions)
    before, after = (describe(held_out.numpy(), each) for each in (model, shorter))
    kept = float(np.square(before.astype(np.float64) @ directions.T).sum(1).mean())
    scores = [100 * retrieval_map(rows, labels)[0] for rows in (before, after)]
    return Reduction(shorter, len(shown), len(held_out), kept, scores[0], scores[1])


@dataclass(frozen=True)
class Calibration:
    """Ranges for int8, and what is lost with them."""

    ranges: Ranges  # what an int8 graph needs besides the weights
    calibrated: int  # patches the ranges were chosen on
    held_out: int  # other patches, of other points, that the rest was measured on
    cosine: float  # mean of the rows of int8 and of torch
    lowest_cosine: float
    torch_map: float  # retrieval mAP of torch's rows among the patches held out, in per cent
    int8_map: float  # the same of int8's


def calibrate_int8(model: Descriptor, sets: Sequence[PatchSet], patch_size: int | None = None) -> Calibration:
    """Choose ranges for int8 on patch sets, and measure what is lost; too much is refused.

    Every other point of the sets is for calibration, the rest for the comparison with torch. The same sets give the
    same ranges.

    Args:
        model: the descriptor.
        sets: patches like those it was trained on, with at least two patches of some points.
        patch_size: N (default: the size the model was trained at).
    """
    N, reference = prepare(model, patch_size)
    shown, held_out, labels = shown_and_held_out(sets, N)
    names = tuple(part.folder.resolve().name for part in sets)
    ranges = Ranges(state_digest(model), N, calibrate(reference, shown), names)
    content = descriptor_file(folded_network(model, N), {}, ranges.limits)
    engine = OnnxEngine(content, N, INT8, f"the int8 graph of {model.name}")
    rows, ours = describe(held_out, reference), describe(held_out, reference, engine=engine)
    cosines = (rows * ours).sum(1)
    scores = [100 * retrieval_map(found, labels)[0] for found in (rows, ours)]
    found = Calibration(
        ranges, len(shown), len(held_out), float(cosines.mean()), float(cosines.min()), scores[0], scores[1]
    )
    if not (found.cosine >= MIN_COSINE and found.torch_map - found.int8_map <= MAX_LOSS):
        raise WorkError(
            f"int8 is too far from torch and not kept: mean cosine {found.cosine:.4f} (allowed {MIN_COSINE}), "
            f"mAP {found.int8_map:.2f} instead of {found.torch_map:.2f}"
        )
    return found


def export_int8(
    model: Descriptor,
    path: str | Path,
    sets: Sequence[PatchSet],
    patch_size: int | None = None,
    card: Mapping[str, str] | None = None,
) -> Calibration:
    """Write a descriptor to an int8 .onnx file, atomically, unless its rows differ too much from torch's.

    For the arguments see calibrate_int8 and export_onnx.
    """
    path = Path(path)
    check_output(path, suffixes=(FILE,))
    found = calibrate_int8(model, sets, patch_size)
    N = found.ranges.patch_size
    strings = metadata_of(model, N, INT8, card)
    strings["calibrated_on"] = ", ".join(found.ranges.calibrated_on)
    strings[LARGEST] = repr(found.ranges.limits.patches)
    content = descriptor_file(folded_network(model, N), strings, found.ranges.limits)
    with replacing(path) as part:
        part.write_bytes(content)
    return found


def shown_and_held_out(sets: Sequence[PatchSet], N: int) -> tuple[Tensor, Tensor, np.ndarray]:
    """Patches to calibrate on, (B, 1, N, N); patches of every other point, held out, and their points."""
    shown: list[Tensor] = []
    held_out: list[Tensor] = []
    labels: list[np.ndarray] = []
    for part in sets:
        groups = part.groups().members()
        first = np.sort(np.concatenate([*groups[::2], np.empty(0, np.int64)]))
        shown.append(_read(part, _spread(first, CALIBRATION // len(sets)), N)[0])
        pairs = [group[:2] for group in groups[1::2] if len(group) > 1]
        chosen = [pairs[k] for k in _spread(np.arange(len(pairs)), HELD_OUT // 2 // len(sets))]
        patches, kept = _read(part, np.concatenate([*chosen, np.empty(0, np.int64)]), N)
        held_out.append(patches)
        labels.append(part.labels[kept] * len(sets) + len(labels))  # points of different sets stay different
    both = torch.cat(shown), torch.cat(held_out), np.concatenate(labels)
    if len(both[0]) < FEWEST or len(both[1]) < FEWEST:
        raise ArgumentError(
            f"calibration needs at least {FEWEST} patches, and as many of other points that have two patches; "
            f"found {len(both[0])} and {len(both[1])}"
        )
    return both


def _spread(values: np.ndarray, limit: int) -> np.ndarray:
    """At most `limit` of the values, evenly spread."""
    return values[np.unique(np.linspace(0, max(len(values) - 1, 0), min(len(values), limit)).astype(int))]


def _read(part: PatchSet, chosen: np.ndarray, N: int) -> tuple[Tensor, np.ndarray]:
    """Patches of a set at the size N, without constant ones, and which they are."""
    chosen = np.sort(chosen)
    patches = torch.from_numpy(np.array(part.patches[chosen])).float()[:, None]
    resized = patches if patches.shape[-1] == N else resize_patches(patches, N)
    varied = resized.flatten(1).std(1) > 0.1 if len(resized) else torch.zeros(0, dtype=torch.bool)
    return resized[varied], chosen[varied.numpy()]
