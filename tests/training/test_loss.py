import itertools
import json
import math

import numpy as np
import pytest
import torch

from matchkernel.training.loss import LossSettings, distances, pair_loss, second_order_terms

GOLDEN_SETS = ["plain", "exact_duplicate", "near_duplicate"]
OPTIONS = {
    "hardnet": LossSettings(),
    "one way": LossSettings(swap=False),
    "all": LossSettings(negatives="all"),
    "softmax": LossSettings(form="softmax"),
    "contrastive": LossSettings(form="contrastive"),
    "same side": LossSettings(same_side=True),
    "sosnet": LossSettings(squared=True, same_side=True, second_order=1.0, reduction="sum"),
    "hynet": LossSettings(margin=1.2, same_side=True, hybrid=2.0, norm_penalty=0.1, reduction="sum"),
}


def rows(seed, pairs=12, width=8, noise=0.6):
    """Anchors and positives (pairs, width) float64, of various lengths; some are hard."""
    random = np.random.default_rng(seed)
    anchors = random.standard_normal((pairs, width))
    positives = anchors + noise * random.standard_normal((pairs, width))
    return torch.from_numpy(anchors), torch.from_numpy(positives)


def unit(x):
    return x / x.norm(dim=1, keepdim=True)


def distance(x, y, after=1e-8):
    """protocols.md section 1.6 for two vectors."""
    return math.sqrt(x @ x + y @ y - 2 * (x @ y) + 1e-6) + after


def hidden(d, i, j):
    """e_ij of section 1.6: neither the pair itself nor a duplicate may be the hardest."""
    e = d + (10 if i == j else 0)
    return e + 10 if e < 0.008 else e


def hardest(a, p, i, swap, same_side, after=1e-8):
    """The positive distance and the least of all negative ones of pair i."""
    candidates = []
    for j in range(len(a)):
        candidates.append(hidden(distance(a[i], p[j], after), i, j))
        if swap:
            candidates.append(hidden(distance(a[j], p[i], after), i, j))
        if same_side:
            candidates.append(hidden(distance(a[i], a[j], after), i, j))
            candidates.append(hidden(distance(p[i], p[j], after), i, j))
    return distance(a[i], p[i], after), min(candidates)


@pytest.fixture(scope="module", params=GOLDEN_SETS)
def golden_set(request, golden):
    return json.loads((golden / "hardnet_loss.json").read_text())["sets"][request.param]


def test_the_golden_descriptors_are_unit_rows(golden_set):
    """So that normalising them changes nothing, and the losses below can be those of the file."""
    for side in ("anchor", "positive"):
        values = torch.tensor(golden_set[side], dtype=torch.float64)
        assert values.shape == (12, 8)
        assert (values.norm(dim=1) - 1).abs().max() < 1e-15


def test_the_golden_losses(golden_set):
    a, p = (torch.tensor(golden_set[side], dtype=torch.float64) for side in ("anchor", "positive"))
    assert len(golden_set["loss"]) == 12
    for key, expected in golden_set["loss"].items():
        negatives, swap, form = key.split("/")
        chosen = {"min": "hardest", "average": "all"}[negatives]
        settings = LossSettings(form=form, negatives=chosen, swap=swap == "swap")
        tolerance = 1e-8 if form == "softmax" else 1e-12  # the script has 1e-8 inside its logarithm
        assert pair_loss(a, p, settings).item() == pytest.approx(expected, abs=tolerance, rel=0), key


def test_the_golden_distances(golden_set):
    """The file's are those before the 1e-8."""
    a, p = (torch.tensor(golden_set[side], dtype=torch.float64) for side in ("anchor", "positive"))
    recorded = torch.tensor(golden_set["distance_matrix"], dtype=torch.float64)
    assert (distances(a, p) - recorded - 1e-8).abs().max() < 1e-13


def test_the_golden_gradients(golden_set):
    """The file's are of the loss of unit rows; ours normalises first, which takes away what is along the row."""
    a, p = (torch.tensor(golden_set[side], dtype=torch.float64, requires_grad=True) for side in ("anchor", "positive"))
    gradients = torch.autograd.grad(pair_loss(a, p, LossSettings()), [a, p])
    for side, x, gradient in zip(("anchor", "positive"), (a, p), gradients, strict=True):
        recorded = torch.tensor(golden_set[f"grad_{side}_min_swap"], dtype=torch.float64)
        across = recorded - (recorded * x).sum(1, keepdim=True) * x
        assert across.abs().max() > 0.01
        assert (gradient - across).abs().max() < 1e-14


