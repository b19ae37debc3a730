"""--engine, as a user meets it: chosen, named in every output, and never mixed."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from commands import good, run

from matchkernel.photos.features import load_features, save_features


def test_match_names_its_engine(photos):
    words = ("match", "photos/0.png", "photos/1.png", "--keypoints", 20, "--json")
    for engine, name in (((), "onnx-int8"), (("--engine", "torch"), "torch"), (("--engine", "onnx"), "onnx")):
        result = good(*words, "--model", "light", *engine)
        assert json.loads(result.stdout)["engine"] == name
        assert json.loads(result.stdout)["descriptor"] == "light"
        assert f"(light, {name})" in result.stderr
    result = good(*words, "--model", "rootsift")
    assert json.loads(result.stdout)["engine"] is None
    assert "(rootsift)" in result.stderr


def test_describe_names_its_engine(photos):
    np.save("patches.npy", np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8))
    rows = {}
    for engine in ("auto", "torch", "onnx", "onnx-int8"):
        result = good("describe", "patches.npy", "-o", "rows.npy", "--model", "light", "--engine", engine, "--json")
        rows[json.loads(result.stdout)["engine"]] = np.load("rows.npy")
        assert f"(weights light, {'onnx-int8' if engine == 'auto' else engine})" in result.stderr
    assert np.abs(rows["torch"] - rows["onnx"]).max() < 2e-6
    assert not np.array_equal(rows["torch"], rows["onnx-int8"])
    assert (rows["torch"] * rows["onnx-int8"]).sum(1).min() > 0.98  # noise, unlike what it was calibrated on


def test_extract_does_not_mix_engines(photos):
    words = ("extract", "photos", "-o", "rows", "--model", "light", "--keypoints", 10)
    result = good(*words)
    assert "30 keypoints (light, onnx-int8)" in result.stderr
    assert load_features("rows/0.png.npz").settings["engine"] == "onnx-int8"
    other = run(*words, "--engine", "torch")
    assert other.exit_code == 2
    assert "made with engine 'onnx-int8', now 'torch'; use --engine onnx-int8, remove them" in other.stderr
    assert other.stderr.count("\n") == 1
    another = run(*words[:-3], "rootsift", "--keypoints", 10)  # with which no engine would help
    assert "'rootsift'" in another.stderr
    assert "use --engine" not in another.stderr
    assert "0 images done, 3 already there" in good(*words, "--engine", "onnx-int8").stderr


def test_features_from_before_there_were_engines_are_those_of_torch(photos):
    words = ("extract", "photos", "-o", "rows", "--model", "light", "--keypoints", 10)
    good(*words, "--engine", "torch")
    for path in Path("rows").iterdir():
        features = load_features(path)
        old = {key: value for key, value in features.settings.items() if key != "engine"}
        save_features(replace(features, settings=old), path)
    assert "0 images done, 3 already there" in good(*words, "--engine", "torch").stderr
    assert "now 'onnx-int8'" in run(*words).stderr


def test_a_mistake_is_one_line(photos, monkeypatch):
    words = ("match", "photos/0.png", "photos/1.png", "--model", "light")
    for engine, told in (
        ("fastest", "engine must be one of auto, torch, onnx, onnx-int8, cuda-half or an .onnx file"),
        ("none.onnx", "none.onnx: cannot be read"),
        ("cuda-half", "cuda-half"),
    ):
        result = run(*words, "--engine", engine, "--device", "cpu")
        assert result.exit_code == 2
        assert told in result.stderr
        assert result.stderr.count("\n") == 1
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    result = run(*words, "--engine", "onnx-int8")
    assert result.exit_code == 2
    assert "needs onnxruntime: pip install onnxruntime" in result.stderr
    assert "(light, torch)" in good(*words).stdout
