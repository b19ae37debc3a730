"""The loss: golden values, brute force, finite differences, and rows that are degenerate."""

import json
import math

import numpy as np
import pytest
import torch

from matchkernel.training.loss import LossSettings, distances, pair_loss

OPTIONS = {
    "hardnet": LossSettings(),
    "one way": LossSettings(swap=False),
    "same side": LossSettings(same_side=True),
    "ours": LossSettings(margin=1.2, same_side=True, hybrid=2.0),
}


def rows(seed, pairs=12, width=8, noise=0.6):
    """Anchors and positives (pairs, width) float64, of various lengths; some are hard."""
    random = np.random.default_rng(seed)
    anchors = random.standard_normal((pairs, width))
    positives = anchors + noise * random.standard_normal((pairs, width))
    return torch.from_numpy(anchors), torch.from_numpy(positives)


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


def distance(x, y):
    """protocols.md section 1.6 for two vectors."""
    return math.sqrt(x @ x + y @ y - 2 * (x @ y) + 1e-6) + 1e-8


def hidden(d, i, j):
    """e_ij of section 1.6: neither the pair itself nor a duplicate may be the hardest."""
    e = d + (10 if i == j else 0)
    return e + 10 if e < 0.008 else e


def by_brute_force(a, p, settings):
    """The loss of unit rows, pair by pair, and the distances of the chosen negatives."""
    a, p = a.numpy(), p.numpy()
    terms, chosen = [], []
    for i in range(len(a)):
        candidates = []
        for j in range(len(a)):
            candidates.append(hidden(distance(a[i], p[j]), i, j))
            if settings.swap:
                candidates.append(hidden(distance(a[j], p[i]), i, j))
            if settings.same_side:
                candidates.append(hidden(distance(a[i], a[j]), i, j))
                candidates.append(hidden(distance(p[i], p[j]), i, j))
        positive, negative = (d + settings.hybrid / 2 * d**2 for d in (distance(a[i], p[i]), min(candidates)))
        terms.append(max(0.0, settings.margin + positive - negative))
        chosen.append(min(candidates))
    return np.mean(terms), chosen


@pytest.fixture(scope="module", params=["plain", "exact_duplicate", "near_duplicate"])
def golden_set(request, golden):
    found = json.loads((golden / "hardnet_loss.json").read_text())["sets"][request.param]
    for side in ("anchor", "positive"):
        found[side] = torch.tensor(found[side], dtype=torch.float64)
        assert (found[side].norm(dim=1) - 1).abs().max() < 1e-15  # unit rows: normalising them changes nothing
    return found


def test_losses_and_distances_are_the_golden_ones(golden_set):
    a, p = golden_set["anchor"], golden_set["positive"]
    for swap in ("swap", "noswap"):
        expected = golden_set["loss"][f"min/{swap}/triplet_margin"]
        assert pair_loss(a, p, LossSettings(swap=swap == "swap")).item() == pytest.approx(expected, abs=1e-12, rel=0)
    recorded = torch.tensor(golden_set["distance_matrix"], dtype=torch.float64)
    assert (distances(a, p) - recorded - 1e-8).abs().max() < 1e-13  # the file's are those before the 1e-8


def test_gradients_are_the_golden_ones(golden_set):
    """The file's are of the loss of unit rows; ours normalises first, which removes the part along the row."""
    a, p = (golden_set[side].clone().requires_grad_() for side in ("anchor", "positive"))
    gradients = torch.autograd.grad(pair_loss(a, p, LossSettings()), [a, p])
    for side, x, gradient in zip(("anchor", "positive"), (a, p), gradients, strict=True):
        recorded = torch.tensor(golden_set[f"grad_{side}_min_swap"], dtype=torch.float64)
        across = recorded - (recorded * x).sum(1, keepdim=True) * x
        assert across.abs().max() > 0.01
        assert (gradient - across).abs().max() < 1e-14