@pytest.mark.parametrize(("swap", "same_side"), list(itertools.product([False, True], repeat=2)))
def test_the_hardest_by_brute_force(swap, same_side):
    chosen = set()
    for seed in range(8):
        a, p = (unit(x) for x in rows(seed))
        a[3] = p[5]  # an exact duplicate, and one that is near
        p[7] = unit((a[8] + 0.002 * a[0])[None])[0]
        terms = []
        for i in range(len(a)):
            positive, negative = hardest(a.numpy(), p.numpy(), i, swap, same_side)
            terms.append(max(0.0, 1 + positive - negative))
            chosen.add(negative > 5)
        settings = LossSettings(swap=swap, same_side=same_side)
        assert pair_loss(a, p, settings).item() == pytest.approx(np.mean(terms), abs=1e-12)
        in_all = pair_loss(a, p, LossSettings(swap=swap, same_side=same_side, reduction="sum")).item()
        assert in_all == pytest.approx(np.sum(terms), abs=1e-11)
    assert chosen == {False}  # a duplicate is never the hardest


def test_the_hardest_differ_between_the_options():
    """Else the test above could not tell them apart."""
    a, p = rows(1)
    losses = [
        pair_loss(a, p, LossSettings(swap=swap, same_side=same_side)).item()
        for swap, same_side in itertools.product([False, True], repeat=2)
    ]
    assert len({round(loss, 6) for loss in losses}) == 4


@pytest.mark.parametrize("swap", [False, True])
@pytest.mark.parametrize("form", ["triplet_margin", "softmax", "contrastive"])
def test_all_negatives_by_brute_force(form, swap):
    """`average` of the script: every e_ij against the positive distance of its column, all in one mean."""
    a, p = (unit(x).numpy() for x in rows(3, pairs=7))
    terms = []
    for i, j in itertools.product(range(7), repeat=2):
        negative = hidden(distance(a[i], p[j]), i, j)
        if swap:
            negative = min(negative, hidden(distance(a[j], p[i]), i, j))
        positive = distance(a[j], p[j])
        terms.append(
            {
                "triplet_margin": max(0.0, 1 + positive - negative),
                "softmax": -math.log(math.exp(2 - positive) / (math.exp(2 - positive) + math.exp(2 - negative))),
                "contrastive": max(0.0, 1 - negative) + positive,
            }[form]
        )
    ours = pair_loss(torch.tensor(a), torch.tensor(p), LossSettings(form=form, negatives="all", swap=swap)).item()
    assert ours == pytest.approx(np.mean(terms), abs=1e-12)


def nearest(d, i, k):
    """The k nearest of i in a row of distances, itself left out."""
    others = [j for j in range(len(d)) if j != i]
    return set(sorted(others, key=lambda j: d[i][j])[:k])


def second_order(a, p, k):
    """protocols.md section 6.1, word by word."""
    n = len(a)
    to_a = [[distance(a[i], a[j], 0) for j in range(n)] for i in range(n)]
    to_p = [[distance(p[i], p[j], 0) for j in range(n)] for i in range(n)]
    near = [nearest(to_a, i, k) | nearest(to_p, i, k) for i in range(n)]
    terms = []
    for i in range(n):
        both_ways = {j for j in range(n) if j in near[i] or i in near[j]}
        terms.append(math.sqrt(sum((to_a[i][j] - to_p[i][j]) ** 2 for j in both_ways) + 1e-6))
    return terms


@pytest.mark.parametrize(("pairs", "k"), [(12, 8), (20, 3), (9, 1), (5, 8), (2, 8)])
def test_second_order_by_brute_force(pairs, k):
    for seed in range(3):
        a, p = (unit(x) for x in rows(seed, pairs))
        ours = second_order_terms(a, p, k)
        assert ours.shape == (pairs,)
        assert ours.tolist() == pytest.approx(second_order(a.numpy(), p.numpy(), k), abs=1e-12)


def test_sosnets_loss_by_brute_force():
    """Squared hinges and second-order terms, summed; its distances lack the 1e-8, hence the tolerance."""
    for seed in range(3):
        a, p = (unit(x).numpy() for x in rows(seed))
        expected = sum(second_order(a, p, 8))
        for i in range(len(a)):
            positive, negative = hardest(a, p, i, swap=True, same_side=True, after=0)
            expected += max(0.0, 1 + positive - negative) ** 2
        ours = pair_loss(torch.tensor(a), torch.tensor(p), OPTIONS["sosnet"]).item()
        assert ours == pytest.approx(expected, abs=1e-8)
        assert ours > 1


