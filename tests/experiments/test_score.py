"""What the experiments measure: similarity maps against loops over positions; strips are decoded once."""

from functools import partial

import data
import jobs
import numpy as np
import pytest
import run
import score
import torch
from job import Job, settings
from PIL import Image
from score import map_statistics, score_maps

from matchkernel.data import hpatches
from matchkernel.data.hpatches import IMAGES, open_hpatches
from matchkernel.evaluation.hpatches.evaluate import evaluate_hpatches
from matchkernel.evaluation.method import Method
from matchkernel.geometry.frames import Frames
from matchkernel.model.describe import resize_patches
from matchkernel.model.descriptors import build
from matchkernel.model.kernel_view import similarity_map
from matchkernel.model.weights import save

PROJECTION = np.random.default_rng(1).standard_normal((65 * 65, 16)).astype(np.float32)


def describe(patches, progress=None):
    rows = patches.reshape(len(patches), -1) @ PROJECTION
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


METHOD = Method("projection", "l2", {}, describe)


@pytest.fixture
def strips(tmp_path):
    """One sequence of nine patches, noisier from strip to strip, with a split that names it."""
    random = np.random.default_rng(0)
    base = random.integers(0, 256, (9 * 65, 65))
    (tmp_path / "v_made").mkdir()
    for k, image in enumerate(IMAGES):
        noisy = base + random.normal(0, 12 * k, base.shape)
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(tmp_path / "v_made" / f"{image}.png")
    (tmp_path / "tasks" / "splits").mkdir(parents=True)
    (tmp_path / "tasks" / "splits" / "splits.json").write_text('{"full": {"name": "full", "test": ["v_made"]}}')
    return tmp_path


def test_strips_are_decoded_once_for_many_models(strips, monkeypatch):
    monkeypatch.setattr(hpatches, "draw_verification", partial(hpatches.draw_verification, pairs=1000))  # not scored
    (wanted,) = evaluate_hpatches(METHOD, strips, only=("matching",))
    (opened,) = evaluate_hpatches(METHOD, open_hpatches(strips), only=("matching",))
    assert opened == wanted
    read, seen = hpatches.read_patches, []
    monkeypatch.setattr(hpatches, "read_patches", lambda path: seen.append(path.stem) or read(path))
    scores = [score.score_strips(METHOD, strips) for _ in range(3)]
    assert scores == 3 * [{noise: part["ap_trapezoid"] for noise, part in wanted["matching"]["mean"].items()}]
    assert 0.2 < scores[0]["all"] < 1
    assert sorted(seen) == sorted([*IMAGES, "ref"])  # ref once more, to count the patches


PAIRS = 2


@pytest.fixture
def pairs(tmp_path, textures):
    """A file as data.py --tolerance writes it, of patches and slightly changed ones; the unshifted ones come second."""
    patches = textures(2 * PAIRS, 64).byte().numpy().reshape(2, PAIRS, 64, 64)
    arrays = {"reference": patches[0], "shift": np.stack([patches[0][::-1], patches[1]])}
    np.savez(tmp_path / "tolerance.npz", **arrays, shift_amounts=np.array([0.3, 0.0]))
    return tmp_path / "tolerance.npz"


@pytest.mark.parametrize("name", ["fc", "dual-s2", "combined-s1", jobs.CONTROL])  # each way to project
def test_against_a_loop_over_positions(pairs, name, trained_like):
    model = trained_like(build(**settings(jobs.DESCRIPTORS[name])["model"], patch_size=16))
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


def test_shares_below_against_a_loop():
    random = torch.Generator().manual_seed(0)
    S = torch.randint(0, 4, (30, 30), generator=random).float()  # many ties
    wanted = []
    for i in range(30):
        others = [float(S[i, j]) for j in range(30) if j != i]
        own = float(S[i, i])
        wanted.append(sum((x < own) + 0.5 * (x == own) for x in others) / 29)
    assert score.shares_below(S).tolist() == pytest.approx(wanted, abs=1e-6)


