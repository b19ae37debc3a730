import json

import pytest
import torch

from matchkernel.training.optimizer import Optimizer, Updater

SHAPES = [(3,), (4, 2), (2, 1, 3, 3), ()]
STEPS = 20


@pytest.fixture
def default_is_float64():
    """The gain of SGD takes torch's default type; see the strict failure below."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def tensors(seed, dtype=torch.float64):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in SHAPES]


def rate(step):
    return 0.5 - 0.02 * step


def compare(settings, reference, dtype=torch.float64):
    """The largest difference from an optimiser of torch over 20 steps with falling rates, and how far they went."""
    mine, theirs = tensors(0, dtype), [p.requires_grad_() for p in tensors(0, dtype)]
    start = tensors(0, dtype)
    updater, optimizer = Updater(mine, settings), reference(theirs)
    worst = 0.0
    for step in range(1, STEPS + 1):
        gradients = tensors(step, dtype)
        updater.update(gradients, torch.tensor(rate(step), dtype=dtype), torch.tensor(float(step), dtype=dtype))
        optimizer.param_groups[0]["lr"] = rate(step)
        for p, gradient in zip(theirs, gradients, strict=True):
            p.grad = gradient.clone()
        optimizer.step()
        worst = max(worst, *(float((p - q.detach()).abs().max()) for p, q in zip(mine, theirs, strict=True)))
    moved = min(float((p - q).abs().max()) for p, q in zip(mine, start, strict=True))
    return worst, moved


SGD = [
    (0.9, 0.9, 1e-4),  # HardNet's
    (0.9, 0.0, 1e-4),
    (0.9, 0.9, 0.0),
    (0.5, 0.2, 0.1),
    (0.0, 0.0, 0.01),
]


def sgd(momentum, dampening, weight_decay):
    settings = Optimizer("sgd", momentum=momentum, dampening=dampening, weight_decay=weight_decay)

    def reference(parameters):
        return torch.optim.SGD(
            parameters, lr=1.0, momentum=momentum, dampening=dampening, weight_decay=weight_decay, foreach=False
        )

    return settings, reference


@pytest.mark.usefixtures("default_is_float64")
@pytest.mark.parametrize("constants", SGD)
def test_sgd_is_torchs(constants):
    worst, moved = compare(*sgd(*constants))
    assert worst < 1e-14  # a few roundings of numbers up to 10
    assert moved > 0.1


@pytest.mark.parametrize("constants", SGD)
def test_sgd_is_torchs_in_float32(constants):
    worst, moved = compare(*sgd(*constants), dtype=torch.float32)
    assert worst < 2e-6  # roundings of 20 steps
    assert moved > 0.1


def test_sgd_is_torchs_in_float64_whatever_the_default_type():
    worst, _ = compare(*sgd(0.9, 0.9, 1e-4))
    assert worst < 1e-14


@pytest.mark.parametrize(
    ("first", "second", "decay"), [(0.9, 0.999, 1e-4), (0.9, 0.999, 0.0), (0.5, 0.9, 0.3), (0.0, 0.0, 0.0)]
)
def test_adamw_is_torchs(first, second, decay):
    def reference(parameters):
        return torch.optim.AdamW(parameters, lr=1.0, betas=(first, second), weight_decay=decay, foreach=False)

    settings = Optimizer("adamw", beta_first=first, beta_second=second, weight_decay=decay)
    worst, moved = compare(settings, reference)
    assert worst < 1e-14
    assert moved > 0.1


@pytest.mark.usefixtures("default_is_float64")
def test_sgd_goes_the_golden_way(golden):
    trace = json.loads((golden / "hardnet_loss.json").read_text())["sgd_trace"]
    settings = Optimizer(**{name: trace[name] for name in ("momentum", "dampening", "weight_decay")})
    weights = torch.tensor(trace["start"])
    updater = Updater([weights], settings)
    steps = zip(trace["gradients"], trace["weights_after_each_update"], strict=True)
    for step, (gradient, after) in enumerate(steps, 1):
        updater.update([torch.tensor(gradient)], torch.tensor(trace["lr"]), torch.tensor(float(step)))
        assert (weights - torch.tensor(after)).abs().max() < 1e-14
    assert step == 4


def test_the_first_step_is_undamped_and_a_resumed_one_is_not():
    """What step 1 means is told by its number, not by an empty state: a resumed run begins in the middle."""
    settings = Optimizer(momentum=0.9, dampening=0.9, weight_decay=0.0)
    first, later = torch.zeros(1), torch.zeros(1)
    Updater([first], settings).update([torch.ones(1)], torch.tensor(1.0), torch.tensor(1.0))
    Updater([later], settings).update([torch.ones(1)], torch.tensor(1.0), torch.tensor(2.0))
    assert first.item() == -1
    assert later.item() == pytest.approx(-0.1)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_the_state_is_all_that_must_be_saved(kind):
    """Half the steps, state and parameters copied elsewhere, the other half: the same bits."""
    settings = Optimizer(kind, rate=0.1)

    def go(parameters, updater, steps):
        for step in steps:
            gradients = [p.sin() + step for p in parameters]
            updater.update(gradients, torch.tensor(0.01), torch.tensor(float(step)))

    whole = tensors(0, torch.float32)
    go(whole, Updater(whole, settings), range(1, 9))
    half = tensors(0, torch.float32)
    updater = Updater(half, settings)
    go(half, updater, range(1, 5))
    other = [p.clone() for p in half]
    resumed = Updater(other, settings)
    assert resumed.state.keys() == updater.state.keys()
    for name in updater.state:
        for new, old in zip(resumed.state[name], updater.state[name], strict=True):
            assert not new.any()
            assert old.any()
            new.copy_(old)
    go(other, resumed, range(5, 9))
    assert all(torch.equal(a, b) for a, b in zip(whole, other, strict=True))


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_parameters_are_changed_in_place_and_gradients_are_not(kind):
    parameters, gradients = tensors(0), tensors(1)
    places = [p.data_ptr() for p in parameters]
    Updater(parameters, Optimizer(kind)).update(gradients, torch.tensor(0.1), torch.tensor(1.0))
    assert [p.data_ptr() for p in parameters] == places
    assert not any(torch.equal(p, old) for p, old in zip(parameters, tensors(0), strict=True))
    assert all(torch.equal(g, old) for g, old in zip(gradients, tensors(1), strict=True))


def test_leaves_that_need_gradients_can_be_updated():
    p = torch.ones(2, requires_grad=True)
    (gradient,) = torch.autograd.grad((3 * p).sum(), [p])
    Updater([p], Optimizer(weight_decay=0.0)).update([gradient], torch.tensor(0.5), torch.tensor(1.0))
    assert p.tolist() == [-0.5, -0.5]
    assert p.requires_grad
    assert p.grad is None


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_rate_of_0_changes_nothing(kind):
    parameters = tensors(0)
    Updater(parameters, Optimizer(kind)).update(tensors(1), torch.tensor(0.0), torch.tensor(1.0))
    assert all(torch.equal(p, old) for p, old in zip(parameters, tensors(0), strict=True))
