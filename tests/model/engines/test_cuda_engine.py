"""The GPU's engine, its operations one by one on a CPU; where there is a GPU, captured and replayed."""

import copy
import operator

import numpy as np
import pytest
import torch
from helpers import refuses

import matchkernel
from matchkernel.errors import ArgumentError
from matchkernel.model.engines.cuda_engine import CudaHalfEngine, open_cuda_half, state_of
from matchkernel.model.transfer import PIECES, PinnedTransfer

CPU = torch.device("cpu")
NEEDS_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICES = [CPU, pytest.param(torch.device("cuda", 0), marks=NEEDS_GPU)]


def small(variant="cartesian", **settings):
    return matchkernel.build(variant, generator=torch.Generator().manual_seed(0), **settings)


@pytest.mark.parametrize("variant", [*matchkernel.VARIANTS, "encoding_norm"])
def test_in_float32_the_operations_are_those_of_the_model(variant, textures, trained_like):
    norm = {"encoding_norm": True} if variant == "encoding_norm" else {}
    model = trained_like(small("combined" if norm else variant, d=8, **norm))
    engine = CudaHalfEngine(model, 32, CPU, dtype=torch.float32)
    patches = textures(5)
    folded = model.fold()
    CudaHalfEngine(folded, 32, CPU)
    assert next(folded.parameters()).dtype == torch.float32  # left as it was
    assert (engine(patches) - matchkernel.describe(patches, model)).abs().max() < 1e-6


def test_an_edit_of_weights_is_seen_also_by_data():
    model = small(d=8)
    states = [state_of(model)]
    for edit in (lambda weight: weight.mul_(-1), lambda weight: weight.data.mul_(1.1)):
        with torch.no_grad():
            edit(next(model.parameters()))
        states.append(state_of(model))
    assert states[0] != states[1] != states[2] != states[0]
    with torch.inference_mode():
        made = small(d=8)
        assert state_of(made) == state_of(made)


@pytest.mark.parametrize("device", DEVICES)
def test_edits_by_data_that_keep_all_lengths_are_seen(device):
    model = matchkernel.load("tiny").to(device)
    weights = [weight.data for weight in model.parameters()]
    weights[-1].copy_(torch.linspace(-0.1, 0.2, len(weights[-1])))  # of a bias of 1e-7 nothing would be seen in rows
    states = [state_of(model)]
    for weight in weights:
        for edit in (weight.neg_, lambda weight=weight: weight.copy_(weight.flip(0)), weight.neg_):
            edit()
            states.append(state_of(model))
    assert all(map(operator.ne, states, states[1:]))
    for weight in weights:
        weight.copy_(weight.flip(0))
    assert state_of(model) == states[0]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["light", "dual"])
def test_half_precision_is_close_to_the_definition(device, name, textures):
    """Measured on patches of a photo: 1 - cosine at most 2.3e-6; here 1.4e-5 on an ARM CPU, which adds up in half."""
    model, patches = matchkernel.load(name), textures(24)
    exact = matchkernel.describe(patches, model)
    rows = CudaHalfEngine(model, 32, device)(patches.to(device)).cpu()
    assert rows.dtype == torch.float32
    assert (rows.norm(dim=1) - 1).abs().max() < 1e-6
    assert 1 - (rows * exact).sum(1).min() < (1e-5 if device.type == "cuda" else 3e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_the_contract_of_describe(device, textures):
    model = small(d=8).to(device)
    engine = CudaHalfEngine(model, 32, device)
    engine.batch_pixels = 4 * 1024
    patches = (255 * textures(11)).byte().numpy()
    patches[2] = 9
    rows, valid = matchkernel.describe(patches, model, engine=engine, return_valid=True)
    assert valid.tolist() == [k != 2 for k in range(11)]
    assert not rows[2].any()
    exact = matchkernel.describe(patches, model)
    assert ((rows * exact).sum(1)[valid] > 0.9999).all()
    order = np.random.default_rng(0).permutation(11)
    assert np.abs(matchkernel.describe(patches[order], model, engine=engine) - rows[order]).max() < 1e-3
    assert matchkernel.describe(patches[:0], model, engine=engine).shape == (0, 128)


def test_a_weight_too_large_for_half_precision_is_refused():
    model = small(d=8)
    with torch.no_grad():
        next(model.parameters()).mul_(1e8)
    with refuses(ArgumentError):
        CudaHalfEngine(model, 32, CPU)


@NEEDS_GPU
def test_an_engine_is_made_again_when_the_weights_change():
    device = torch.device("cuda", 0)
    model = small(d=8).to(device)
    engine = open_cuda_half(model, 32, device)
    assert open_cuda_half(model, 32, device) is engine
    assert open_cuda_half(copy.deepcopy(model), 32, device) is not engine
    with torch.no_grad():
        next(model.parameters()).mul_(2)
    assert open_cuda_half(model, 32, device) is not engine


@NEEDS_GPU
@pytest.mark.parametrize("kind", [np.uint8, np.float64])
def test_pieces_through_pinned_memory_are_those_of_a_plain_transfer(kind):
    """More pieces than are on their way at once; the source is read-only, with strides of its own."""
    device, step, count = torch.device("cuda", 0), 3, 3 * (PIECES + 4) + 1
    patches = np.random.default_rng(0).integers(0, 255, (count, 8, 8)).astype(kind)[:, ::-1]
    patches.setflags(write=False)
    rows, valid = np.zeros((count, 2), np.float32), np.zeros(count, bool)
    transfer = PinnedTransfer(patches, rows, valid, device, torch.float32)
    for start in range(0, count, step):
        piece = transfer.upload(start, start + step)
        assert piece.dtype == (torch.uint8 if kind is np.uint8 else torch.float32)
        flat = piece.flatten(1).float()
        transfer.download(start, torch.stack([flat.sum(1), flat[:, 0]], 1), flat[:, 0] > 99)
    transfer.finish()
    assert np.array_equal(rows, np.stack([patches.sum((1, 2)), patches[:, 0, 0]], 1))
    assert np.array_equal(valid, patches[:, 0, 0] > 99)
