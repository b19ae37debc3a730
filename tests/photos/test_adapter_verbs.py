"""`matchkernel colmap` and `matchkernel export`, as typed."""

import json
import shutil

import onnxruntime
import pytest
import torch
from helpers import needs_colmap
from typer.testing import CliRunner

import matchkernel
from matchkernel.cli.app import app

run = CliRunner().invoke


def test_export_writes_a_file_that_runs_and_says_how_close_it_is(tmp_path, trained_like):
    model = trained_like(matchkernel.build("sum"))
    matchkernel.save(model, tmp_path / "w.safetensors", {"licence": "CC0"})
    done = run(app, ["export", str(tmp_path / "w.safetensors"), "-o", str(tmp_path / "m.onnx"), "--patch-size", "16"])
    assert done.exit_code == 0, done.output
    assert "16 px patches, 128 numbers each" in done.stderr
    assert "at batch 7" in done.stderr
    session = onnxruntime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    words = session.get_modelmeta().custom_metadata_map
    assert words["licence"] == "CC0"
    assert len(words["weights_sha256"]) == 64
    patches = torch.rand(3, 1, 16, 16)
    rows = torch.from_numpy(session.run(None, {"patches": patches.numpy()})[0])
    assert torch.allclose(rows, model(patches), atol=1e-5)


@pytest.mark.parametrize(
    "arguments",
    [
        ["export", "nosuch", "-o", "m.onnx"],
        ["export", "fc", "--untrained", "-o", "m.onnx", "--patch-size", "64"],
        ["export", "sum", "--untrained", "-o", "m.pt"],
        ["colmap", "absent", "-o", "ws", "--model", "rootsift"],
        ["colmap", ".", "-o", "../ws", "--model", "rootsift"],
        ["colmap", ".", "-o", "ws", "--model", "rootsift"],
        ["colmap", ".", "-o", "ws", "--model", "nosuch"],
    ],
)
def test_mistakes_are_one_line_and_exit_2(arguments, tmp_path, monkeypatch):
    if arguments[0] == "colmap" and shutil.which("colmap") is None:
        pytest.skip("COLMAP is not installed (apt-get install colmap)")
    monkeypatch.chdir(tmp_path)
    done = run(app, arguments)
    assert done.exit_code == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
@needs_colmap
def test_colmap_reconstructs_a_folder(rendered, tmp_path):
    arguments = ["colmap", str(rendered / "images"), "-o", str(tmp_path / "ws"), "--keypoints", "500"]
    done = run(app, [*arguments, "--model", "rootsift", "--json"])
    assert done.exit_code == 0, done.output
    assert "6 of 6 images" in done.stderr
    found = json.loads(done.stdout)
    assert (found["registered"], found["on"]) == (6, "local")
    assert found["images_per_second"] == pytest.approx(6 / found["elapsed"], rel=0.01)
    assert run(app, [*arguments, "--model", "rootsift"]).exit_code == 0  # nothing is new
    again = run(app, [*arguments, "--model", "sift"])
    assert again.exit_code == 2
    assert "already exists" in again.stderr
