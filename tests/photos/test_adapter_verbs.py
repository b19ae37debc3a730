"""`matchkernel colmap` and `matchkernel export`, as typed."""

import json

import onnxruntime
import pytest
import torch
from commands import good, run
from helpers import needs_colmap

import matchkernel


def test_export_writes_a_file_that_runs_and_says_how_close_it_is(tmp_path, trained_like):
    model = trained_like(matchkernel.build("sum"))
    matchkernel.save(model, tmp_path / "w.safetensors", {"licence": "CC0"})
    done = good("export", tmp_path / "w.safetensors", "-o", tmp_path / "m.onnx", "--patch-size", 16)
    assert "16 px patches, 128 numbers each" in done.stderr
    assert "at batch 7" in done.stderr
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    words = session.get_modelmeta().custom_metadata_map
    assert words["licence"] == "CC0"
    assert len(words["weights_sha256"]) == 64
    patches = torch.rand(3, 1, 16, 16)
    rows = torch.from_numpy(session.run(None, {"patches": patches.numpy()})[0])
    assert torch.allclose(rows, model(patches), atol=1e-5)


@pytest.mark.slow
@needs_colmap
def test_colmap_reconstructs_a_folder(rendered, tmp_path):
    arguments = ("colmap", rendered / "images", "-o", tmp_path / "ws", "--keypoints", 500)
    done = good(*arguments, "--model", "rootsift", "--json")
    assert "6 of 6 images" in done.stderr
    found = json.loads(done.stdout)
    assert (found["registered"], found["on"]) == (6, "local")
    assert found["images_per_second"] == pytest.approx(6 / found["elapsed"], rel=0.01)
    good(*arguments, "--model", "rootsift")  # nothing is new
    again = run(*arguments, "--model", "sift")
    assert again.exit_code == 2
    assert "already exists" in again.stderr