def test_hynets_loss_by_brute_force():
    """Hybrid similarity with margin 1.2, and the penalty on lengths before normalisation, summed."""
    for seed in range(3):
        raw_a, raw_p = (x.numpy() for x in rows(seed))
        a, p = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (raw_a, raw_p))
        expected = 0.0
        for i in range(len(a)):
            positive, negative = hardest(a, p, i, swap=True, same_side=True, after=0)
            expected += max(0.0, 1.2 + (positive + positive**2) - (negative + negative**2))
            expected += 0.1 * (np.linalg.norm(raw_a[i]) - np.linalg.norm(raw_p[i])) ** 2
        ours = pair_loss(torch.tensor(raw_a), torch.tensor(raw_p), OPTIONS["hynet"]).item()
        assert ours == pytest.approx(expected, abs=1e-6)


def test_means_are_sums_over_the_number_of_pairs():
    """For every part: a change of the batch size does not change what the parts weigh."""
    a, p = rows(0)
    parts = {"same_side": True, "hybrid": 1.0, "second_order": 0.7, "norm_penalty": 0.3}
    mean, total = (pair_loss(a, p, LossSettings(**parts, reduction=how)).item() for how in ("mean", "sum"))
    assert mean * 12 == pytest.approx(total, rel=1e-14)


def test_the_parts_add_up():
    a, p = rows(0)
    plain = pair_loss(a, p, LossSettings(reduction="sum")).item()
    with_order = pair_loss(a, p, LossSettings(reduction="sum", second_order=0.5, neighbours=3)).item()
    assert with_order - plain == pytest.approx(0.5 * second_order_terms(unit(a), unit(p), 3).sum().item(), rel=1e-12)
    with_norms = pair_loss(a, p, LossSettings(reduction="sum", norm_penalty=2.0)).item()
    assert with_norms - plain == pytest.approx(2 * ((a.norm(dim=1) - p.norm(dim=1)) ** 2).sum().item(), rel=1e-12)


def test_a_batch_by_hand():
    """Two right-angled points: positives at 0.001 (the 1e-6), negatives at sqrt(2 + 1e-6)."""
    x = torch.eye(2, dtype=torch.float64)
    assert pair_loss(x, x, LossSettings()).item() == 0  # apart by more than the margin
    expected = 2 + 0.001 - math.sqrt(2 + 1e-6)
    assert pair_loss(x, x, LossSettings(margin=2.0)).item() == pytest.approx(expected, abs=1e-12)
    swapped = 1 + math.sqrt(2 + 1e-6) - 10.001  # every negative is a duplicate, hidden; so is the pair itself
    assert swapped < 0
    assert pair_loss(x, x.flip(0), LossSettings()).item() == 0
    assert pair_loss(x, x.flip(0), LossSettings(form="contrastive")).item() == pytest.approx(math.sqrt(2 + 1e-6) + 1e-8)


def test_a_single_pair_has_no_negative():
    a, p = rows(0, pairs=1)
    assert pair_loss(a, p, LossSettings()).item() == 0
    assert pair_loss(a, p, LossSettings(form="contrastive")).item() == pytest.approx(
        distance(unit(a)[0].numpy(), unit(p)[0].numpy())
    )


def test_duplicates_are_hidden_below_0_008_and_not_above():
    """Positive 1 at a chosen distance of anchor 0, everything else right-angled."""
    for apart, is_hidden in ((0.0, True), (0.00799, True), (0.00801, False)):
        a = torch.eye(4, dtype=torch.float64)
        p = a.clone()
        angle = math.acos(1 - (apart**2 - 1e-6) / 2) if apart else 0.0
        p[1] = torch.tensor([math.cos(angle), 0, 0, math.sin(angle)], dtype=torch.float64)
        d = distances(a, p)
        assert float(d[0, 1]) == pytest.approx(apart or 0.001, abs=2e-8)
        loss = pair_loss(a, p, LossSettings(margin=1.0, reduction="sum", swap=False)).item()
        far = float(d[0, 2])
        assert loss == pytest.approx(
            max(0, 1.001 + 1e-8 - (far if is_hidden else float(d[0, 1]))) + max(0, 1 + float(d[1, 1]) - far), abs=1e-9
        )