def changed_patches(folder, reference, changed):
    kinds = dict.fromkeys(score.CHANGES, changed)
    amounts = {f"{kind}_amounts": np.arange(len(changed)) for kind in score.CHANGES}
    np.savez(folder / "tolerance.npz", reference=reference, **kinds, **amounts)
    return folder / "tolerance.npz"


@pytest.mark.parametrize(("kind", "fixed"), [("rotation", 0.0), ("pole", data.POLE)])
def test_a_turn_leaves_its_centre_where_it_was(kind, fixed):
    random = np.random.default_rng(0)
    frames = Frames(random.uniform(0, 100, (5, 2)), random.normal(0, 10, (5, 2, 2)))
    turned = data.changed(frames, kind, 30.0, np.zeros(5))
    point = np.full(2, fixed)
    np.testing.assert_allclose(turned.centers + turned.shapes @ point, frames.centers + frames.shapes @ point)
    angle = np.degrees(np.arctan2(*(np.linalg.inv(frames.shapes) @ turned.shapes)[0, ::-1, 0]))
    assert angle == pytest.approx(30)


def test_separability_of_copies_strangers_and_of_a_model_that_sees_nothing(tmp_path, textures, monkeypatch):
    """Copies are found, the next patch of the list never is; equal descriptors, with similarity 1, separate nothing."""
    patches = textures(6, 64).byte().numpy().reshape(6, 64, 64)
    model = build(variant="fc", patch_size=16, d=8).eval()
    path = changed_patches(tmp_path, patches, np.stack([patches, np.roll(patches, 1, 0)]))
    found = score.score_separability(model, path, "cpu")["rotation"]
    assert found["auc"][0] == 1
    assert found["first"] == [1, 0]
    assert found["auc"][1] < 1
    assert found["amounts"] == [0, 1]  # the first is no change, so patch by patch only the second counts
    assert found["first_by_patch"] == "0 0 0 0 0 0"
    missing = [int(word) for word in found["auc_missing_by_patch"].split()]
    assert 1 - np.mean(missing) / score.AUC_UNITS == pytest.approx(found["auc"][1], abs=1e-4)
    monkeypatch.setattr(score, "describe", lambda patches, *_, **__: np.ones((len(patches), 2), np.float32))
    blind = score.score_separability(model, path, "cpu")["shift"]
    assert blind["auc"] == [0.5, 0.5]
    assert blind["first"] == [0, 0]


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


def test_places_are_decoded_from_features_that_know_them_only():
    random = torch.Generator().manual_seed(0)
    blind = torch.randn(40, 12, 8, 8, generator=random)
    found = score.decoded_places(blind)
    assert found["decoded_chance"] == pytest.approx(9 / 64)
    assert found["decoded"] == pytest.approx(9 / 64, abs=0.06)
    place = torch.arange(8.0)
    told = torch.cat([blind, place[:, None].expand(40, 1, 8, 8), place.expand(40, 1, 8, 8)], 1)
    assert score.decoded_places(told)["decoded"] == 1


def test_places_are_told_by_the_zeros_around_a_patch(tmp_path):
    """Convolutions of noise know the border by its zeros; where it is continued from the other side, nothing."""
    patches = np.random.default_rng(0).integers(0, 256, (60, 64, 64), dtype=np.uint8)
    path = changed_patches(tmp_path, patches, patches[None])
    model = build(variant="sum", patch_size=16, d=32).eval()
    found = score.score_places(model, path, "cpu")
    assert found["patches"] == 60
    assert found["decoded"] > found["decoded_around"] + 0.2
    assert score.score_places(model, path, "cpu") == found  # the model stays as it is


def test_fewer_pairs_are_drawn_from_all(pairs):
    assert score_maps(build(variant="fc", patch_size=16).eval(), pairs, "cpu", most=1)["pairs"] == 1


def test_a_job_that_asks_for_maps_gets_them(tmp_path, pairs):
    weights = tmp_path / "fc.safetensors"
    save(build(variant="fc", patch_size=16), weights)
    job = Job("any", "A", {}, ("maps",))
    scores = run.measure(job, tmp_path, "cpu", weights, ("scenes", "validation"))
    assert set(scores) == {"maps"}
    assert 0 <= scores["maps"]["near"] <= 1
