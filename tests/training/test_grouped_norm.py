"""BatchNorm with statistics by group."""

import pytest
import torch
from torch import nn

from matchkernel.model.descriptors import build
from matchkernel.runtime.config import VARIANTS
from matchkernel.training.grouped_norm import GroupedBatchNorm1d, GroupedBatchNorm2d, group_statistics

SHAPES = {"2d": (12, 5, 4, 3), "1d": (12, 5), "2d channels last": (12, 5, 4, 3)}


def values(kind, seed=0, dtype=torch.float32):
    """Parts of the batch that differ a lot, so that statistics of one are not those of another."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(SHAPES[kind], generator=generator, dtype=torch.float64)
    x[6:] = 2 * x[6:] + 1
    x = x.to(dtype)
    return x.contiguous(memory_format=torch.channels_last) if kind.endswith("last") else x


def plain(kind):
    """An ordinary BatchNorm with a history."""
    norm = (nn.BatchNorm1d if kind == "1d" else nn.BatchNorm2d)(5, affine=False)
    norm.running_mean.copy_(torch.arange(5.0))
    norm.running_var.copy_(torch.arange(5.0) + 0.5)
    return norm


def grouped(kind, groups):
    model = nn.Sequential(plain(kind))
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
    ours.eval(), theirs.eval()  # then it is plain BatchNorm, for an odd batch too
    assert torch.equal(ours(x[:5]), theirs(x[:5]))
    assert torch.equal(ours.running_mean, theirs.running_mean)


def by_formula(norm, x, weight):
    x = x.clone().requires_grad_()
    y = norm._by_formula(x)
    return y.detach(), torch.autograd.grad((y * weight).sum(), x)[0]


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_the_formula_for_the_compiler_is_the_native_one(groups, kind):
    """Numbers of order 1 in float32, to 1e-6."""
    x, weight = values(kind), values(kind, 1)
    native, written = grouped(kind, groups), grouped(kind, groups)
    for _ in range(2):
        mine, theirs = by_formula(written, x, weight), passes(native, [x], [weight])
        assert (mine[0] - theirs[0]).abs().max() < 1e-6
        assert (mine[1] - theirs[1]).abs().max() < 1e-6 * theirs[1].abs().max()
        assert torch.allclose(written.running_mean, native.running_mean, rtol=1e-6, atol=1e-6)
        assert torch.allclose(written.running_var, native.running_var, rtol=1e-6, atol=1e-6)


def test_the_formula_keeps_the_variance_of_half_precision_and_of_numbers_far_from_0():
    x = values("2d", dtype=torch.bfloat16)
    norm, wide = grouped("2d", 2), grouped("2d", 2)
    assert torch.equal(norm._by_formula(x), wide._by_formula(x.float()).to(torch.bfloat16))
    assert torch.equal(norm.running_var, wide.running_var)
    x = 1000 + torch.randn(64, 5, 8, 8, generator=torch.Generator().manual_seed(0))
    y = grouped("2d", 2)._by_formula(x).double()
    exact = torch.cat([(part - part.mean((0, 2, 3), keepdim=True)) / part.std((0, 2, 3), keepdim=True, correction=0)
                       for part in x.double().chunk(2)])  # fmt: skip
    assert (y - exact).abs().max() < 5e-4  # float32 at 1000 has steps of 6e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_tensors_of_a_model_and_their_names_stay(variant):
    model = build(variant, d=8, patch_size=16).eval()
    before = model.state_dict()
    group_statistics(model, 2)
    after = model.state_dict()
    assert list(after) == list(before)
    assert all(after[name].data_ptr() == before[name].data_ptr() for name in before)
    norms = [module for module in model.modules() if isinstance(module, (nn.BatchNorm1d, nn.BatchNorm2d))]
    assert len(norms) >= 6
    assert all(norm.groups == 2 and not norm.training for norm in norms)
    build(variant, d=8, patch_size=16).load_state_dict(after)
