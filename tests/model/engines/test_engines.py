import pickle
import sys
import threading

import numpy as np
import pytest
import torch
from helpers import refuses

import matchkernel
from matchkernel.errors import ArgumentError, MissingExtraError
from matchkernel.model.describe import describe_file
from matchkernel.model.engines.choose import open_engine
from matchkernel.photos.extract import open_describer


def small(variant="cartesian", **settings):
    return matchkernel.build(variant, generator=torch.Generator().manual_seed(0), **settings)


def with_a_sigmoid():
    model = small(d=8).fold()
    model.backbones[0].layers.append(torch.nn.Sigmoid())
    return model


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_the_contract_of_describe_holds_for_every_engine(engine, textures, trained_like):
    model = trained_like(small(d=8))
    patches = textures(6).numpy()
    clean = matchkernel.describe(patches, model, engine=engine)
    patches[1], patches[3, 0, 4, 4], patches[4, 0, 0, 0] = 7, np.nan, np.inf
    rows, valid = matchkernel.describe(patches, model, engine=engine, return_valid=True)
    assert valid.tolist() == [True, False, True, False, False, True]
    assert not rows[~valid].any()
    assert np.array_equal(rows[valid], clean[valid])
    assert matchkernel.describe(patches[:0], model, engine=engine).shape == (0, 128)
    one_by_one = matchkernel.describe(patches, model, engine=engine, batch_size=1)
    assert np.abs(one_by_one - rows).max() < 1e-6
    large = np.kron(clean_patches := textures(3).numpy(), np.ones((2, 2), np.float32))
    resized = matchkernel.describe(large, model, engine=engine, resize=True)
    assert np.abs(resized - matchkernel.describe(clean_patches, model, engine=engine)).max() < 1e-5
    as_they_are = matchkernel.describe(large, model, engine=engine)
    assert np.abs(as_they_are - matchkernel.describe(large, model)).max() < 2e-6


def test_an_engine_opened_once(textures, trained_like, tmp_path):
    model = trained_like(small(d=8))
    patches = textures(5).numpy()
    engine = open_engine(model, "onnx", size=32)
    expected = matchkernel.describe(patches, model, engine="onnx")
    assert np.array_equal(matchkernel.describe(patches, model, engine=engine), expected)
    with refuses(ArgumentError):
        matchkernel.describe(textures(2, 64), model, engine=engine)
    describe_file(patches, model, tmp_path / "rows.npy", engine="onnx")
    assert np.array_equal(np.load(tmp_path / "rows.npy"), expected)
    again = pickle.loads(pickle.dumps(engine))  # as a process pool sends it
    assert np.array_equal(matchkernel.describe(patches, model, engine=again), expected)


def test_an_engine_is_kept_as_long_as_the_weights_are_the_same(textures):
    model, patches = small(d=8), textures(3).numpy()
    first, again = (open_engine(model, "onnx") for _ in range(2))
    assert first is again
    with torch.no_grad():
        next(model.parameters()).data[0].neg_()  # which leaves the version that torch counts as it was
    changed = open_engine(model, "onnx")
    assert changed is not first
    rows = [matchkernel.describe(patches, model, engine=engine) for engine in (changed, "onnx", first)]
    assert np.array_equal(rows[0], rows[1])
    assert not np.array_equal(rows[0], rows[2])


def test_pieces_are_described_in_as_many_threads_as_torch_has(textures, monkeypatch):
    model, patches, used = small(d=8), textures(40), []
    engine = open_engine(model, "onnx")
    assert engine.session.get_session_options().intra_op_num_threads == 1
    expected = matchkernel.describe(patches, model, engine=engine, batch_size=4)
    run = engine.session.run

    class Session:
        def run(self, *arguments):
            used.append(threading.get_ident())
            return run(*arguments)

    engine.session = Session()
    torch.set_num_threads(2)
    try:
        with torch.inference_mode():  # belongs to a thread
            rows = matchkernel.describe(patches, model, engine=engine, batch_size=4)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(rows, expected)
    assert len(used) == 10
    assert threading.get_ident() not in used


@pytest.mark.parametrize("model", [small(d=8).double(), with_a_sigmoid()], ids=["float64", "other layers"])
def test_onnx_refuses_models_that_it_cannot_compute(model, textures):
    with refuses(ArgumentError):
        matchkernel.describe(textures(2), model, engine="onnx")


def test_auto_takes_onnx_and_falls_back_to_torch(textures):
    exact = small(d=8).double()
    onnx, only_torch = (small(d=8), small(d=8).half(), small(d=8).fold()), (exact, exact.fold(), with_a_sigmoid())
    for model in (*onnx, *only_torch):
        assert open_engine(model, "auto").name == ("torch" if model in only_torch else "onnx")
        rows = matchkernel.describe(textures(2), model, engine="auto")
        assert (rows - matchkernel.describe(textures(2), model)).abs().max() < (2e-6 if model in onnx else 1e-15)


def test_without_onnxruntime(monkeypatch, textures):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert open_engine(matchkernel.load("light"), "auto").name == "torch"
    for model, engine in ((small(d=8), "onnx"), (matchkernel.load("light"), "onnx-int8")):
        with refuses(MissingExtraError):
            matchkernel.describe(textures(2), model, engine=engine)


def test_describers_say_which_engine_they_use():
    assert open_describer("cartesian", untrained=True, engine="torch").settings["engine"] == "torch"
    described = open_describer("cartesian", untrained=True)
    assert described.settings["engine"] == "onnx"
    assert described.label == "cartesian, untrained, onnx"
    assert open_describer(described, engine="onnx") is open_describer(described) is described
    with refuses(ArgumentError):
        open_describer(described, engine="torch")
    with refuses(ArgumentError):
        open_describer("rootsift", engine="fastest")


def test_what_int8_would_clip_is_seen_on_a_large_offset():
    """Squares of the values would cancel."""
    patches = (20000 + np.random.default_rng(0).integers(0, 4, (50, 32, 32))).astype(np.uint16)
    patches[:, 10, 10] += 100
    model = matchkernel.load("light")
    exact, rows = (matchkernel.describe(patches, model, engine=engine) for engine in ("torch", "onnx-int8"))
    assert (exact * rows).sum(1).min() > 0.999
