"""What only a GPU can show: run `python -m pytest tests/training/test_gpu.py` on a machine that has one."""

import copy

import pytest
import torch
from helpers import refuses

from matchkernel import build, load
from matchkernel.data.synthetic import SyntheticSettings, build_synthetic
from matchkernel.errors import WorkError
from matchkernel.model.backbone import normalize_patches
from matchkernel.training.config import TrainingConfig
from matchkernel.training.distributed import Team
from matchkernel.training.feed import Feed
from matchkernel.training.loop import train
from matchkernel.training.network import prepare_for_training
from matchkernel.training.sets import TrainingSet
from matchkernel.training.state import TrainingState

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here"),
    pytest.mark.filterwarnings("ignore"),  # those of the compiler
]


@pytest.fixture(scope="module")
def patch_set(tmp_path_factory):
    return build_synthetic(tmp_path_factory.mktemp("sets") / "train", SyntheticSettings(points=150, patches=4))


def config(patch_set, **tables):
    tables = {"sampling": {"pairs": 64, "steps": 20}, **tables}
    return TrainingConfig.from_dict({"data": {"train": str(patch_set.folder)}, **tables})


def after(patch_set, folder, steps=3, **tables):
    """The run after a few steps."""
    settings = config(patch_set, **tables)
    run = TrainingState(settings, folder, TrainingSet([patch_set]), [], Team(), torch.device("cuda", 0))
    feed = Feed(settings, run.data, Team(), streams=run.source is None, pins=True)
    for step in range(1, steps + 1):
        run.update(feed.batch(step))
    run.meter.settle()
    return run


def flat(run):
    return torch.cat([p.detach().flatten().float() for p in run.model.parameters()])


def change(run):
    """What training changed: parameters minus their start."""
    fresh = torch.Generator().manual_seed(run.config.seed)
    start = type(run.model)(run.model.config, fresh).cuda()
    return flat(run) - torch.cat([p.detach().flatten() for p in start.parameters()])


def alike(a, b):
    return float(torch.cosine_similarity(a, b, dim=0))


def test_fused_layers_are_convolutions_batch_norms_and_relus():
    from matchkernel.training.fused_layers import FusedLayers

    torch.manual_seed(0)
    for B, N, groups in ((64, 32, 2), (30, 12, 2), (7, 64, 1)):
        model = build("cartesian", patch_size=N)
        prepare_for_training(model, groups=groups)
        plain = model.cuda().backbones[0].layers
        fused = FusedLayers(*copy.deepcopy(list(plain))).to(memory_format=torch.channels_last)
        x = normalize_patches(torch.rand(B, 1, N, N, device="cuda")).bfloat16()
        with torch.autocast("cuda", torch.bfloat16):
            half, found = plain_gradients(copy.deepcopy(plain), x), plain_gradients(fused, x)
        exact = plain_gradients(plain, x.float())
        for name, wanted in exact.items():
            noise = float((half[name].float() - wanted).norm())  # of bfloat16 alone
            assert float((found[name].float() - wanted).norm()) < 1.3 * noise + 1e-4 * float(wanted.norm()), (B, name)


def test_values_that_are_no_numbers_stay_so():
    from matchkernel.training.norm_kernels import norm_relu

    y = torch.full((2, 32, 4, 4), float("nan"), device="cuda", dtype=torch.bfloat16)
    y = y.contiguous(memory_format=torch.channels_last)
    assert norm_relu(y, torch.ones(1, 32, device="cuda"), torch.zeros(1, 32, device="cuda")).isnan().all()


def plain_gradients(layers, x):
    """The map, the gradients and the statistics of layers."""
    y = layers(x)
    weight = torch.randn(y.shape, generator=torch.Generator("cuda").manual_seed(1), device="cuda")
    (y.float() * weight).sum().backward()
    gradients = {name: parameter.grad for name, parameter in layers.named_parameters()}
    return {"map": y.detach(), **gradients, **{name: t for name, t in layers.named_buffers() if "running" in name}}


def test_the_fused_head_is_that_of_float32():
    from matchkernel.training.head_kernels import Encode, Product

    torch.manual_seed(0)
    for n, P in ((8, 25), (16, 9), (3, 49)):
        phi = torch.randn(33, 128, n, n, device="cuda").relu().bfloat16().contiguous(memory_format=torch.channels_last)
        F, M = torch.randn(n * n, P, device="cuda"), torch.randn(128, 128 * P, device="cuda").requires_grad_()
        phi = phi.requires_grad_()
        exact = (phi.double().flatten(2) @ F.double()).flatten(1)
        gradient = torch.randn_like(exact)
        wanted = torch.autograd.grad(exact, phi, gradient)[0].double()
        encoded = Encode.apply(phi, F)
        found = torch.autograd.grad(encoded, phi, gradient.float())[0].double()
        assert (encoded.double() - exact).norm() / exact.norm() < 1e-5  # bfloat16 would be 2e-3, TF32 3e-4
        assert (found - wanted).norm() / wanted.norm() < 3e-3  # it is bfloat16
        rows, product = exact.float().requires_grad_(), exact @ M.double().t()
        ours = Product.apply(rows, M)
        both = torch.autograd.grad(ours, (rows, M), torch.ones_like(ours))
        for value, expected in (
            (ours, product),
            (both[0], M.sum(0).expand_as(rows)),
            (both[1], exact.sum(0).expand_as(M)),
        ):
            assert (value.double() - expected.double()).norm() / expected.double().norm() < 1e-3
        assert not torch.backends.cuda.matmul.allow_tf32


