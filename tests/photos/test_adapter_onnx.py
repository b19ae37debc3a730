import json
import sys

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from helpers import refuses, trained_like

import matchkernel
from matchkernel.errors import ArgumentError, ArgumentTypeError, FileError, MissingExtraError, WorkError
from matchkernel.photos.adapters.onnx import compare, export_onnx


def small(variant="cartesian", **settings):
    return matchkernel.build(variant, generator=torch.Generator().manual_seed(0), **settings)


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A trained-looking `combined` at another size than its own, its file, and what export_onnx said."""
    model = trained_like(small("combined", s=1))
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    return model, path, export_onnx(model, path, patch_size=48, card={"licence": "CC0", "config": "not this one"})


@pytest.mark.parametrize("batch", [0, 1, 7, 100])
def test_the_file_equals_torch_at_any_batch(exported, textures, batch):
    """Measured: 2e-7, float32 rounding after six convolutions; textures are smooth, unlike the noise of the check."""
    model, path, _ = exported
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    patches = textures(batch, 48) if batch else torch.zeros(0, 1, 48, 48)
    rows = session.run(["descriptors"], {"patches": patches.numpy()})[0]
    assert rows.shape == (batch, 128)
    assert rows.dtype == np.float32
    assert np.abs(rows - model(patches).detach().numpy()).max(initial=0) < 1e-5


def test_weights_that_are_not_numbers_are_not_exported(tmp_path):
    model = small("sum", d=4)
    with torch.no_grad():
        next(model.parameters()).fill_(torch.nan)
    with refuses(WorkError):
        export_onnx(model, tmp_path / "nan.onnx")
    assert not list(tmp_path.iterdir())


def test_the_model_stays_as_it_was(tmp_path):
    model = small("sum", d=4).double().train()
    export_onnx(model, tmp_path / "model.onnx")
    assert model.training
    assert not model.is_folded
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float64}


def test_the_file_says_what_it_is(exported):
    model, path, export = exported
    words = {entry.key: entry.value for entry in onnx.load(path).metadata_props}
    assert json.loads(words["config"]) == {**model.config.to_dict(), "patch_size": 48}
    assert words["patch_size"] == "48"
    assert words["licence"] == "CC0"
    assert "mean" in words["normalization"]
    assert list(export.differences) == [0, 1, 7]
    assert max(export.differences.values()) < 1e-5
    assert (export.patch_size, export.D) == (48, 128)
    assert [entry.name for entry in path.parent.iterdir()] == ["model.onnx"]  # one file, no external data, no remains


@pytest.mark.slow
@pytest.mark.parametrize("variant", list(matchkernel.VARIANTS))
def test_every_descriptor_can_be_exported(variant, tmp_path, trained_like):
    export = export_onnx(trained_like(small(variant)), tmp_path / f"{variant}.onnx")
    assert max(export.differences.values()) < 1e-5


def test_a_file_that_differs_is_not_kept(exported, tmp_path, monkeypatch):
    """The real check against a limit nothing can meet: the old file stays and nothing is left beside it."""
    monkeypatch.setattr("matchkernel.photos.adapters.onnx.LARGEST_DIFFERENCE", -1.0)
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")
    with refuses(WorkError):
        export_onnx(small("sum"), path)
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_the_comparison_sees_another_models_weights(exported):
    session = onnxruntime.InferenceSession(str(exported[1]), providers=["CPUExecutionProvider"])
    assert max(compare(exported[0], session, 48).values()) < 1e-5
    assert max(compare(small("combined", s=1).eval(), session, 48).values()) > 1e-2


REFUSED = {
    "another suffix": ("cartesian", "model.pt", None, ArgumentError),
    "a name instead of a model": (None, "model.onnx", None, ArgumentTypeError),
    "a size that fc does not have": ("fc", "model.onnx", 64, ArgumentError),
    "a size that is no multiple": ("cartesian", "model.onnx", 30, ArgumentError),
    "a file as a folder": ("cartesian", "file/model.onnx", None, FileError),
}


@pytest.mark.parametrize(("variant", "name", "size", "error"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_exported_is_refused(variant, name, size, error, tmp_path):
    (tmp_path / "file").touch()
    with refuses(error):
        export_onnx(small(variant) if variant else "tiny", tmp_path / name, patch_size=size)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)  # only the tests need it
    export_onnx(small(), tmp_path / "model.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with refuses(MissingExtraError):
        export_onnx(small(), tmp_path / "model.onnx")
