import numpy as np
import pytest
import torch

import matchkernel
from matchkernel.errors import ArgumentError
from matchkernel.model import describe_files
from matchkernel.model.describe_files import describe_file


@pytest.fixture
def model():
    return matchkernel.build("dual", d=4, patch_size=8, generator=torch.Generator().manual_seed(0)).eval()


@pytest.fixture
def stack():
    patches = np.random.default_rng(0).integers(0, 256, (50, 8, 8), dtype=np.uint8)
    patches[3] = 9
    return patches


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
@pytest.mark.parametrize("slab", [7, 8192])
def test_the_file_holds_what_describe_gives(suffix, slab, stack, model, tmp_path, monkeypatch):
    monkeypatch.setattr(describe_files, "SLAB", slab)
    out = tmp_path / f"rows{suffix}"
    valid = describe_file(stack, model, out)
    rows = np.load(out) if suffix == ".npy" else np.loadtxt(out, delimiter=",", dtype=np.float32)
    assert np.abs(rows - matchkernel.describe(stack, model)).max() < 1e-6
    assert np.flatnonzero(~valid).tolist() == [3]
    assert list(tmp_path.iterdir()) == [out]


def test_csv_reads_back_to_the_same_numbers(stack, model, tmp_path):
    describe_file(stack, model, tmp_path / "a.npy")
    describe_file(stack, model, tmp_path / "a.csv")
    read = np.loadtxt(tmp_path / "a.csv", delimiter=",", dtype=np.float32)
    assert np.array_equal(read, np.load(tmp_path / "a.npy"))


@pytest.mark.parametrize("suffix", [".npy", ".csv"])
def test_no_patches(suffix, model, tmp_path):
    out = tmp_path / f"rows{suffix}"
    assert describe_file(np.empty((0, 8, 8), np.uint8), model, out).shape == (0,)
    if suffix == ".npy":
        assert np.load(out).shape == (0, 128)
    else:
        assert out.read_text() == ""


def test_a_failure_leaves_nothing(model, tmp_path):
    with pytest.raises(ArgumentError, match=r"\.npy or \.csv"):
        describe_file(np.zeros((1, 8, 8)), model, tmp_path / "rows.txt")
    with pytest.raises(ArgumentError, match="multiple of 4"):
        describe_file(np.zeros((1, 9, 9)), model, tmp_path / "rows.npy")
    assert not list(tmp_path.iterdir())