@pytest.mark.parametrize("variant", ["dual", "fc"])
def test_the_captured_step_learns_what_the_plain_one_does(patch_set, tmp_path, variant):
    # At the preset's rate the loss of these few pairs leaps, and with it every difference of rounding.
    tables = {"model": {"variant": variant, "dropout": 0.0}, "optimizer": {"rate": 0.1}}
    plain = after(patch_set, tmp_path, **tables, loop={"precision": "fp32", "compile": "no"})
    same = after(patch_set, tmp_path, **tables, loop={"precision": "fp32"})
    half = after(patch_set, tmp_path, **tables, loop={"compile": "no"})
    captured = after(patch_set, tmp_path, **tables)
    assert (plain.is_captured, same.is_captured, half.is_captured, captured.is_captured) == (False, True, False, True)
    assert alike(change(same), change(plain)) > 0.999  # sums in another order
    assert float(same.monitor[0]) == pytest.approx(float(plain.monitor[0]), rel=0.001)
    noise = 1 - alike(change(half), change(plain))  # what bfloat16 alone does
    assert 1 - alike(change(captured), change(plain)) < 2 * noise + 0.02
    loss, wanted = float(captured.monitor[0]), float(plain.monitor[0])
    assert abs(loss - wanted) < 2 * abs(float(half.monitor[0]) - wanted) + 0.01 * wanted


def test_warm_up_and_capture_leave_no_trace(patch_set, tmp_path):
    first = after(patch_set, tmp_path, steps=1)
    again = after(patch_set, tmp_path, steps=1)
    assert alike(change(first), change(again)) > 0.99  # atomics of some kernels reorder sums
    assert int(first.model.output_norm.running_mean.abs().sum() > 0) == 1
    moved = first.model.backbones[0].layers[1].running_var - 1
    assert 0.05 < float(moved.abs().max()) < 0.25  # two groups at momentum 0.1, not eight


def test_streamed_and_resident_patches_are_the_same(patch_set, tmp_path):
    loop = {"compile": "no", "precision": "fp32"}
    resident = after(patch_set, tmp_path, loop={**loop, "resident": "yes"})
    streamed = after(patch_set, tmp_path, loop={**loop, "resident": "no"})
    assert streamed.source is None
    assert resident.source is not None
    assert alike(change(resident), change(streamed)) > 0.9999
    captured = after(patch_set, tmp_path, loop={"resident": "no"})
    assert captured.is_captured
    assert alike(change(captured), change(resident)) > 0.9


def test_dropout_follows_seed_and_step_in_a_graph(patch_set, tmp_path):
    model = {"variant": "fc", "dropout": 0.5}
    one = after(patch_set, tmp_path, steps=4, model=model)
    two = after(patch_set, tmp_path, steps=4, model=model)
    other = after(patch_set, tmp_path, steps=4, model=model, seed=1)
    assert alike(change(one), change(two)) > 0.99
    assert alike(change(one), change(other)) < 0.9


def test_light_changes_run_in_the_graph(patch_set, tmp_path):
    light = {"gamma": 0.3, "contrast": 0.3, "light_gradient": 0.2, "blur": 1.0, "noise": 4.0}
    plain = after(patch_set, tmp_path, augmentation=light, loop={"precision": "fp32", "compile": "no"})
    captured = after(patch_set, tmp_path, augmentation=light)
    assert alike(change(captured), change(plain)) > 0.9


def test_a_batch_with_another_number_of_pairs_gets_a_graph_of_its_own(patch_set, tmp_path):
    sampling = {"pairs": 64, "steps": 6, "epoch_pairs": 150}
    run = after(patch_set, tmp_path, steps=6, sampling=sampling)
    assert sorted(run.updates) == [22, 64]


def test_a_run_is_resumed_and_its_weights_load(patch_set, tmp_path):
    settings = config(patch_set, sampling={"pairs": 64, "steps": 12}, loop={"log_every": 5})
    whole = train(settings, tmp_path / "whole")
    assert whole.is_finished
    run = after(patch_set, tmp_path, steps=6, sampling={"pairs": 64, "steps": 12}, loop={"log_every": 5})
    (tmp_path / "part").mkdir()
    run.folder = tmp_path / "part"
    run.save()
    train(settings, tmp_path / "part", resume=True)
    rows = [load(tmp_path / name / "final.safetensors") for name in ("whole", "part")]
    a, b = (torch.cat([p.flatten() for p in model.parameters()]) for model in rows)
    assert alike(a, b) > 0.99


def test_a_loss_that_is_not_finite_stops_the_run(patch_set, tmp_path):
    settings = config(patch_set, optimizer={"rate": 1e30}, loop={"log_every": 5})
    with refuses(WorkError):
        train(settings, tmp_path / "run")
