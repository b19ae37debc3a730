import copy
import shutil

import helpers
import kornia.feature
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from matchkernel.errors import ArgumentError, ArgumentTypeError
from matchkernel.model.descriptors import build
from matchkernel.model.encoding import SpatialEncoding
from matchkernel.model.precision import unit_rows
from matchkernel.runtime.config import VARIANTS

RESOLUTION_FREE = [name for name, variant in VARIANTS.items() if variant.any_size]
SPATIAL = [name for name, variant in VARIANTS.items() if variant.systems]


# Of the others each adds little that these do not trace.
TRACED = [v if v in ("dual", "fc") else pytest.param(v, marks=pytest.mark.slow) for v in VARIANTS]


def small(variant, **settings):
    return build(variant, d=8, generator=torch.Generator().manual_seed(0), **settings)


@pytest.mark.parametrize("variant", VARIANTS)
def test_rows_are_unit_and_of_the_stated_width(variant, textures, trained_like):
    model = trained_like(build(variant))
    rows = model(textures(3))
    assert rows.shape == (3, model.config.D)
    assert rows.norm(dim=1).tolist() == pytest.approx([1] * 3, abs=1e-6)
    assert model(torch.zeros(0, 1, 32, 32)).shape == (0, model.config.D)


def test_there_are_five_resolution_free_ones():
    assert RESOLUTION_FREE == ["cartesian", "polar", "combined", "dual", "sum"]


@pytest.mark.parametrize("variant", RESOLUTION_FREE)
@pytest.mark.parametrize("size", [8, 20, 48, 64])
def test_weights_load_strictly_at_any_size(variant, size, textures, trained_like):
    at_32 = trained_like(small(variant))
    there = small(variant, patch_size=size)
    there.load_state_dict(at_32.state_dict(), strict=True)
    patches = textures(2, size)
    assert torch.equal(there.eval()(patches), at_32(patches))  # F from the buffer and F made in the forward pass


def test_fc_says_why_its_weights_cannot_serve_another_size():
    weights = small("fc").state_dict()
    with pytest.raises(ArgumentError, match=r"separate matrix W_p for each of 16 x 16 positions"):
        small("fc", patch_size=64).load_state_dict(weights)
    with pytest.raises(RuntimeError, match="size mismatch"):  # another width is another matter
        build("fc", d=16).load_state_dict(weights)


@pytest.mark.parametrize(("variant", "reason"), [("fc", "separate matrix W_p"), ("concat", "lists the features")])
def test_fc_and_concat_refuse_another_size(variant, reason):
    with pytest.raises(ArgumentError, match=reason):
        small(variant)(torch.rand(1, 1, 64, 64))


@pytest.mark.parametrize("variant", SPATIAL)
@pytest.mark.parametrize(("n", "norm"), [(3, "none"), (8, "none"), (16, "none"), (8, "batch")])
def test_the_papers_literal_form(variant, n, norm, trained_like):
    """M sum_p w_p phi (x) f (x) f + n^2 m has our direction, with m = ours / 64; with BatchNorm only at n = 8."""
    model = trained_like(small(variant, output_norm=norm, patch_size=4 * n)).double()
    maps = [torch.rand(2, 8, n, n, dtype=torch.float64) for _ in model.aggregations]
    sums = [(phi.flatten(2) @ e.position_matrix(n)).flatten(1) for phi, e in zip(maps, model.aggregations, strict=True)]
    literal = torch.cat(sums, 1) @ model.projection.weight.T + n**2 * (model.projection.bias / 64)
    assert (unit_rows(model.embed(maps)) - unit_rows(model.output_norm(literal))).abs().max() < 1e-10


def test_combined_shares_its_map_and_dual_does_not(textures):
    shared, own = small("combined").feature_maps(textures(1)), small("dual").feature_maps(textures(1))
    assert len(shared) == len(own) == 2
    assert shared[0] is shared[1]
    assert not torch.equal(own[0], own[1])


def test_parts_are_joined_cartesian_first(textures, trained_like):
    model = trained_like(small("combined", output_norm="none"))
    phi = model.feature_maps(textures(2))[0]
    assert [part.system for part in model.aggregations] == ["cartesian", "polar"]
    halves = [part(phi) for part in model.aggregations]
    expected = torch.cat(halves, 1) @ model.projection.weight.T + model.projection.bias
    assert torch.allclose(model.embed([phi, phi]), expected, atol=1e-6)


