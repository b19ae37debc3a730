"""The context network: its kernels and candidates against loops, what it ignores, and its files."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import refuses

from matchkernel.data.sample_pair import FOLDER
from matchkernel.errors import WeightsError
from matchkernel.geometry.frames import Frames
from matchkernel.model.context import ContextConfig, ContextNetwork, Keypoints, agreement, candidates
from matchkernel.photos.context import match_in_context
from matchkernel.photos.extract import extract
from matchkernel.runtime.context import KEY, SHIPPED
from matchkernel.storage.tensors import write_tensors

FRAMES = ("centers", "shapes")
CONFIG = ContextConfig("tiny", "0" * 64, d=8, layers=2, dv=2, candidates=60, threshold=1e-6)


def keypoints(count, seed=0, size=(640, 480)):
    random = torch.Generator().manual_seed(seed)
    centers = torch.rand(count, 2, generator=random, dtype=torch.float64) * torch.tensor(size)
    angles, sigmas = 6 * torch.rand(count, generator=random), 1 + 9 * torch.rand(count, generator=random)
    rows = torch.nn.functional.normalize(torch.randn(count, 16, generator=random), dim=-1)
    return Keypoints.of(centers, angles, sigmas, rows, size)


@pytest.fixture
def network():
    """Untrained; with this threshold every best candidate of both keypoints is a match."""
    return ContextNetwork(CONFIG).eval()


def matched(network, a, b):
    found = network.match(a, b)
    return {(int(i), int(j)): float(value) for (i, j), value in zip(found.indices, found.p, strict=True)}


def moved(points, factor=1 + 0j, shift=0j):
    """The photo turned by the angle of the factor and shifted."""
    turn = float(np.angle(factor))
    return replace(points, z=points.z * factor + shift, theta=points.theta + turn)


def test_turning_or_shifting_a_photo_changes_no_match(network):
    a, b = keypoints(40), keypoints(35, 1)
    expected = matched(network, a, b)
    assert len(expected) > 10
    for other in (moved(b, np.exp(2j)), moved(b, shift=3 - 1j), moved(b, np.exp(-3j), 0.2j)):
        found = matched(network, a, other)
        assert found == pytest.approx(expected, abs=1e-4)  # places are float32


def test_resizing_a_photo_changes_no_match(network):
    a, b = keypoints(40), keypoints(35, 1)
    centers = (torch.view_as_real(b.z[0]) * 320 + torch.tensor([319.5, 239.5])).double()
    sigmas = torch.exp2(b.scale[0]) * 640 / 1000
    twice = Keypoints.of(2 * centers + 0.5, b.theta[0], 2 * sigmas, b.rows[0], (1280, 960))
    assert matched(network, a, twice) == pytest.approx(matched(network, a, b), abs=1e-4)


def test_exchanging_the_photos_and_the_order_of_keypoints_change_no_match(network):
    a, b = keypoints(40), keypoints(35, 1)
    expected = matched(network, a, b)
    exchanged = matched(network, b, a)
    assert {(i, j): p for (j, i), p in exchanged.items()} == pytest.approx(expected, abs=1e-4)
    order = torch.randperm(40)
    found = matched(network, a.take(order), b)
    assert {(int(order[i]), j): p for (i, j), p in found.items()} == pytest.approx(expected, abs=1e-4)


def slow_candidates(a, b, count, top):
    """The definition with loops: {(i, j): (distance, both log-ratios)}, the best by q."""
    d = np.sqrt(np.maximum(2 - 2 * (a.rows[0] @ b.rows[0].T).double().numpy(), 1e-4))
    found = {}
    for i in range(d.shape[0]):
        for j in range(d.shape[1]):
            if j in np.argsort(d[i])[:top] or i in np.argsort(d[:, j])[:top]:
                ratios = [np.log(d[i, j] / np.delete(line, k).min(initial=2)) for line, k in ((d[i], j), (d[:, j], i))]
                found[i, j] = (d[i, j], max(ratios), min(ratios))
    return dict(sorted(found.items(), key=lambda entry: entry[1][1] + entry[1][2] / 2)[:count])


@pytest.mark.parametrize("sizes", [(12, 9), (9, 12), (5, 3), (3, 2), (2, 2), (1, 4), (0, 3), (3, 0)])
def test_candidates_are_those_of_loops(sizes):
    a, b = keypoints(sizes[0]), keypoints(sizes[1], 1)
    for count, top in ((7, 2), (100, 1), (100, 3)):
        found, expected = candidates(a, b, count, top), slow_candidates(a, b, count, top)
        real = found.is_real[0]
        got = dict(
            zip(zip(found.i[0, real].tolist(), found.j[0, real].tolist(), strict=True), found.f[0, real], strict=True)
        )
        assert [*got] == [*expected]
        for place, values in expected.items():
            assert got[place][:3].tolist() == pytest.approx(values, abs=1e-5)


def test_photos_of_different_sizes_in_a_batch_are_judged_as_alone(network):
    pairs = [(keypoints(40), keypoints(35, 1)), (keypoints(9, 2), keypoints(20, 3)), (keypoints(1, 4), keypoints(5, 5))]
    a, b = (Keypoints.joined([pair[side] for pair in pairs]) for side in (0, 1))
    together = candidates(a, b, 60)
    logits = network(*together[2:])[-1]
    for number, (one, two) in enumerate(pairs):
        alone, real = candidates(one, two, 60), together.is_real[number]
        assert together.i[number, real].tolist() == alone.i[alone.is_real].tolist()
        assert torch.allclose(logits[number, real], network(*alone[2:])[-1][alone.is_real], atol=1e-5)


def test_agreement_is_its_formula():
    found = candidates(keypoints(6), keypoints(5, 1), 8)
    zi, zj, a = (part[0].numpy().astype(complex) for part in (found.zi, found.zj, found.a))
    logs = [torch.randn(12) for _ in range(4)]
    phi = agreement(found.zi, found.zj, found.a, found.is_real, logs)[0]
    alpha, beta, kappa, gamma = (log.exp().double().numpy() for log in logs)
    for c in range(len(a)):
        for other in range(len(a)):
            v, w = zi[other] - zi[c], zj[other] - zj[c]
            e2 = np.mean([(abs(w - s * v) / (abs(w) + abs(s * v) + 1e-4)) ** 2 for s in (a[c], a[other])])
            turn = 1 - math.cos(np.angle(a[c]) - np.angle(a[other]))
            octaves = math.log2(abs(a[c] / a[other]))
            expected = np.exp(-(alpha * e2 + beta * abs(v) * abs(w) + kappa * turn + gamma * octaves**2)) * (c != other)
            assert phi[:, c, other].numpy() == pytest.approx(expected, abs=1e-5)


def padded(features, count):
    """With keypoints at random that look like nothing else."""
    random, more = np.random.default_rng(0), count - len(features)
    rows = random.normal(size=(more, features.descriptors.shape[1]))
    rows = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    squares = Frames.turned_squares(random.uniform(0, 300, (more, 2)), random.uniform(9, 60, more), np.arange(more) % 6)
    frames = [np.concatenate([getattr(part, name) for part in (features.frames, squares)]) for name in FRAMES]
    scores = np.concatenate([features.scores, np.zeros(more, np.float32)])
    return replace(
        features, frames=Frames(*frames), descriptors=np.concatenate([features.descriptors, rows]), scores=scores
    )


def test_matches_are_those_without_torch():
    network = ContextNetwork.load(SHIPPED / "light-wide.safetensors")
    left, right = (extract(FOLDER / name, "light-wide", keypoints=300) for name in ("left.png", "right.png"))
    pairs = [(left[:count], right[:count]) for count in (300, 3, 2, 1, 0)]
    pairs += [(padded(left, 10_000), right), (left[:0], right), (right[:2], padded(left, 10_000))]
    for two in pairs:
        arrays = [(one.keypoints, one.orientations, one.scales, one.descriptors) for one in two]
        sides = [[torch.from_numpy(np.ascontiguousarray(array)) for array in side] for side in arrays]
        a, b = (Keypoints.of(*side, one.image_size) for side, one in zip(sides, two, strict=True))
        found, expected = network.match(a, b), match_in_context(*two)
        assert found.indices.tolist() == expected.indices.tolist()
        assert found.ratios.tolist() == pytest.approx(expected.ratios.tolist(), abs=1e-5)
        assert len(expected) > 50 or min(map(len, two)) < 300


def test_a_saved_network_is_read_back(network, tmp_path):
    network.card = {"trained_on": "liberty", "licence": "CC0-1.0"}
    network.save(tmp_path / "new" / "matcher.safetensors")
    found = ContextNetwork.load(tmp_path / "new" / "matcher.safetensors")
    assert (found.config, found.card) == (CONFIG, network.card)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(found.parameters(), network.parameters(), strict=True))


FACTS = {"kind": "context", "format": 1, "d": 8, "layers": 2, "dv": 2, "candidates": 9, "top": 2, "threshold": 0.5}


@pytest.mark.parametrize(
    "facts",
    [None, "{", [], {**FACTS, "kind": "x"}, {**FACTS, "d": 0}, {**FACTS, "d": 9}, {**FACTS, "x": 1}, {"d": 8}],
    ids=["no facts", "no JSON", "a list", "another kind", "no width", "another width", "an unknown fact", "no kind"],
)
def test_a_foreign_file_is_refused(facts, network, tmp_path):
    text = facts if isinstance(facts, str) else json.dumps(facts)
    write_tensors(tmp_path / "x.safetensors", dict(network.state_dict()), {} if facts is None else {KEY: text})
    with refuses(WeightsError):
        ContextNetwork.load(tmp_path / "x.safetensors")


def test_a_damaged_file_is_refused(network, tmp_path):
    path = tmp_path / "x.safetensors"
    network.save(path)
    content = path.read_bytes()
    for damaged in (content[:-40], content[:-1] + bytes([content[-1] ^ 1]), b""):
        path.write_bytes(damaged)
        with refuses(WeightsError):
            ContextNetwork.load(path)