def test_the_loss_is_that_of_brute_force():
    """Also with an exact duplicate, a near one, and rows of zeros, which stay zero."""
    for seed in range(8):
        a, p = (unit(x) for x in rows(seed))
        a[3] = p[5]
        p[7] = unit((a[8] + 0.002 * a[0])[None])[0]
        if seed > 5:
            a[2] = a[9] = p[9] = 0
        losses = set()
        for settings in OPTIONS.values():
            expected, chosen = by_brute_force(a, p, settings)
            losses.add(round(expected, 9))
            assert pair_loss(a, p, settings).item() == pytest.approx(expected, abs=1e-12)
            assert pair_loss(3 * a, 0.01 * p, settings).item() == pytest.approx(expected, abs=1e-12)  # lengths
            assert max(chosen) < 5  # a duplicate is never the hardest
        assert len(losses) == len(OPTIONS)  # the options differ


def test_duplicates_are_hidden_below_0_008_and_not_above():
    """Positive 1 at a chosen distance of anchor 0, everything else right-angled."""
    for apart, is_hidden in ((0.0, True), (0.00799, True), (0.00801, False)):
        a = torch.eye(4, dtype=torch.float64)
        p = a.clone()
        angle = math.acos(1 - (apart**2 - 1e-6) / 2) if apart else 0.0
        p[1] = torch.tensor([math.cos(angle), 0, 0, math.sin(angle)], dtype=torch.float64)
        d = distances(a, p)
        assert float(d[0, 1]) == pytest.approx(apart or 0.001, abs=2e-8)
        far = float(d[0, 2])
        first = max(0, 1.001 + 1e-8 - (far if is_hidden else float(d[0, 1])))
        second = max(0, 1 + float(d[1, 1]) - far)
        assert pair_loss(a, p, LossSettings(swap=False)).item() == pytest.approx((first + second) / 4, abs=1e-9)


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_are_finite_differences(name):
    a, p = (x.requires_grad_() for x in rows(2, pairs=5, width=4))
    assert torch.autograd.gradcheck(lambda x, y: pair_loss(x, y, OPTIONS[name]), (a, p))
    assert torch.autograd.grad(pair_loss(a, p, OPTIONS[name]), a)[0].abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    """The loss is that of the rounded numbers in float32; rounding itself (2^-9) costs 2 percent at most."""
    settings = OPTIONS["same side"]
    a, p = rows(0, pairs=64, width=128)
    small_a, small_p = (x.to(dtype).requires_grad_() for x in (a, p))
    loss = pair_loss(small_a, small_p, settings)
    assert loss.dtype == torch.float32
    of_the_rounded = pair_loss(small_a.detach().double(), small_p.detach().double(), settings).item()
    assert loss.item() == pytest.approx(of_the_rounded, rel=2e-5)
    assert loss.item() == pytest.approx(pair_loss(a, p, settings).item(), rel=0.02)
    for gradient in torch.autograd.grad(loss, [small_a, small_p]):
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIONS)
def test_degenerate_rows_give_finite_losses_and_gradients(name, dtype):
    """All rows equal, pairs equal, a single pair, rows of zeros, and numbers at the ends of the range."""
    a, p = (x.to(dtype) for x in rows(0))
    one = a[:1].expand(12, 8)
    with_zeros = a.clone()
    with_zeros[2] = with_zeros[9] = 0
    zeros = torch.zeros_like(a)
    cases = [(one, one), (a, a), (with_zeros, p), (with_zeros, with_zeros), (zeros, zeros), (zeros, p), (-a, a)]
    cases += [(1e-6 * a, p), (1e6 * a, 1e6 * p), (one, p), (a[:1], p[:1])]
    for x, y in cases:
        x, y = (side.clone().requires_grad_() for side in (x, y))
        loss = pair_loss(x, y, OPTIONS[name])
        assert loss.isfinite()
        assert loss.item() >= 0
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, [x, y]))
