"""The loss of a batch of pairs: HardNet+'s hardest-in-batch triplet margin, and extensions from later work."""

from dataclasses import dataclass

import torch
from torch import Tensor

from matchkernel.errors import ArgumentError
from matchkernel.model.precision import unit_rows, widened
from matchkernel.storage.settings import check_ranges, setting

DUPLICATE = 0.008  # a "negative" closer than this is a copy of the patch (an exact copy is at 0.001)
FAR = 10.0  # added to distances that must not be chosen
HUGE = 1e30  # the maximum weight, which fits in float32


@dataclass(frozen=True)
class LossSettings:
    """Settings of the loss. The defaults are HardNet's.

    Attributes:
        form: "triplet_margin", "softmax" or "contrastive", of positive and negative distances.
        margin: of the triplet margin.
        squared: square the hinge (SOSNet); triplet margin only.
        negatives: "hardest" in the batch, or "all" of them.
        swap: also take the anchors nearest to the positive as negatives.
        same_side: also take anchors near the anchor and positives near the positive (SOSNet, HyNet).
        hybrid: alpha of s(d) = d + alpha d^2 / 2 in place of d (HyNet: 2); 0 for plain distances.
        second_order: weight of the second-order similarity (SOSNet: 1); 0 for none.
        neighbours: number of neighbours of a point in the second-order term.
        norm_penalty: weight of the difference of lengths before normalisation (HyNet: 0.1); 0 for none.
        reduction: "mean" over pairs, or "sum" (SOSNet, HyNet).
    """

    form: str = setting("triplet_margin", choices=("triplet_margin", "softmax", "contrastive"))
    margin: float = setting(1.0, low=0, high=HUGE)
    squared: bool = False
    negatives: str = setting("hardest", choices=("hardest", "all"))
    swap: bool = True
    same_side: bool = False
    hybrid: float = setting(0.0, low=0, high=HUGE)
    second_order: float = setting(0.0, low=0, high=HUGE)
    neighbours: int = setting(8, low=1)
    norm_penalty: float = setting(0.0, low=0, high=HUGE)
    reduction: str = setting("mean", choices=("mean", "sum"))

    def __post_init__(self) -> None:
        check_ranges(self, "loss")
        if self.squared and self.form != "triplet_margin":
            raise ArgumentError(f"loss.squared applies to the triplet margin, not to form = {self.form!r}")
        if self.same_side and self.negatives == "all":
            raise ArgumentError("loss.same_side chooses hardest negatives; it does not work with negatives = 'all'")


def pair_loss(anchors: Tensor, positives: Tensor, settings: LossSettings) -> Tensor:
    """The loss of a batch, computed at least in float32 [M25].

    Args:
        anchors: (B, D) descriptors before l2 normalisation.
        positives: (B, D) of the same points, row by row.
        settings: which loss.

    Returns:
        () the loss.
    """
    with torch.autocast(anchors.device.type, enabled=False):
        return _pair_loss(widened(anchors), widened(positives), settings)


def _pair_loss(raw_a: Tensor, raw_p: Tensor, settings: LossSettings) -> Tensor:
    a, p = unit_rows(raw_a), unit_rows(raw_p)
    d = distances(a, p)
    positive, negative = _positive_and_negative(d, a, p, settings)
    if settings.hybrid:
        positive, negative = (x + settings.hybrid / 2 * x.square() for x in (positive, negative))
    terms = _terms(positive, negative, settings)
    loss = terms.mean() if settings.reduction == "mean" else terms.sum()
    share = 1 / len(a) if settings.reduction == "mean" else 1.0
    if settings.second_order:
        loss = loss + settings.second_order * share * second_order_terms(a, p, settings.neighbours).sum()
    if settings.norm_penalty:
        loss = loss + settings.norm_penalty * share * (raw_a.norm(dim=1) - raw_p.norm(dim=1)).square().sum()
    return loss


def distances(a: Tensor, p: Tensor) -> Tensor:
    """sqrt(|a_i|^2 + |p_j|^2 - 2 a_i . p_j + 1e-6) + 1e-8, (B, B)."""
    squares = a.square().sum(1)[:, None] + p.square().sum(1)[None, :] - 2 * (a @ p.t())
    return (squares + 1e-6).clamp_min(1e-12).sqrt() + 1e-8


def second_order_terms(a: Tensor, p: Tensor, neighbours: int) -> Tensor:
    """(B,) how much distances to nearby points differ between the anchors and the positives (SOSNet)."""
    to_a, to_p = distances(a, a), distances(p, p)
    with torch.no_grad():
        near = _nearest(to_a, neighbours) | _nearest(to_p, neighbours)
        near = near | near.t()
    return (torch.where(near, (to_a - to_p).square(), 0).sum(1) + 1e-6).sqrt()


def _nearest(d: Tensor, k: int) -> Tensor:
    """(B, B) whether j is one of the k nearest to i, i itself excluded."""
    index = _without_itself(d).topk(min(k, len(d) - 1), largest=False).indices
    return torch.zeros_like(d, dtype=torch.bool).scatter_(1, index, True)


def _without_itself(d: Tensor) -> Tensor:
    return d + FAR * torch.eye(len(d), dtype=d.dtype, device=d.device)


def _masked(d: Tensor) -> Tensor:
    """Distances among which a negative may be chosen: neither the pair itself nor a duplicated patch."""
    masked = _without_itself(d)
    return masked + FAR * (masked < DUPLICATE)


def _positive_and_negative(d: Tensor, a: Tensor, p: Tensor, settings: LossSettings) -> tuple[Tensor, Tensor]:
    masked = _masked(d)
    if settings.negatives == "all":
        negative = torch.minimum(masked, masked.t()) if settings.swap else masked
        return d.diagonal()[None, :].expand_as(d), negative
    negative = masked.amin(1)
    if settings.swap:
        negative = torch.minimum(negative, masked.amin(0))
    if settings.same_side:
        for side in (a, p):
            negative = torch.minimum(negative, _masked(distances(side, side)).amin(1))
    return d.diagonal(), negative


def _terms(positive: Tensor, negative: Tensor, settings: LossSettings) -> Tensor:
    if settings.form == "softmax":  # -log(e^(2 - pos) / (e^(2 - pos) + e^(2 - neg)))
        return torch.nn.functional.softplus(positive - negative)
    if settings.form == "contrastive":
        return (settings.margin - negative).clamp_min(0) + positive
    hinge = (settings.margin + positive - negative).clamp_min(0)
    return hinge.square() if settings.squared else hinge
