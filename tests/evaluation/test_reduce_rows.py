"""Shorter rows: the command, what it says, and what it refuses."""

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

import matchkernel
from matchkernel.cli.app import app
from matchkernel.data.patch_set import open_patch_set
from matchkernel.evaluation.reduce import reduce_rows
from matchkernel.model.descriptors import build
from matchkernel.model.weights import load, save


@pytest.fixture
def weights(tmp_path):
    model = build("cartesian", s=1, d=8, D=24, patch_size=16, generator=torch.Generator().manual_seed(0)).eval()
    save(model, tmp_path / "mine.safetensors")
    return tmp_path / "mine.safetensors"


def reduce(*words):
    return CliRunner().invoke(app, ["reduce", *map(str, words)])


def test_the_command_writes_weights_and_says_what_is_lost(patch_set, weights, tmp_path):
    done = reduce(weights, "--dimensions", 6, "--calibrate", patch_set, "-o", tmp_path / "short.safetensors")
    assert done.exit_code == 0, done.output
    said = done.output.replace("\n", " ")
    assert "6 numbers per patch instead of 24" in said
    found = reduce_rows(load(weights), 6, [open_patch_set(patch_set)])
    assert f"retrieval mAP {found.map_after:.2f} instead of {found.map_before:.2f}" in said
    assert 0 < found.kept < 1
    patches = np.random.default_rng(0).integers(0, 256, (5, 16, 16), dtype=np.uint8)
    assert matchkernel.describe(patches, load(tmp_path / "short.safetensors")).shape == (5, 6)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--dimensions", 24], "dimensions must be from 1 to 23, got 24"),
        (["--dimensions", 200], "dimensions must be from 1 to 23, got 200"),
        (["--dimensions", 0], "0 is not in the range"),
        (["--calibrate", "nowhere"], "nowhere"),
        (["-o", "short.onnx"], ".safetensors"),
    ],
)
def test_mistakes_are_one_line_and_leave_nothing(patch_set, weights, tmp_path, words, reason):
    out = tmp_path / "short.safetensors"
    done = reduce(weights, "--calibrate", patch_set, "-o", out, *words)
    assert done.exit_code == 2
    assert reason in " ".join(done.output.split())
    assert not out.exists()
