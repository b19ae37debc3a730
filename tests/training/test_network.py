import copy

import pytest
import torch
from torch import nn

from matchkernel.model.descriptors import build
from matchkernel.runtime.config import VARIANTS
from matchkernel.training import network
from matchkernel.training.network import GroupedBatchNorm1d, GroupedBatchNorm2d, group_statistics

SHAPES = {"2d": (12, 5, 4, 3), "1d": (12, 5), "2d channels last": (12, 5, 4, 3)}


def values(kind, seed=0, dtype=torch.float32):
    """Parts of the batch that differ a lot, so that statistics of one are not those of another."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPES[kind], generator=generator, dtype=torch.float64)
    x[6:] = 2 * x[6:] + 1
    x = x.to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if kind.endswith("last") else x


def plain(kind, momentum=0.1):
    """An ordinary BatchNorm with a history."""
    norm = (nn.BatchNorm1d if kind == "1d" else nn.BatchNorm2d)(5, affine=False, momentum=momentum)
    norm.running_mean.copy_(torch.arange(5.0))
    norm.running_var.copy_(torch.arange(5.0) + 0.5)
    return norm


def grouped(kind, groups, momentum=0.1):
    model = nn.Sequential(plain(kind, momentum))
    group_statistics(model, groups)
    assert type(model[0]) is (GroupedBatchNorm1d if kind == "1d" else GroupedBatchNorm2d)
    return model[0]


def passes(norm, parts, weights):
    """Outputs of separate forward passes one after the other, and gradients of a weighted sum."""
    parts = [part.clone().requires_grad_() for part in parts]
    outputs = [norm(part) for part in parts]
    total = sum((y * w).sum() for y, w in zip(outputs, weights, strict=True))
    return torch.cat([y.detach() for y in outputs]), torch.cat(torch.autograd.grad(total, parts))


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_groups_are_separate_forward_passes_bit_for_bit(groups, kind):
    x, weight = values(kind), values(kind, 1)
    ours, theirs = grouped(kind, groups), plain(kind)
    for _ in range(3):
        mine = passes(ours, [x], [weight])
        separate = passes(theirs, x.chunk(groups), weight.chunk(groups))
        assert torch.equal(mine[0], separate[0])
        assert torch.equal(mine[1], separate[1])
        assert torch.equal(ours.running_mean, theirs.running_mean)
        assert torch.equal(ours.running_var, theirs.running_var)


@pytest.mark.parametrize("kind", ["1d", "2d"])
def test_groups_are_not_one_joint_pass(kind):
    x, weight = values(kind), values(kind, 1)
    separate, joint = passes(grouped(kind, 2), [x], [weight]), passes(grouped(kind, 1), [x], [weight])
    assert (separate[0] - joint[0]).abs().max() > 0.1
    for part in separate[0].chunk(2):  # mean 0 and variance 1 of each part
        dims = [k for k in range(part.ndim) if k != 1]
        assert part.mean(dims).abs().max() < 1e-6
        assert (part.var(dims, correction=0) - 1).abs().max() < 1e-4


def test_running_statistics_move_towards_each_part_in_turn():
    """By hand: momentum 0.25, variances with the n - 1 denominator."""
    x = torch.tensor([[1.0], [3.0], [10.0], [16.0]])
    model = nn.Sequential(nn.BatchNorm1d(1, affine=False, momentum=0.25))
    group_statistics(model, 2)
    model(x)
    assert model[0].running_mean.item() == pytest.approx((0 * 0.75 + 2 * 0.25) * 0.75 + 13 * 0.25)
    assert model[0].running_var.item() == pytest.approx((1 * 0.75 + 2 * 0.25) * 0.75 + 18 * 0.25)


def by_formula(norm, x, weight):
    x = x.clone().requires_grad_()
    y = norm._by_formula(x)
    return y.detach(), torch.autograd.grad((y * weight).sum(), x)[0]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_formula_is_the_native_one(groups, kind):
    """What a compiler sees: numbers of order 1 in float32, to 1e-6."""
    x, weight = values(kind), values(kind, 1)
    native, written = grouped(kind, groups), grouped(kind, groups)
    for _ in range(2):
        mine, theirs = by_formula(written, x, weight), passes(native, [x], [weight])
        assert (mine[0] - theirs[0]).abs().max() < 1e-6
        assert (mine[1] - theirs[1]).abs().max() < 1e-6 * theirs[1].abs().max()
        assert torch.allclose(written.running_mean, native.running_mean, rtol=1e-6, atol=1e-6)
        assert torch.allclose(written.running_var, native.running_var, rtol=1e-6, atol=1e-6)


def test_the_formula_keeps_half_precision_out_of_the_statistics():
    """bfloat16 in, bfloat16 out; the statistics are those of float32."""
    x = values("2d", dtype=torch.bfloat16)
    norm, wide = grouped("2d", 2), grouped("2d", 2)
    y = norm._by_formula(x)
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, wide._by_formula(x.float()).to(torch.bfloat16))
    assert torch.equal(norm.running_var, wide.running_var)
    assert norm.running_mean.dtype == torch.float32


def test_the_formula_does_not_lose_the_variance_of_numbers_far_from_0():
    x = 1000 + torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    model = nn.Sequential(nn.BatchNorm2d(3, affine=False))
    group_statistics(model, 2)
    y = model[0]._by_formula(x).double()
    exact = torch.cat([(part - part.mean((0, 2, 3), keepdim=True)) / part.std((0, 2, 3), keepdim=True, correction=0)
                       for part in x.double().chunk(2)])  # fmt: skip
    assert (y - exact).abs().max() < 5e-4  # float32 at 1000 has steps of 6e-5


@pytest.mark.parametrize("kind", SHAPES)
def test_in_eval_mode_it_is_batch_norm(kind):
    x = values(kind)
    ours, theirs = grouped(kind, 2).eval(), plain(kind).eval()
    before = ours.running_mean.clone()
    assert torch.equal(ours(x), theirs(x))
    assert torch.equal(ours(x[:5]), theirs(x[:5]))  # an odd batch too
    assert torch.equal(ours.running_mean, before)


def test_a_network_in_one_pass_is_two_passes():
    """Convolution, norms, ReLU and a matrix in float64: outputs, gradients of the weights and statistics."""
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1, bias=False),
        nn.BatchNorm2d(4, affine=False),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64, 5),
        nn.BatchNorm1d(5, affine=False),
    ).double()
    twice, once = copy.deepcopy(net), net
    group_statistics(once, 2)
    x = torch.randn(10, 1, 4, 4, dtype=torch.float64)
    x[5:] *= 4
    weight = torch.randn(10, 5, dtype=torch.float64)
    expected = torch.cat([twice(x[:5]), twice(x[5:])])
    found = once(x)
    assert (found - expected).abs().max() < 1e-12
    theirs = torch.autograd.grad((expected * weight).sum(), list(twice.parameters()))
    ours = torch.autograd.grad((found * weight).sum(), list(once.parameters()))
    assert all((a - b).abs().max() < 1e-11 for a, b in zip(ours, theirs, strict=True))
    assert max(gradient.abs().max() for gradient in theirs) > 0.1
    for name in ("1.running_mean", "1.running_var", "5.running_mean", "5.running_var"):
        assert (once.state_dict()[name] - twice.state_dict()[name]).abs().max() < 1e-12


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_tensors_of_a_model_and_their_names_stay(variant):
    model = build(variant, d=8, patch_size=16).eval()
    before = model.state_dict()
    norms = [module for module in model.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    group_statistics(model, 2)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(after[name].data_ptr() == before[name].data_ptr() for name in before)
    changed = [m for m in model.modules() if isinstance(m, (GroupedBatchNorm1d, GroupedBatchNorm2d))]
    assert len(changed) == len(norms) >= 6
    assert all(m.groups == 2 and not m.training and not m.is_synchronized for m in changed)
    build(variant, d=8, patch_size=16).load_state_dict(after)
    group_statistics(model, 1)
    assert all(m.groups == 1 for m in model.modules() if isinstance(m, (GroupedBatchNorm1d, GroupedBatchNorm2d)))
    assert list(model.state_dict()) == list(before)


def test_settings_of_a_norm_are_kept():
    model = nn.Sequential(nn.BatchNorm2d(3, eps=0.5, momentum=0.3, affine=False))
    group_statistics(model, 2)
    assert (model[0].eps, model[0].momentum, model[0].num_features) == (0.5, 0.3, 3)
    assert model[0].training
    x = torch.randn(4, 3, 2, 2, generator=torch.Generator().manual_seed(0))
    part = x[:2]
    mean, variance = part.mean((0, 2, 3), keepdim=True), part.var((0, 2, 3), keepdim=True, correction=0)
    assert torch.allclose(model(x)[:2], (part - mean) / (variance + 0.5).sqrt(), atol=1e-6)


def test_a_cpu_without_bfloat16_trains_in_float32_and_says_so(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for is_there, precision, device, is_half in (
        (True, "bf16", cpu, True), (True, "auto", cpu, False), (True, "fp32", gpu, False), (True, "auto", gpu, True),
        (False, "auto", cpu, False), (False, "fp32", cpu, False),
    ):  # fmt: skip
        monkeypatch.setattr(network, "has_bfloat16", lambda _, is_there=is_there: is_there)
        assert network.is_half_precision(precision, device) is is_half, (is_there, precision, device)
    with pytest.warns(RuntimeWarning, match="training in float32"):
        assert not network.is_half_precision("bf16", cpu)
