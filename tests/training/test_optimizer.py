"""SGD against torch's and a golden trace, and the learning rate of every update."""

import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from matchkernel.training.config import TrainingConfig
from matchkernel.training.optimizer import Optimizer, Updater, rate_at

SHAPES = [(3,), (4, 2), (2, 1, 3, 3), ()]
SGD = [(0.9, 0.9, 1e-4), (0.9, 0.0, 1e-4), (0.9, 0.9, 0.0), (0.5, 0.2, 0.1), (0.0, 0.0, 0.01)]  # the first: HardNet's


def tensors(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def number(value, dtype=torch.float64):
    return torch.tensor(float(value), dtype=dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 2e-6)])
@pytest.mark.parametrize(("momentum", "dampening", "decay"), SGD)
def test_sgd_equals_torch_over_20_steps_with_falling_rates(momentum, dampening, decay, dtype, tolerance):
    mine, theirs = tensors(0, dtype), [p.requires_grad_() for p in tensors(0, dtype)]
    updater = Updater(mine, Optimizer(momentum=momentum, dampening=dampening, weight_decay=decay))
    reference = torch.optim.SGD(theirs, 1.0, momentum, dampening, decay, foreach=False)
    for step in range(1, 21):
        gradients, rate = tensors(step, dtype), 0.5 - 0.02 * step
        updater.update(gradients, number(rate, dtype), number(step, dtype))
        reference.param_groups[0]["lr"] = rate
        for p, gradient in zip(theirs, gradients, strict=True):
            p.grad = gradient.clone()
        reference.step()
        for p, q in zip(mine, theirs, strict=True):
            assert (p - q.detach()).abs().max() < tolerance
    assert all((p - q).abs().max() > 0.1 for p, q in zip(mine, tensors(0, dtype), strict=True))


def test_sgd_follows_the_golden_trace(golden):
    trace = json.loads((golden / "hardnet_loss.json").read_text())["sgd_trace"]
    settings = Optimizer(**{name: trace[name] for name in ("momentum", "dampening", "weight_decay")})
    weights = torch.tensor(trace["start"], dtype=torch.float64)
    updater = Updater([weights], settings)
    steps = zip(trace["gradients"], trace["weights_after_each_update"], strict=True)
    for step, (gradient, after) in enumerate(steps, 1):
        updater.update([torch.tensor(gradient, dtype=torch.float64)], number(trace["lr"]), number(step))
        assert (weights - torch.tensor(after, dtype=torch.float64)).abs().max() < 1e-14
    assert step == 4


def rates(schedule, steps, **settings):
    """The rates of all updates, and the one after the last."""
    optimizer = Optimizer(schedule=schedule, **settings)
    return [rate_at(u, optimizer, steps, 512) for u in range(1, steps + 2)]


def test_rates_of_hardnet_are_the_golden_ones_exactly(golden):
    recorded = json.loads((golden / "hardnet_loss.json").read_text())["learning_rate"]
    config = TrainingConfig.from_dict({"preset": "hardnet", "data": {"train": "x"}})
    sampling = config.sampling
    wanted = {int(update): rate for update, rate in recorded["rate_at_update"].items()}
    wanted[recorded["updates"] + 1] = recorded["rate_left_after_last_update"]
    for update, rate in wanted.items():
        assert rate_at(update, config.optimizer, sampling.steps, sampling.pairs, sampling.epoch_pairs) == rate
    assert [rate_at(u, Optimizer(schedule="hardnet"), 4, 512) for u in (1, 2, 3, 4)] == [10, 10, 7.5, 5]  # no epochs


@given(st.integers(1, 10**7), st.floats(1e-6, 1e6), st.sampled_from(["linear", "cosine"]), st.integers(0, 50))
def test_the_rate_is_0_after_the_last_update_and_never_before(steps, rate, schedule, warmup):
    optimizer = Optimizer(rate=rate, schedule=schedule, warmup=warmup)
    assert rate_at(steps + 1, optimizer, steps, 512) == 0
    assert 0 < rate_at(steps, optimizer, steps, 512) <= rate
    assert 0 < rate_at(1, optimizer, steps, 512) <= rate


def test_schedules_by_hand():
    assert rates("linear", 4) == [10, 7.5, 5, 2.5, 0]
    expected = [1 + math.cos(math.pi * k / 8) for k in range(9)]
    assert rates("cosine", 8, rate=2.0) == pytest.approx(expected, abs=1e-15)
    assert rates("constant", 6, rate=1.0, warmup=4) == [0.25, 0.5, 0.75, 1, 1, 1, 1]
    cold, warm = rates("linear", 10), rates("linear", 10, warmup=4)
    assert warm[:4] == pytest.approx([rate * share for rate, share in zip(cold, (0.25, 0.5, 0.75, 1), strict=False)])
    assert warm[4:] == cold[4:]
