"""ONNX files given as engines: only whole ones, made from exactly these weights, are used."""

import gzip

import onnx
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import matchkernel
from matchkernel.errors import ArgumentError, FileError, MatchKernelError, WeightsError
from matchkernel.model.card import SHIPPED, available
from matchkernel.model.engines.choose import open_engine
from matchkernel.model.engines.onnx_engine import open_file, read_onnx
from matchkernel.model.weights import state_digest
from matchkernel.photos.adapters.onnx import export_onnx


@pytest.fixture(scope="module")
def model():
    return matchkernel.build("cartesian", d=4, D=8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def exported(model, tmp_path_factory):
    path = tmp_path_factory.mktemp("onnx") / "model.onnx"
    export_onnx(model, path)
    return path


def test_a_file_is_an_engine(model, exported, textures, tmp_path):
    engine = open_engine(model, str(exported))
    assert engine.name == "onnx"
    assert len(engine.settings["engine_sha256"]) == 64
    rows = matchkernel.describe(textures(3), model, engine=str(exported))
    assert (rows - matchkernel.describe(textures(3), model)).abs().max() < 2e-6
    packed = tmp_path / "model.onnx.gz"
    packed.write_bytes(gzip.compress(exported.read_bytes()))
    assert open_engine(model, str(packed)).settings == engine.settings


def test_a_file_of_other_weights_or_another_size_is_refused(model, exported, textures):
    other = matchkernel.build("cartesian", d=4, D=8, generator=torch.Generator().manual_seed(1))
    with pytest.raises(ArgumentError, match="other weights than cartesian"):
        matchkernel.describe(textures(3), other, engine=str(exported))
    with pytest.raises(ArgumentError, match="patches of 32 px, got 64 px"):
        matchkernel.describe(textures(3, 64), model, engine=str(exported))


def foreign(content):
    """A working ONNX file of another program."""
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    node = helper.make_node("Relu", ["x"], ["y"])
    shapes = [helper.make_tensor_value_info(name, kind, ["n"]) for name in "xy"]
    return helper.make_model(helper.make_graph([node], "g", shapes[:1], shapes[1:])).SerializeToString()


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("model.onnx", lambda content: b"", "not an ONNX file"),
        ("model.onnx", lambda content: b"PK\x03\x04 a zip", "not an ONNX file"),
        ("model.onnx", foreign, "not an ONNX file that `matchkernel export` wrote"),
        ("model.onnx", lambda content: content[:-1], "damaged"),
        ("model.onnx", lambda content: content[: len(content) // 2], "damaged"),
        ("model.onnx", lambda content: content.replace(b"Conv", b"Xonv"), "damaged"),
        ("model.onnx.gz", lambda content: content, "not a gzip file"),
        ("model.onnx.gz", lambda content: gzip.compress(content)[:-9], "not a gzip file"),
    ],
)
def test_a_broken_file_is_one_line(name, change, message, model, exported, tmp_path):
    path = tmp_path / name
    path.write_bytes(change(exported.read_bytes()))
    with pytest.raises(WeightsError, match=message) as caught:
        open_engine(model, str(path))
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_one_line(model, tmp_path):
    with pytest.raises(FileError, match="No such file"):
        open_engine(model, str(tmp_path / "none.onnx"))


@settings(max_examples=60)
@given(st.data())
def test_only_our_errors_come_out_of_a_changed_file(model, exported, tmp_path_factory, data):
    """Whatever byte is changed, and wherever the file is cut, it is refused: there is no wrong descriptor."""
    content = bytearray(exported.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[place] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[place:]
    path = tmp_path_factory.getbasetemp() / "changed.onnx"
    path.write_bytes(content)
    with pytest.raises(MatchKernelError, match=r"changed\.onnx"):
        open_file(path, model, 32)


@settings(max_examples=60)
@given(st.binary(max_size=300))
def test_only_our_errors_come_out_of_any_bytes(model, tmp_path_factory, content):
    for name in ("any.onnx", "any.onnx.gz"):
        path = tmp_path_factory.getbasetemp() / name
        path.write_bytes(content)
        with pytest.raises(WeightsError):
            open_file(path, model, 32)


@pytest.mark.parametrize("name", available())
def test_every_shipped_model_has_an_int8_file_of_its_weights(name, textures):
    """Measured: mean cosine 0.999 on photos; textures are smoother."""
    model = matchkernel.load(name)
    engine = open_engine(model, "auto")
    assert engine.name == "onnx-int8"
    assert (SHIPPED / f"{name}.int8.onnx.gz").is_file()
    words = engine.session.get_modelmeta().custom_metadata_map
    assert words["state_sha256"] == state_digest(model)
    assert words["trained_on"] == model.card.trained_on
    assert "/tmp" not in "".join(words.values())
    patches = textures(32)
    rows = engine(patches)
    assert (rows * matchkernel.describe(patches, model)).sum(1).min() > 0.995
    assert open_engine(model, "auto", size=64 if name != "fc" else 32).name == (
        "torch" if name != "fc" else "onnx-int8"
    )


def test_changed_weights_do_not_use_the_int8_file(textures):
    model = matchkernel.load("light")
    with torch.no_grad():
        next(model.parameters())[0] += 1e-3
    assert open_engine(model, "auto").name == "torch"
    with pytest.raises(ArgumentError, match="made from other weights than light"):
        open_engine(model, "onnx-int8")


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("matchkernel.model.engines.onnx_engine.MAX_BYTES", 10_000)
    path = tmp_path / "bomb.onnx.gz"
    path.write_bytes(gzip.compress(bytes(1_000_000)))
    with pytest.raises(WeightsError, match=r"bomb\.onnx\.gz"):
        read_onnx(path)