@pytest.mark.parametrize("name", OPTIONS)
def test_the_order_of_pairs_and_the_axes_do_not_matter(name):
    a, p = rows(5)
    loss = pair_loss(a, p, OPTIONS[name]).item()
    assert loss > 0.01
    order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
    assert pair_loss(a[order], p[order], OPTIONS[name]).item() == pytest.approx(loss, rel=1e-12)
    turn, _ = torch.linalg.qr(torch.from_numpy(np.random.default_rng(1).standard_normal((8, 8))))
    assert pair_loss(a @ turn, p @ turn, OPTIONS[name]).item() == pytest.approx(loss, rel=1e-9)
    if name not in ("one way", "all"):  # which treat the two sides differently
        assert pair_loss(p, a, OPTIONS[name]).item() == pytest.approx(loss, rel=1e-12)
    if name != "hynet":
        assert pair_loss(3 * a, 0.01 * p, OPTIONS[name]).item() == pytest.approx(loss, rel=1e-12)


@pytest.mark.parametrize("name", OPTIONS)
def test_gradients_are_those_of_the_loss(name):
    """Against finite differences, in float64."""
    a, p = (x.requires_grad_() for x in rows(2, pairs=5, width=4))
    assert torch.autograd.gradcheck(lambda x, y: pair_loss(x, y, OPTIONS[name]), (a, p))
    assert torch.autograd.grad(pair_loss(a, p, OPTIONS[name]), a)[0].abs().max() > 1e-3


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", OPTIONS)
def test_half_precision_is_computed_in_float32(name, dtype):
    """The loss is that of the rounded numbers as float32 has it; rounding itself (2^-9) costs 2 percent at most."""
    a, p = rows(0, pairs=64, width=128)
    small_a, small_p = (x.to(dtype).requires_grad_() for x in (a, p))
    loss = pair_loss(small_a, small_p, OPTIONS[name])
    assert loss.dtype == torch.float32
    of_the_rounded = pair_loss(small_a.detach().double(), small_p.detach().double(), OPTIONS[name]).item()
    assert loss.item() == pytest.approx(of_the_rounded, rel=2e-5)
    assert loss.item() == pytest.approx(pair_loss(a, p, OPTIONS[name]).item(), rel=0.02)
    for gradient in torch.autograd.grad(loss, [small_a, small_p]):
        assert gradient.dtype == dtype
        assert gradient.isfinite().all()
        assert gradient.abs().max() > 0


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIONS)
def test_degenerate_rows_give_finite_losses_and_gradients(name, dtype):
    """All rows equal, pairs equal, rows of zeros, and numbers at the ends of the range."""
    a, p = (x.to(dtype) for x in rows(0))
    one = a[:1].expand(12, 8)
    with_zeros = a.clone()
    with_zeros[2] = with_zeros[9] = 0
    zeros = torch.zeros_like(a)
    cases = [(one, one), (a, a), (with_zeros, p), (with_zeros, with_zeros), (zeros, zeros), (zeros, p), (-a, a)]
    cases += [(1e-6 * a, p), (1e6 * a, 1e6 * p), (one, p)]
    for x, y in cases:
        x, y = (side.clone().requires_grad_() for side in (x, y))
        loss = pair_loss(x, y, OPTIONS[name])
        assert loss.isfinite()
        assert loss.item() >= 0
        assert all(gradient.isfinite().all() for gradient in torch.autograd.grad(loss, [x, y]))


def test_equal_descriptors_are_all_duplicates():
    """Nothing to choose: hidden negatives beyond the margin, so no loss and no gradient."""
    x = unit(torch.ones(6, 4, dtype=torch.float64)).requires_grad_()
    loss = pair_loss(x, x, LossSettings())
    assert loss.item() == 0
    assert not torch.autograd.grad(loss, x)[0].any()
    softmax = pair_loss(x, x, LossSettings(form="softmax")).item()
    assert softmax == pytest.approx(math.log(1 + math.exp(-10)), abs=1e-12)


def test_rows_of_zeros_by_brute_force():
    """They stay zero: at 1 from every unit row, and duplicates of each other."""
    a, p = (unit(x) for x in rows(4))
    a[2] = a[9] = p[9] = 0
    terms = []
    for i in range(12):
        positive, negative = hardest(a.numpy(), p.numpy(), i, swap=True, same_side=True)
        terms.append(max(0.0, 1 + positive - negative))
    assert pair_loss(a, p, LossSettings(same_side=True)).item() == pytest.approx(np.mean(terms), abs=1e-12)
    assert float(distances(a, p)[2, 0]) == pytest.approx(math.sqrt(1 + 1e-6), abs=1e-7)