def test_fc_is_hardnet(textures):
    """kornia's HardNet with the same numbers gives the same rows: every layer, order and constant."""
    theirs = kornia.feature.HardNet(pretrained=False).eval()
    ours = build("fc").eval()
    state = theirs.state_dict()
    convolutions = iter(name for name in state if name.endswith("weight") and state[name].ndim == 4)
    for layer in ours.backbones[0].layers[::3]:
        layer.weight.data.copy_(state[next(convolutions)])
    ours.projection.weight.data.copy_(state[next(convolutions)].reshape(128, -1))
    norms = [module for module in theirs.modules() if isinstance(module, torch.nn.BatchNorm2d)]
    mine = [module for module in ours.modules() if isinstance(module, torch.nn.BatchNorm2d | torch.nn.BatchNorm1d)]
    for k, (source, target) in enumerate(zip(norms, mine, strict=True)):
        source.running_mean.fill_(0.01 * k), source.running_var.fill_(1 + 0.1 * k)
        target.load_state_dict(source.state_dict())
    with torch.no_grad():
        patches = textures(5) / 255
        assert (ours(patches) - theirs(patches)).abs().max() < 1e-6


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_fold_is_equal(variant, dtype, tolerance, textures, trained_like):
    model = trained_like(build(variant)).to(dtype)
    folded = model.fold()
    patches = textures(4, dtype=dtype)
    with torch.no_grad():
        assert (folded(patches) - model(patches)).abs().max() <= tolerance
    assert not any(isinstance(module, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d) for module in folded.modules())
    assert any(isinstance(module, torch.nn.BatchNorm2d) for module in model.modules())  # the model itself stays
    with torch.no_grad():
        assert folded.fold() is folded
        assert torch.equal(folded.train()(patches), folded.eval()(patches))


def test_fold_of_a_training_model_uses_its_running_statistics(textures, trained_like):
    model = trained_like(build("fc"))
    expected = model(textures(4))
    assert (model.train().fold()(textures(4)) - expected).abs().max() < 1e-5
    assert model.training


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_the_last_convolution_and_the_projection(variant):
    model = build(variant, d=16, patch_size=8).double().eval()
    names, parameters = zip(*model.named_parameters(), strict=True)
    patches = torch.rand(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    chosen = [k for k, name in enumerate(names) if "projection" in name or name.endswith("layers.15.weight")]
    inputs = tuple(parameters[k].detach().requires_grad_() for k in chosen)

    def forward(*values):
        return torch.func.functional_call(
            model, {names[k]: value for k, value in zip(chosen, values, strict=True)}, patches
        )

    assert (forward(*inputs).norm(dim=1) > 0.99).all()  # of few channels all may be 0, where a norm has no gradient
    # Random directions (fast_mode): the matrices have thousands of entries.
    assert torch.autograd.gradcheck(forward, inputs, fast_mode=True)


@pytest.mark.parametrize("variant", VARIANTS)
def test_double_deepcopy_and_state_dict(variant, textures, trained_like):
    model = trained_like(small(variant))
    patches = textures(3)
    with torch.no_grad():
        rows = model(patches)
        assert (copy.deepcopy(model).double()(patches.double()) - rows).abs().max() < 1e-5
        assert torch.equal(copy.deepcopy(model)(patches), rows)
        fresh = small(variant).eval()
        assert fresh.load_state_dict(model.state_dict()).missing_keys == []
        assert torch.equal(fresh(patches), rows)


def test_state_dict_holds_learned_tensors_and_statistics_only():
    kinds = {name.rsplit(".", 1)[1] for name in build("dual").state_dict()}
    assert kinds == {"weight", "bias", "running_mean", "running_var", "num_batches_tracked"}


@pytest.mark.parametrize("variant", TRACED)
def test_torch_export_with_dynamic_batch(variant, textures, trained_like):
    model = trained_like(small(variant))
    batch = torch.export.Dim("batch")
    program = torch.export.export(model, (textures(4),), dynamic_shapes=({0: batch},)).module()
    with torch.no_grad():
        for count in (0, 1, 7):
            patches = textures(7)[:count]
            assert torch.allclose(program(patches), model(patches), atol=1e-6)


@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
def test_torch_compile_fullgraph(variant, textures, trained_like):
    torch.compiler.reset()
    model = trained_like(small(variant))
    compiled = torch.compile(model, fullgraph=True)
    with torch.no_grad():
        assert torch.allclose(compiled(textures(4)), model(textures(4)), atol=1e-5)
        if variant in RESOLUTION_FREE:
            assert torch.allclose(compiled(textures(4, 48)), model(textures(4, 48)), atol=1e-5)


@pytest.mark.parametrize("variant", TRACED)
def test_no_graph_breaks(variant, textures):
    """The part of compile(fullgraph=True) that needs no C++ compiler: the whole forward pass traces as one graph."""
    torch.compiler.reset()
    compiled = torch.compile(small(variant).eval(), fullgraph=True, backend="eager")
    assert compiled(textures(2)).shape[0] == 2


def test_training_switches_are_where_they_should_be(textures):
    model = build("fc").train()
    first, second = model(textures(4)), model(textures(4))
    assert not torch.equal(first, second)  # dropout 0.3
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Dropout):
            assert (name, module.p) == ("dropout", 0.3)
    assert build("dual").dropout.p == 0


