"""Shorter rows and int8 files: chosen on one half of the points, compared on the other, kept only if they agree."""

import json

import helpers
import numpy as np
import onnx
import pytest
import torch
from commands import good
from helpers import refuses, trained_like

import matchkernel
from matchkernel.data.patch_set import create_patch_set, open_patch_set
from matchkernel.errors import ArgumentError, WorkError
from matchkernel.evaluation import smaller
from matchkernel.evaluation.smaller import calibrate_int8, export_int8, reduce_rows


@pytest.fixture(scope="module")
def patch_set(tmp_path_factory):
    """70 points with two noisy patches each, 40 px; two of the patches are constant."""
    folder = tmp_path_factory.mktemp("sets") / "points"
    patches = np.repeat(helpers.textures(70, 40).numpy()[:, 0], 2, axis=0)
    patches += np.random.default_rng(0).normal(0, 5, patches.shape)
    patches[[0, 10]] = 7
    with create_patch_set(folder, 140, 40, {}) as build:
        for number in build.steps(["all"]):
            build.store(range(140), patches.clip(0, 255).astype(np.uint8) + number)
        build.finish(np.repeat(np.arange(70), 2), {}, {}, {})
    return folder


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    path = tmp_path_factory.mktemp("weights") / "mine.safetensors"
    model = trained_like(matchkernel.build("cartesian", d=8, generator=torch.Generator().manual_seed(0)))
    matchkernel.save(model, path, {"licence": "CC0-1.0"})
    return path


def test_export_writes_an_int8_engine(patch_set, weights, tmp_path, textures):
    out = tmp_path / "mine.int8.onnx"
    good("export", weights, "-o", out, "--int8", "--calibrate", patch_set)
    metadata = {entry.key: entry.value for entry in onnx.load(out).metadata_props}
    assert metadata["engine"] == "onnx-int8"
    assert metadata["calibrated_on"] == "points"
    assert metadata["licence"] == "CC0-1.0"
    assert json.loads(metadata["config"])["patch_size"] == 32
    onnx.checker.check_model(onnx.load(out), full_check=True)
    model = matchkernel.load(weights)
    rows = matchkernel.describe(textures(9), model, engine=str(out))
    assert (rows * matchkernel.describe(textures(9), model)).sum(1).min() > 0.99
    bright = torch.zeros(2, 1, 32, 32)  # which 8 bits would clip
    bright[0, 0, 5, 9] = bright[1, 0, 20, 20] = 255
    expected = matchkernel.describe(bright, model)
    assert (matchkernel.describe(bright, model, engine=str(out)) - expected).abs().max() < 1e-5


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
    real = smaller.calibrate

    def wrong(model, patches):
        limits = real(model, patches)
        return type(limits)(limits.patches, tuple(tuple(v / 1000 for v in part) for part in limits.layers))

    monkeypatch.setattr(smaller, "calibrate", wrong)
    out = tmp_path / "mine.onnx"
    out.write_bytes(b"old")
    with refuses(WorkError):
        export_int8(matchkernel.load(weights), out, [open_patch_set(patch_set)])
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


def test_too_few_patches_are_refused(patch_set, weights):
    few = open_patch_set(patch_set)
    few = type(few)(few.folder, few.patches[:40], few.labels[:40], {}, {}, {})
    with refuses(ArgumentError):
        calibrate_int8(matchkernel.load(weights), [few])


def test_reduce_writes_shorter_rows_and_says_what_is_lost(patch_set, weights, tmp_path):
    out, model = tmp_path / "short.safetensors", matchkernel.load(weights)
    done = good("reduce", weights, "--dimensions", 6, "--calibrate", patch_set, "-o", out)
    found = reduce_rows(model, 6, [open_patch_set(patch_set)])
    assert f"{found.map_after:.2f} instead of {found.map_before:.2f}" in " ".join(done.output.split())
    assert 0 < found.kept < 1
    patches = np.random.default_rng(0).integers(0, 256, (5, 32, 32), dtype=np.uint8)
    assert matchkernel.describe(patches, matchkernel.load(out)).shape == (5, 6)
