"""Weights read and folded by numpy: the tensors and the rows of the module of torch."""

from itertools import chain

import numpy as np
import onnx
import pytest
import torch
from helpers import trained_like
from PIL import Image

from matchkernel.model.descriptors import build
from matchkernel.model.engines.choose import folded_network
from matchkernel.model.weights import load, save, state_digest, weights_of
from matchkernel.runtime.config import VARIANTS
from matchkernel.runtime.graph import Limits, descriptor_file
from matchkernel.runtime.onnx import OnnxEngine
from matchkernel.runtime.weights import fold, read_weights

SETTINGS = [
    *({"variant": variant} for variant in VARIANTS),
    *({"variant": variant, "patch_size": 64} for variant in VARIANTS),
    {"variant": "cartesian", "s": 0, "grid": "fields", "output_norm": "none"},
    {"variant": "polar", "s": 3, "center_weight": False, "grid": "endpoints", "D": 5},
    {"variant": "combined", "s": 1, "encoding_norm": True, "widths": (4, 6), "halvings": (1, 2)},
    {"variant": "dual", "encoding_norm": True, "output_norm": "none", "widths": (4,), "halvings": (1, 2)},
    {"variant": "dual", "kappa_polar": 3.0, "widths": (4, 8, 4), "halvings": (2, 4)},
    {"variant": "fc", "output_norm": "none", "D": 7, "widths": (4, 6), "halvings": (2, 3)},
    {"variant": "sum", "output_norm": "batch"},
    {"variant": "concat", "output_norm": "batch", "patch_size": 64},
]


def named(settings):
    return "-".join(str(value).replace(" ", "") for value in settings.values())


def made(d=6, **settings):
    return trained_like(build(d=d, generator=torch.Generator().manual_seed(0), **settings))


def float_engine(network):
    return OnnxEngine(descriptor_file(network, {}), network.size, "onnx", "test")


def real_patches(photo, size):
    with Image.open(photo) as image:
        gray = np.asarray(image.convert("L"), np.float32)
    return np.stack([gray[top : top + size, top : top + size] for top in range(0, 210, 30)])[:, None]


@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_shapes_are_those_of_the_state_dict_in_its_order(settings):
    model = made(**settings)
    state = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    assert list(model.config.tensor_shapes.items()) == list(state.items())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_a_saved_file_gives_the_rows_of_the_module(settings, dtype, photos_cc0, tmp_path):
    """Measured: 2e-6, rounding of float32; the module of torch is neither folded nor rounded once more."""
    model = made(**settings).to(dtype)
    save(model, tmp_path / "w.safetensors")
    weights, module = read_weights(tmp_path / "w.safetensors"), load(tmp_path / "w.safetensors").float()
    assert weights.state_sha256 == weights_of(model).state_sha256 == state_digest(model)
    size = model.config.patch_size
    engine = float_engine(fold(weights, size))
    noise = np.random.default_rng(0).normal(50, 20, (7, 1, size, size)).astype(np.float32)
    for patches in (noise, real_patches(photos_cc0 / "images" / "005.jpg", size)):
        with torch.no_grad():
            expected = module(torch.from_numpy(patches)).numpy()
        for count in (0, 1, 7):
            rows = engine(patches[:count])
            assert rows.shape == (count, model.config.D)
            assert np.abs(rows - expected[:count]).max(initial=0) < 1e-5


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_folded_module_becomes_the_same_network(variant):
    model = made(variant=variant, **({} if VARIANTS[variant].projects else {"output_norm": "batch"}))
    one, other = folded_network(model, 32), folded_network(model.fold(), 32)
    for ours, theirs in zip(*(chain(*network.networks) for network in (one, other)), strict=True):
        assert ours.stride == theirs.stride
        assert np.allclose(ours.weight, theirs.weight, rtol=1e-6, atol=1e-8)
        assert np.allclose(ours.bias, theirs.bias, rtol=1e-6, atol=1e-7)
    for ours, theirs in ((one.projection, other.projection), (one.scale_and_shift, other.scale_and_shift)):
        assert (ours is None) == (theirs is None)
        assert all(np.allclose(*pair, rtol=1e-5, atol=1e-6) for pair in zip(ours or (), theirs or (), strict=True))


@pytest.mark.parametrize("int8", [False, True])
@pytest.mark.parametrize("settings", SETTINGS, ids=named)
def test_the_checker_of_onnx_accepts_every_file(settings, int8):
    model = made(**settings)
    network = folded_network(model, model.config.patch_size)
    metadata = {"licence": "CC0", "Größe": "32 px ✓", "empty": ""}
    limits = Limits(5.0, [[8.0] * len(layers) for layers in network.networks])
    file = onnx.load_from_string(descriptor_file(network, metadata, limits if int8 else None))
    onnx.checker.check_model(file, full_check=True)
    assert {entry.key: entry.value for entry in file.metadata_props} == metadata
    assert [entry.op_type for entry in file.graph.node].count("Conv") == sum(map(len, network.networks))
    sides = [[side.dim_param or side.dim_value for side in value.type.tensor_type.shape.dim]
             for value in (*file.graph.input, *file.graph.output)]  # fmt: skip
    assert sides == [["batch", 1, network.size, network.size], ["batch", model.config.D]]
    constants = {entry.name: onnx.numpy_helper.to_array(entry) for entry in file.graph.initializer}
    if network.projection:
        assert np.array_equal(constants["M"], network.projection[0].T)
        assert np.array_equal(constants["m"], network.projection[1])
    for k, layers in enumerate(network.networks):
        for number, layer in enumerate(layers):
            assert constants[f"network{k}.{number}.weight"].dtype == (np.int8 if int8 else np.float32)
            assert int8 or np.array_equal(constants[f"network{k}.{number}.weight"], layer.weight)
