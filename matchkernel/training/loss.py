"""The loss of a batch of pairs: HardNet+'s hardest-in-batch triplet margin, with extensions of SOSNet and HyNet."""

from dataclasses import dataclass

import torch
from torch import Tensor

from matchkernel.model.precision import unit_rows, widened
from matchkernel.storage.settings import check_ranges, setting

DUPLICATE = 0.008  # a "negative" closer than this is a copy of the patch (an exact copy is at 0.001)
FAR = 10.0  # added to distances that must not be chosen
HUGE = 1e30  # the maximum weight, which fits in float32


@dataclass(frozen=True)
class LossSettings:
    """Settings of the loss. The defaults are HardNet's.

    Attributes:
        margin: of the triplet margin.
        swap: also take the anchors nearest to the positive as negatives.
        same_side: also take anchors near the anchor and positives near the positive (SOSNet, HyNet).
        hybrid: alpha of s(d) = d + alpha d^2 / 2 in place of d (HyNet: 2); 0 for plain distances.
    """

    margin: float = setting(1.0, low=0, high=HUGE)
    swap: bool = True
    same_side: bool = False
    hybrid: float = setting(0.0, low=0, high=HUGE)

    def __post_init__(self) -> None:
        check_ranges(self, "loss")


def pair_loss(anchors: Tensor, positives: Tensor, settings: LossSettings) -> Tensor:
    """The loss of a batch, computed at least in float32 [M25].

    Args:
        anchors: (B, D) descriptors before l2 normalisation.
        positives: (B, D) of the same points, row by row.
        settings: which loss.

    Returns:
        () the mean over the pairs.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        a, p = unit_rows(widened(anchors)), unit_rows(widened(positives))
        d = distances(a, p)
        positive, negative = d.diagonal(), _hardest_negative(d, a, p, settings)
        if settings.hybrid:
            positive, negative = (x + settings.hybrid / 2 * x.square() for x in (positive, negative))
        return (settings.margin + positive - negative).clamp_min(0).mean()


def distances(a: Tensor, p: Tensor) -> Tensor:
    """sqrt(|a_i|^2 + |p_j|^2 - 2 a_i . p_j + 1e-6) + 1e-8, (B, B)."""
    squares = a.square().sum(1)[:, None] + p.square().sum(1)[None, :] - 2 * (a @ p.t())
    return (squares + 1e-6).clamp_min(1e-12).sqrt() + 1e-8


def _masked(d: Tensor) -> Tensor:
    """Distances among which a negative may be chosen: neither the pair itself nor a duplicated patch."""
    masked = d + FAR * torch.eye(len(d), dtype=d.dtype, device=d.device)
    return masked + FAR * (masked < DUPLICATE)


def _hardest_negative(d: Tensor, a: Tensor, p: Tensor, settings: LossSettings) -> Tensor:
    """(B,) the distance of each pair to its nearest negative."""
    masked = _masked(d)
    negative = masked.amin(1)
    if settings.swap:
        negative = torch.minimum(negative, masked.amin(0))
    if settings.same_side:
        for side in (a, p):
            negative = torch.minimum(negative, _masked(distances(side, side)).amin(1))
    return negative
