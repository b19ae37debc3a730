"""Choose the ranges of an int8 graph on patches."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from matchkernel.model.backbone import normalize_patches
from matchkernel.model.descriptors import Descriptor
from matchkernel.model.engines.choose import convolutions_of
from matchkernel.runtime.graph import INPUT_ZERO, Limits

BINS = 4096  # of the histograms that limits are chosen from
CANDIDATES = np.linspace(0.2, 1, 81)  # shares of the largest value
BATCH = 64
# Keypoints of photos have patches with higher peaks than most patches of a training set: room for them, beyond the
# limits that lose the least in calibration, raises the lowest cosine with float32 and leaves the mean as it is.
ROOM, ROOM_OF_PATCHES = 1.25, 1.5


@torch.no_grad()
def calibrate(model: Descriptor, patches: Tensor) -> Limits:
    """Choose the limits that lose the least, by mean square, on these patches, with room beyond them.

    Args:
        model: a folded copy, float32 on the CPU.
        patches: (B, 1, N, N) floats of any range, none of them constant.
    """
    tops = [np.zeros(len(convolutions_of(network)) + 1) for network in model.backbones]
    for k, number, values in _activations(model, patches):
        tops[k][number] = max(tops[k][number], float(values.abs().max()))
    counts = [np.zeros((len(top), BINS)) for top in tops]
    for k, number, values in _activations(model, patches):
        top = max(tops[k][number], 1e-6)
        counts[k][number] += torch.histc(values.abs(), BINS, 0, top).double().numpy()
    steps = [[INPUT_ZERO - 1] + [255] * (len(top) - 1) for top in tops]
    found = [
        tuple(_best_limit(*arguments) for arguments in zip(tops[k], counts[k], steps[k], strict=True))
        for k in range(len(tops))
    ]
    layers = tuple(tuple(ROOM * limit for limit in limits[1:]) for limits in found)
    return Limits(ROOM_OF_PATCHES * found[0][0], layers)


def _activations(model: Descriptor, patches: Tensor) -> Iterable[tuple[int, int, Tensor]]:
    """Number of the network, number of the layer (0 is the normalised patch), and values, batch by batch."""
    for batch in patches.split(BATCH):
        for k, network in enumerate(model.backbones):
            values = normalize_patches(batch)
            yield k, 0, values
            for number, layer in enumerate(convolutions_of(network), 1):
                values = layer(values).relu()
                yield k, number, values


def _best_limit(top: float, counts: np.ndarray, steps: int) -> float:
    """The limit whose `steps` equal steps leave the smallest mean square error of a histogram from 0 to top."""
    top = max(top, 1e-6)
    values = (np.arange(BINS) + 0.5) * top / BINS
    limits = top * CANDIDATES
    scale = limits[:, None] / steps
    rounded = np.minimum(np.round(values / scale), steps) * scale
    errors = np.where(counts > 0, (rounded - values) ** 2, 0) @ counts
    return float(limits[int(errors.argmin())])
