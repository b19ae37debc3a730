"""Baselines of experiments/baselines: equal to their definition by hand, and damaged weight files are refused."""

import struct
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
from helpers import refuses
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from made_baselines import made_patches, rank_1
from made_paper_baselines import PAPER_FILES, torch7_bytes, write_paper_weights

from experiments.baselines.torch7 import read_torch7
from matchkernel.data.hpatches import open_hpatches
from matchkernel.errors import ArgumentError, WeightsError
from matchkernel.evaluation.methods import MOVED, baseline
from matchkernel.model.describe import resize_patches

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
published = pytest.mark.skipif(not DATA.is_dir(), reason="the published weights are not beside the checkout")
PARAMETERS = {
    "desdis-8": 80_712, "desdis-16": 191_248, "desdis-24": 331_736, "desdis-32": 502_176, "deepdesc": 280_320,
    "binboost": 256 * 32 * 7,
}  # fmt: skip


@pytest.fixture(scope="module")
def patches():
    return made_patches()


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    write_paper_weights(folder)
    return folder


def opened_from(folder, name):
    return baseline(MOVED[name], weights=folder / PAPER_FILES[name])


@pytest.fixture(scope="module")
def opened(weights):
    return lambda name: opened_from(weights, name)


@pytest.mark.parametrize("name", MOVED)
def test_the_old_name_says_where_a_baseline_went_and_the_new_one_opens_it(name, opened, patches):
    with refuses(ArgumentError):
        baseline(name)
    method = opened(name)
    assert method.name == name
    assert method.distance == ("hamming" if name == "binboost" else "l2")
    assert method.facts["parameters"] == PARAMETERS[name]
    rows = method.describe(patches[:70])
    assert rows.shape == (70, 32 if name == "binboost" else 128)
    assert (method.describe(patches[65:66]) == rows[65]).all()
    assert not method.describe(np.full((2, 40, 40), 7, np.uint8)).any()


@pytest.mark.parametrize("name", ["desdis-8", "desdis-32"])
def test_desdis_is_its_own_network_by_hand(name, patches, opened, weights):
    """Layer by layer from the names in its file."""
    state = torch.load(weights / PAPER_FILES[name], weights_only=True, map_location="cpu")
    x = resize_patches(torch.from_numpy(patches[:20])[:, None].float(), 32).double()
    x = (x - x.mean((1, 2, 3), keepdim=True)) / x.std((1, 2, 3), correction=0, keepdim=True)
    for layer, norm, stride in (
        ("layer1.1", "layer1.2", 2), ("layer2.0", "layer2.1", 2), ("layer3.0", "layer3.1", 2),
        ("layer3.3", "layer3.4", 1), ("desc.1", "desc.2", 1),
    ):  # fmt: skip
        is_last = layer == "desc.1"
        x = torch.conv2d(x, state[f"{layer}.weight"].double(), stride=stride, padding=0 if is_last else 1)
        x = x + state["desc.1.bias"].view(-1, 1, 1) if is_last else x
        mean, variance = (state[f"{norm}.{part}"].double().view(-1, 1, 1) for part in ("running_mean", "running_var"))
        x = (x - mean) / (variance + 1e-5).sqrt()
        x = x if is_last else x.relu()
    expected = torch.nn.functional.normalize(x.flatten(1)).numpy()
    assert opened(name).describe(patches[:20]) == pytest.approx(expected, abs=1e-5)


def test_deepdesc_is_its_own_network_by_hand(patches, opened, weights):
    """Torch 7's layers one by one, in double precision, from the file read on its own."""
    file = read_torch7(weights / PAPER_FILES["deepdesc"])
    modules = [file["desc"].fields["modules"][float(k)].fields for k in range(1, 13)]
    x = resize_patches(torch.from_numpy(patches[:9])[:, None].float(), 64).double()
    x = (x - file["mean"].double()) / file["std"].double()
    for first, side in ((0, 2), (4, 3), (8, 4)):
        x = torch.conv2d(x, modules[first]["weight"].double(), modules[first]["bias"].double()).tanh()
        x = (x**2).unfold(2, side, side).unfold(3, side, side).sum((4, 5)).sqrt()
        if first < 8:
            mean = modules[first + 3]["meanestimator"].fields["modules"][2.0].fields["weight"].double()
            x = x - torch.conv2d(x, mean, padding=2) / torch.conv2d(torch.ones_like(x), mean, padding=2)
    rows = opened("deepdesc").describe(patches[:9])
    assert rows == pytest.approx(x.flatten(1).numpy(), abs=1e-4)
    assert rows.std() > 0.1