def test_dropout_falls_on_elements_of_the_map_once():
    """`combined` has one map: what is dropped is dropped for both of its halves, element by element, and rescaled.

    On a map of ones: a map of random weights has zeros of its own, as many in evaluation mode, where BatchNorm has
    other statistics, as with dropout in training mode.
    """
    model = build("combined", d=8, dropout=0.5).train()
    model.backbones[0].register_forward_hook(lambda *_: torch.ones(8, 8, 8, 8))
    first, second = model.feature_maps(torch.rand(8, 1, 32, 32))
    assert first is second
    assert first.unique().tolist() == [0, 2]
    assert 0.4 < float((first == 0).float().mean()) < 0.6  # of 4,096 elements: 12 deviations
    per_channel = (first == 0).float().mean((2, 3))  # of 64 elements each: 0 or 1 once in 10^17 runs
    assert float(per_channel.min()) > 0
    assert float(per_channel.max()) < 1


def test_initialisation_is_orthogonal_of_gain_06_and_repeatable():
    model = build("dual", s=1, generator=torch.Generator().manual_seed(7))
    M = model.projection.weight
    assert (M @ M.T - 0.36 * torch.eye(128)).abs().max() < 1e-5
    assert not model.projection.bias.any()
    convolution = model.backbones[1].layers[9].weight.flatten(1)
    assert (convolution @ convolution.T - 0.36 * torch.eye(64)).abs().max() < 1e-5
    again = build("dual", s=1, generator=torch.Generator().manual_seed(7))
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True))


@pytest.mark.parametrize("variant", ["sum", "concat"])
def test_batch_norm_after_sum_and_concat_centres_without_parameters(variant, textures, trained_like):
    """Their elements come out of a ReLU, so rows are never negative without it; folded copies keep it fixed."""
    patches = textures(4, dtype=torch.float64)
    plain, model = (trained_like(build(variant, d=8, **norm)).double() for norm in ({}, {"output_norm": "batch"}))
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in plain.parameters())
    assert model.config.parameters == plain.config.parameters
    with torch.no_grad():
        before = model.embed(model.feature_maps(patches))
        raw = model.aggregations[0](model.feature_maps(patches)[0])
        norm = model.output_norm
        assert (before - (raw - norm.running_mean) / (norm.running_var + norm.eps).sqrt()).abs().max() < 1e-10
        assert float(plain(patches).min()) >= 0
        assert float(model(patches).min()) < 0
        folded = model.fold()
        assert (folded(patches) - model(patches)).abs().max() < 1e-12
        assert torch.equal(folded.train()(patches), folded.eval()(patches))
        small_copy = model.float().fold()
        assert (small_copy(patches.float()) - model(patches.float())).abs().max() < 1e-5


@pytest.mark.parametrize(
    "settings", [{"encoding_norm": True}, {"center_weight": False}, {"grid": "endpoints"}, {"grid": "fields"}]
)
def test_every_switch_changes_the_rows(settings, textures, trained_like):
    plain, switched = trained_like(small("dual")), trained_like(small("dual", **settings))
    assert (plain(textures(2)) - switched(textures(2))).abs().max() > 1e-4


def test_center_weight_off_means_weight_one():
    encoding = small("cartesian", center_weight=False).aggregations[0]
    assert isinstance(encoding, SpatialEncoding)
    assert torch.equal(encoding.position_matrix(8), encoding.position_matrix(8, weighted=False))


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 3, 32, 32), (1, 1, 32, 28), (1, 1, 30, 30), (1, 1, 4, 4), (32, 32)])
def test_shapes_that_are_refused(shape):
    reason = "the side of patches must be a multiple of 4" if shape[-1] in (30, 4) else "patches must have shape"
    with pytest.raises(ArgumentError, match=reason):
        small("dual")(torch.rand(shape))


def test_it_moves_like_any_module(textures):
    """`.to` a device; the only other one there is everywhere is meta, which keeps shapes."""
    model = small("dual").to("meta")
    assert all(tensor.device.type == "meta" for tensor in [*model.parameters(), *model.buffers()])
    assert model(torch.empty(3, 1, 32, 32, device="meta")).shape == (3, 128)


def test_integers_are_refused():
    with pytest.raises(ArgumentTypeError, match="describe takes integers"):
        small("dual")(torch.zeros(1, 1, 32, 32, dtype=torch.uint8))


@settings(max_examples=30)
@given(st.floats(0.01, 100), st.floats(-1000, 1000), st.sampled_from(list(VARIANTS)))
def test_gray_range_does_not_matter(gain, offset, variant):
    model = helpers.trained_like(build(variant, d=4, patch_size=8, generator=torch.Generator().manual_seed(0))).double()
    patches = torch.rand(2, 1, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        assert (model(gain * patches + offset) - model(patches)).abs().max() < 1e-4  # the 1e-7 beside std
