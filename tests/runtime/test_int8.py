import pickle

import numpy as np
import onnx
import pytest
import torch
from helpers import refuses, trained_like

import matchkernel
from matchkernel.errors import ArgumentError
from matchkernel.model.engines.calibrate import BINS, _best_limit, calibrate
from matchkernel.model.engines.choose import convolutions_of, folded_network
from matchkernel.runtime import graph
from matchkernel.runtime.graph import LARGEST_WEIGHT, Limits, descriptor_file
from matchkernel.runtime.onnx import OnnxEngine, open_onnx
from matchkernel.runtime.weights import read_weights


def made(variant="cartesian", **settings):
    return trained_like(matchkernel.build(variant, generator=torch.Generator().manual_seed(0), **settings)).fold()


def engine_of(model, limits, size=32, arm=False):
    return OnnxEngine(descriptor_file(folded_network(model, size), {}, limits, arm), size, "onnx-int8", "test")


@pytest.mark.parametrize("variant", ["dual", "fc", "sum"])
@pytest.mark.parametrize("size", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_int8_is_near_torch(variant, size, textures):
    """Measured: 0.9996 and more."""
    model = made(variant, d=16, patch_size=size, **({"encoding_norm": True} if variant == "dual" else {}))
    limits = calibrate(model, textures(24, size, seed=1))
    patches = textures(20, size)
    rows = engine_of(model, limits, size)(patches)
    assert rows.shape == (20, model.config.D)
    assert np.abs(np.linalg.norm(rows, axis=1) - 1).max() < 1e-6
    assert (rows * model(patches).detach().numpy()).sum(1).min() > 0.998
    assert engine_of(model, limits, size)(patches[:0]).shape == (0, model.config.D)


def test_the_first_convolution_over_rows_is_the_same_convolution(textures, monkeypatch):
    """Measured: 1e-4, from sums that lie between two whole numbers and are rounded differently after scaling."""
    model = made(d=16)
    limits = calibrate(model, textures(64, seed=1))
    over_rows = engine_of(model, limits)(textures(9))
    monkeypatch.setattr(graph, "WIDEST", 0)
    assert np.abs(over_rows - engine_of(model, limits)(textures(9))).max() < 1e-3


@pytest.mark.parametrize(("size", "halvings"), [(32, [3, 5]), (32, [1, 2]), (36, [1, 2]), (64, [3, 5])])
def test_the_form_for_arm_has_the_same_rows(size, halvings, textures, monkeypatch):
    """Of bytes less 128 and of the first convolution by columns; measured: no difference."""
    model = made(d=16, halvings=halvings, patch_size=size)
    limits = calibrate(model, textures(64, size, seed=1))
    monkeypatch.setattr(graph, "WIDEST", 0)
    rows, wanted = (engine_of(model, limits, size, arm)(textures(9, size)) for arm in (True, False))
    assert np.abs(rows - wanted).max() < 1e-3
    assert (rows * model(textures(9, size)).detach().numpy()).sum(1).min() > 0.998


@pytest.mark.parametrize(
    ("machine", "kind"), [("aarch64", np.int8), ("ARM64", np.int8), ("x86_64", np.uint8), ("", np.uint8)]
)
def test_the_processor_decides_the_form(machine, kind, monkeypatch):
    monkeypatch.setattr("platform.machine", lambda: machine)
    proto = onnx.load_from_string(open_onnx(read_weights("tiny"), "onnx-int8", 32).content)
    zeros = {c.name: onnx.numpy_helper.to_array(c) for c in proto.graph.initializer if c.name.endswith("out.zero")}
    assert len(zeros) == 4
    assert all(zero.dtype == kind and zero == np.iinfo(kind).min for zero in zeros.values())


def test_weights_leave_a_bit_for_processors_that_add_in_16_bits():
    model = made(d=16)
    limits = Limits(5.0, ((8.0,) * len(convolutions_of(model.backbones[0])),))
    proto = onnx.load_from_string(descriptor_file(folded_network(model, 32), {}, limits))
    found = {c.name: onnx.numpy_helper.to_array(c) for c in proto.graph.initializer if c.name.endswith(".weight")}
    assert len(found) == 6
    for weight in found.values():
        assert weight.dtype == np.int8
        assert np.abs(weight.astype(int)).reshape(len(weight), -1).max(1).tolist() == [LARGEST_WEIGHT] * len(weight)
    assert 2 * 255 * LARGEST_WEIGHT < 2**15


def test_limits_are_those_that_lose_the_least():
    """One high peak among many small values is cut off; without it, the whole range is used."""
    counts = np.zeros(BINS)
    counts[:400] = 1e6
    assert _best_limit(1.0, counts, 255) == pytest.approx(0.2)
    counts[-1] = 1
    assert _best_limit(1.0, counts, 255) < 0.5
    assert _best_limit(2.0, np.ones(BINS), 255) == pytest.approx(2.0, rel=0.02)


def test_calibration_depends_on_the_patches_only(textures):
    model = made(d=16)
    patches = textures(70, seed=1)
    limits = calibrate(model, patches)
    assert calibrate(model, patches) == limits
    assert calibrate(model, 3 * patches + 7).patches == pytest.approx(limits.patches, rel=1e-3)
    assert len(limits.layers) == 1
    assert all(limit > 0 for limit in limits.layers[0])


def test_other_networks_are_refused(textures):
    model = made(d=16)
    model.backbones[0].layers.append(torch.nn.Sigmoid())
    with refuses(ArgumentError):
        calibrate(model, textures(4))


@pytest.mark.parametrize("name", ["light-wide", "dual"])
def test_a_bright_pixel_line_or_corner_is_not_clipped(name):
    """Patches that int8 would clip are described in float32. Measured: 0.92 and more; clipped, 0.59."""
    weights, patches = read_weights(name), np.zeros((40, 1, 32, 32), np.float32)
    for k in range(1, 9):
        for number, (rows, columns) in enumerate(((k, k), (32, k), (k, 32), (3, k), (k, 1))):
            patches[5 * k + number - 5, 0, :rows, 7 : 7 + columns] = 255
    int8, exact = (open_onnx(weights, engine, 32) for engine in ("onnx-int8", "onnx"))
    assert (int8(patches) * exact(patches)).sum(1).min() > 0.9
    single = int8(patches[:1]) - exact(patches[:1])
    assert np.abs(single).max() < 1e-5
    assert (pickle.loads(pickle.dumps(int8))(patches) == int8(patches)).all()