def gradient_tests_by_hand(patch, path):
    """BinBoost's bits with one loop per bit and test."""
    across, down = (cv2.Sobel(patch, cv2.CV_32F, *order) for order in ((1, 0), (0, 1)))
    angle = np.arctan2(down, across)[..., None] - (np.arange(8) + 0.5) * np.pi / 4
    maps = np.round(255 * np.cos(angle).clip(0)) * (np.hypot(across, down) > 20)[..., None]
    whole = path.read_bytes()
    bits = []
    for bit in range(256):
        vote = 0.0
        for test in range(32):
            fields = struct.unpack_from("<f5iff", whole, 20 + bit * (4 + 32 * 32) + 32 * test)
            threshold, direction, top, bottom, left, right, _, weight = fields
            box = maps[top : bottom + 1, left : right + 1].sum((0, 1))
            share = np.float32(box[direction]) / np.float32(box.sum()) - np.float32(threshold) if box.sum() else 0
            vote += weight if share >= 0 else -weight
        bits.append(vote >= 0)
    return bits


def test_binboost_is_its_definition_by_hand(patches, opened, weights):
    some = patches[:3, 16:48, 16:48]
    expected = [gradient_tests_by_hand(patch, weights / PAPER_FILES["binboost"]) for patch in some]
    bits = np.unpackbits(opened("binboost").describe(some), axis=1, bitorder="little")
    # A float32 share may lie on its threshold: one vote of 32, rarely the sign of their sum.
    assert (bits != np.array(expected)).sum() <= 1
    assert 0.2 < bits.mean() < 0.8


@pytest.mark.parametrize("name", ["desdis-8", "deepdesc", "binboost"])
def test_files_that_are_cut_missing_or_of_another_kind_are_refused(name, weights, tmp_path):
    whole, path = (weights / PAPER_FILES[name]).read_bytes(), tmp_path / "changed"
    tables = (None, 3.0, {}, {"desc": 1.0}, {"desc": ("nn.Tanh", {}), "mean": "x"})
    for content in (
        *(whole[: int(share * len(whole))] for share in (0, 0.001, 0.5, 0.999)),
        *map(torch7_bytes, tables),
    ):
        path.write_bytes(content)
        with refuses(WeightsError):
            baseline(MOVED[name], weights=path)
    for path in (weights / PAPER_FILES["desdis-16"], tmp_path, tmp_path / "missing"):
        with refuses(WeightsError):
            baseline(MOVED[name], weights=path)


@given(place=st.integers(0, 16 + 256 * 1028 - 1), byte=st.integers(0, 255))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_damaged_tests_of_binboost_are_read_or_refused(place, byte, weights, tmp_path):
    damaged = bytearray((weights / PAPER_FILES["binboost"]).read_bytes())
    damaged[place] = byte
    (tmp_path / "damaged").write_bytes(damaged)
    with suppress(WeightsError):
        baseline(MOVED["binboost"], weights=tmp_path / "damaged")


@pytest.fixture(scope="module")
def strips():
    sequence = open_hpatches(DATA / "hpatches_sample")
    return {name: sequence.read("i_contruction", name) for name in ("ref", "e1", "h1", "t1", "e5", "h5", "t5")}


@published
def test_binboost_has_every_bit_of_opencvs(strips):
    """OpenCV's contrib wheel holds the same tests; its sampling window is 6.25 times the size of a keypoint."""
    method = opened_from(DATA / "weights", "binboost")
    patches = np.ascontiguousarray(strips["h1"][:60, 16:48, 16:48])
    point = cv2.KeyPoint(16, 16, 32 / 6.25, 0)
    try:
        theirs = cv2.xfeatures2d.BoostDesc_create(302)
    except cv2.error:
        pytest.skip("this build of OpenCV has no data of BoostDesc, as the wheels for ARM")
    expected = [theirs.compute(patch, [point])[1][0] for patch in patches]
    assert (method.describe(patches) == np.stack(expected)).all()


def slow(*values):
    return pytest.param(*values, marks=pytest.mark.slow)


@published
@pytest.mark.parametrize(("name", "seen"), [("desdis-8", 0.603), slow("desdis-16", 0.638), slow("desdis-32", 0.653)])
def test_desdis_gives_the_rank_1_that_another_program_got(name, seen, strips):
    """In the mean of six strips; its patches were resized in another way."""
    method = opened_from(DATA / "weights", name)
    assert np.mean(rank_1(method, strips, ["e1", "h1", "t1", "e5", "h5", "t5"])) == pytest.approx(seen, abs=0.003)
