"""Files of engines: only those made from exactly these weights are used."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from helpers import refuses
from hypothesis import given
from hypothesis import strategies as st

import matchkernel
from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WeightsError
from matchkernel.model.engines.choose import open_engine
from matchkernel.model.weights import state_digest, weights_of
from matchkernel.photos.adapters.onnx import export_onnx
from matchkernel.runtime import graph
from matchkernel.runtime.config import VARIANTS
from matchkernel.runtime.graph import Ranges
from matchkernel.runtime.onnx import open_onnx, ranges_file
from matchkernel.runtime.weights import available, read_weights


@pytest.fixture(scope="module")
def model():
    return matchkernel.build("cartesian", d=4, D=8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(model, path)
    return path


def test_a_file_is_an_engine(model, exported, textures):
    engine = open_engine(model, str(exported))
    assert engine.name == "onnx"
    assert len(engine.settings["engine_sha256"]) == 64
    rows = matchkernel.describe(textures(3), model, engine=str(exported))
    assert (rows - matchkernel.describe(textures(3), model)).abs().max() < 2e-6


def test_a_file_of_other_weights_or_another_size_is_refused(model, exported, textures):
    other = matchkernel.build("cartesian", d=4, D=8, generator=torch.Generator().manual_seed(1))
    with refuses(ArgumentError):
        matchkernel.describe(textures(3), other, engine=str(exported))
    with refuses(ArgumentError):
        matchkernel.describe(textures(3, 64), model, engine=str(exported))


def foreign(_):
    """A working ONNX file of another program."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Relu", ["x"], ["y"])
    shapes = [helper.make_tensor_value_info(name, kind, ["n"]) for name in "xy"]
    graph = helper.make_graph([node], "g", shapes[:1], shapes[1:])
    return helper.make_model(graph, ir_version=10, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda content: b"", WeightsError),
        (lambda content: b"PK\x03\x04 a zip", WeightsError),
        (foreign, ArgumentError),
        (lambda content: content[: len(content) // 2], WeightsError),
        (lambda content: content.replace(b"Conv", b"Xonv"), WeightsError),
    ],
    ids=["empty", "a zip", "of another program", "cut", "an unknown operator"],
)
def test_a_file_that_is_not_an_engine_is_refused(change, error, model, exported, tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(change(exported.read_bytes()))
    with refuses(error):
        open_engine(model, str(path))
    with refuses(FileError):
        open_engine(model, str(tmp_path / "none.onnx"))


def test_files_of_earlier_versions_keep_the_digest_that_they_record(model, exported, tmp_path):
    file = onnx.load(exported)
    onnx.helper.set_model_props(file, {**{e.key: e.value for e in file.metadata_props}, "content_sha256": "12ab"})
    onnx.save(file, tmp_path / "old.onnx")
    assert open_engine(model, str(tmp_path / "old.onnx")).settings["engine_sha256"] == "12ab"


@given(st.binary(max_size=300))
def test_only_our_errors_come_out_of_any_bytes(model, tmp_path_factory, content):
    path = tmp_path_factory.getbasetemp() / "any.onnx"
    path.write_bytes(content)
    with pytest.raises(MatchKernelError):
        open_onnx(weights_of(model), str(path), 32)
    with pytest.raises(FileError):
        Ranges.read(path)


@pytest.mark.parametrize("name", available())
def test_every_shipped_model_has_int8_ranges_of_its_weights(name, textures):
    """Measured: mean cosine 0.999 on photos; textures are smoother."""
    model = matchkernel.load(name)
    engine = open_engine(model, "auto")
    assert engine.name == "onnx-int8"
    ranges = Ranges.read(ranges_file(name))
    assert ranges.state_sha256 == state_digest(model)
    assert engine.settings == {"engine": "onnx-int8", "engine_sha256": ranges.sha256}
    assert ranges.calibrated_on
    assert set(ranges.calibrated_on) <= set(dict(model.card.training_sets))
    patches = textures(32)
    assert (torch.from_numpy(engine(patches)) * matchkernel.describe(patches, model)).sum(1).min() > 0.995
    if VARIANTS[model.config.variant].any_size:
        assert open_engine(model, "auto", size=64).name == "onnx"  # the ranges are for 32 px


@given(st.data())
def test_only_our_errors_come_out_of_changed_ranges(tmp_path_factory, data):
    text = ranges_file(available()[0]).read_text()
    place = data.draw(st.integers(0, len(text) - 1))
    character = data.draw(st.sampled_from('0123456789.,:e-"[]{} abc'))
    text = text[:place] if data.draw(st.booleans()) else text[:place] + character + text[place + 1 :]
    path = tmp_path_factory.getbasetemp() / "changed.int8.json"
    path.write_text(text)
    try:
        found = Ranges.read(path)
    except WeightsError as error:
        assert "\n" not in str(error)  # noqa: PT017 - the other outcome is possible too
    else:
        assert found == Ranges.read(ranges_file(available()[0]))  # another blank, or the same character


def test_changed_weights_do_not_use_the_int8_file(textures):
    model = matchkernel.load("light")
    with torch.no_grad():
        next(model.parameters())[0] += 1e-3
    assert open_engine(model, "auto").name == "onnx"
    with refuses(ArgumentError):
        open_engine(model, "onnx-int8")


def test_damaged_ranges_are_one_line_if_named_and_passed_over_by_auto(tmp_path, monkeypatch, textures):
    content = json.loads(ranges_file("light").read_text())
    content["limits"]["patches"] *= 2
    (tmp_path / "light.int8.json").write_text(json.dumps(content))
    monkeypatch.setattr("matchkernel.runtime.onnx.SHIPPED", tmp_path)
    model = matchkernel.load("light")
    with refuses(WeightsError):
        open_engine(model, "onnx-int8")
    assert open_engine(model, "auto").name == "onnx"


def _rows_of(D, value=None):
    """An ONNX file that computes D numbers per patch, all of them `value` if that is given."""
    made = graph.Graph()
    flat = made.add("Reshape", [graph.INPUT, made.constant("flat_shape", [-1, 1024], np.int64)], "flat")
    matrix = np.random.default_rng(0).normal(size=(1024, D)) if value is None else np.full((1024, D), value)
    graph._unit_rows(made, made.add("MatMul", [flat, made.constant("M", matrix)], "rows"), graph.OUTPUT)
    weights = read_weights("tiny")
    facts = {"state_sha256": weights.state_sha256, "patch_size": "32"}
    shapes = {graph.INPUT: ("batch", 1, 32, 32)}, {graph.OUTPUT: ("batch", D)}
    return lambda more: graph.onnx_file(made, *shapes, {**facts, **more})


@pytest.mark.parametrize(
    "content",
    [
        _rows_of(128)({"engine": "\x1b[2Jfastest"}),
        _rows_of(64)({}),
        _rows_of(128, np.nan)({}),
        _rows_of(128)({"engine": "onnx"}).replace(b"patches", b"patchez"),
    ],
    ids=["engine", "64 columns", "NaN", "names"],
)
def test_a_file_that_claims_these_weights_but_computes_other_rows_is_refused(content, tmp_path):
    (tmp_path / "x.onnx").write_bytes(content)
    with refuses(WeightsError):
        open_onnx(read_weights("tiny"), str(tmp_path / "x.onnx"), 32)
    (tmp_path / "good.onnx").write_bytes(_rows_of(128)({}))
    assert open_onnx(read_weights("tiny"), str(tmp_path / "good.onnx"), 32).name == "onnx"


def test_tensors_in_other_files_of_the_working_directory_are_not_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("tensors.bin").write_bytes(bytes(2**20))
    model = onnx.load_from_string(_rows_of(128)({}))
    (tensor,) = (one for one in model.graph.initializer if one.name == "M")
    onnx.external_data_helper.set_external_data(tensor, "tensors.bin")
    tensor.ClearField("raw_data")
    tensor.data_location = onnx.TensorProto.EXTERNAL
    Path("x.onnx").write_bytes(model.SerializeToString())
    with pytest.raises(WeightsError, match="External data"):
        open_onnx(read_weights("tiny"), "x.onnx", 32)
