"""Where similarity maps are high: against a double loop over positions, and in cases with a known answer."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "experiments" / "paper"))

import jobs
import run
from score import map_statistics, score_maps

from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import build
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import save

PAIRS = 3


@pytest.fixture
def pairs(tmp_path, textures):
    """A file as tolerance.py writes it, of patches and slightly changed ones; the unshifted ones come second."""
    patches = textures(2 * PAIRS, 64).byte().numpy().reshape(2, PAIRS, 64, 64)
    arrays = {"reference": patches[0], "shift": np.stack([patches[0][::-1], patches[1]])}
    np.savez(tmp_path / "tolerance.npz", **arrays, shift_amounts=np.array([0.3, 0.0]))
    return tmp_path / "tolerance.npz"


@pytest.mark.parametrize("name", [*jobs.MAPPED, jobs.CONTROL])
def test_against_a_loop_over_positions(pairs, name, trained_like):
    model = trained_like(build(**jobs.DESCRIPTORS[name], patch_size=16))
    found = score_maps(model, pairs, "cpu")
    with np.load(pairs) as file:
        both = [torch.from_numpy(part).float()[:, None] for part in (file["reference"], file["shift"][1])]
    one, two = (resize_patches(part, 16) for part in both)
    near, sums, counts = [], np.zeros(5), np.zeros(5)
    for a, b in zip(one, two, strict=True):
        for row in range(4):
            for column in range(4):
                S = similarity_map(model, a, b, row, column).double().numpy()
                top = np.unravel_index(S.argmax(), S.shape)
                near.append(max(abs(top[0] - row), abs(top[1] - column)) <= 1)
                S = (S - S.min()) / (S.max() - S.min())
                for y in range(4):
                    for x in range(4):
                        k = round(np.hypot(y - row, x - column))
                        sums[k] += S[y, x]
                        counts[k] += 1
    assert found["pairs"] == PAIRS
    assert found["near"] == pytest.approx(np.mean(near), abs=1e-12)
    assert found["by_distance"] == pytest.approx(sums / counts, abs=1e-5)  # encodings are float32
    assert found["mean"] == pytest.approx(sums.sum() / counts.sum(), abs=1e-5)


def test_chance_counts_the_neighbours():
    found = map_statistics(torch.rand(1, 64, 64), 8)
    assert found["near_chance"] == pytest.approx((36 * 9 + 24 * 6 + 4 * 4) / 64**2, abs=1e-12)
    assert len(found["by_distance"]) == 11  # 7 sqrt 2 = 9.9 cells across


def test_maps_that_know_p_and_maps_that_know_nothing():
    perfect = map_statistics(torch.eye(16).repeat(2, 1, 1), 4)
    assert perfect["near"] == 1
    assert perfect["by_distance"] == [1, 0, 0, 0, 0]
    random = map_statistics(torch.rand(2000, 16, 16, generator=torch.Generator().manual_seed(0)), 4)
    assert random["near"] == pytest.approx(random["near_chance"], abs=0.015)  # 32,000 maps
    assert random["by_distance"] == pytest.approx([random["mean"]] * 5, abs=0.01)
    constant = map_statistics(torch.ones(1, 16, 16), 4)
    assert constant["mean"] == 0  # no NaN


def test_fewer_pairs_are_drawn_from_all(pairs):
    assert score_maps(build(variant="fc", patch_size=16).eval(), pairs, "cpu", most=2)["pairs"] == 2


def test_a_job_that_asks_for_maps_gets_them(tmp_path, pairs):
    weights = tmp_path / "fc.safetensors"
    save(build(variant="fc", patch_size=16), weights)
    job = jobs.Job("any", "A", {}, ("maps",))
    scores = run.measure(job, tmp_path, "cpu", weights, ("scenes", "validation"))
    assert set(scores) == {"maps"}
    assert 0 <= scores["maps"]["near"] <= 1
