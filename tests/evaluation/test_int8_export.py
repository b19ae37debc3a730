"""int8 files: chosen on one half of the points, checked against torch on the other, kept only if they agree."""

import json

import onnx
import pytest
import torch
from helpers import refuses, trained_like
from typer.testing import CliRunner

import matchkernel
from matchkernel.cli.app import app
from matchkernel.data.patch_set import open_patch_set
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.evaluation import int8
from matchkernel.evaluation.int8 import calibrate_int8, export_int8


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "mine.safetensors"
    model = trained_like(matchkernel.build("cartesian", d=8, generator=torch.Generator().manual_seed(0)))
    matchkernel.save(model, path, {"licence": "CC0-1.0"})
    return path


def test_the_command_writes_an_engine_and_says_what_it_loses(patch_set, weights, tmp_path, textures):
    out = tmp_path / "mine.int8.onnx"
    words = ["export", str(weights), "-o", str(out), "--int8", "--calibrate", str(patch_set)]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert "int8 calibrated on 69 patches; cosine with torch " in done.stderr.replace("\n", " ")
    assert "on 69 patches of other points" in done.stderr.replace("\n", " ")
    metadata = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert metadata["engine"] == "onnx-int8"
    assert metadata["calibrated_on"] == "points"
    assert metadata["licence"] == "CC0-1.0"
    assert json.loads(metadata["config"])["patch_size"] == 32
    onnx.checker.check_model(onnx.load(out), full_check=True)
    model = matchkernel.load(weights)
    rows = matchkernel.describe(textures(9), model, engine=str(out))
    assert (rows * matchkernel.describe(textures(9), model)).sum(1).min() > 0.99


def test_the_same_sets_give_the_same_file(patch_set, weights, tmp_path):
    model, sets = matchkernel.load(weights), [open_patch_set(patch_set)]
    found = [export_int8(model, tmp_path / f"{k}.onnx", sets, patch_size=40) for k in range(2)]
    assert found[0] == found[1]
    assert (tmp_path / "0.onnx").read_bytes() == (tmp_path / "1.onnx").read_bytes()
    assert found[0].ranges.patch_size == 40
    assert found[0].cosine > 0.99
    assert abs(found[0].torch_map - found[0].int8_map) < 1


def test_a_file_that_is_far_off_is_not_kept(patch_set, weights, tmp_path, monkeypatch):
    """Limits of a thousandth cut off nearly everything; the old file stays."""
    real = int8.calibrate

    def wrong(model, patches):
        limits = real(model, patches)
        return type(limits)(limits.patches, tuple(tuple(v / 1000 for v in part) for part in limits.layers))

    monkeypatch.setattr(int8, "calibrate", wrong)
    out = tmp_path / "mine.onnx"
    out.write_bytes(b"old")
    with refuses(WorkError):
        export_int8(matchkernel.load(weights), out, [open_patch_set(patch_set)])
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


def test_what_is_refused(patch_set, weights, tmp_path):
    words = ["export", str(weights), "-o", str(tmp_path / "mine.onnx")]
    for more, told in (
        (["--int8"], "belong together"),
        (["--calibrate", str(patch_set)], "belong together"),
        (["--int8", "--calibrate", str(tmp_path)], str(tmp_path)),
    ):
        done = CliRunner().invoke(app, [*words, *more])
        assert done.exit_code == 2
        assert told in done.stderr.replace("\n", "")
    assert not list(tmp_path.iterdir())
    few = open_patch_set(patch_set)
    few = type(few)(few.folder, few.patches[:40], few.labels[:40], {}, {}, {})
    with refuses(ArgumentError):
        calibrate_int8(matchkernel.load(weights), [few])
