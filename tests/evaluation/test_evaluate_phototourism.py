from pathlib import Path

import numpy as np
import pytest
import torch
from helpers import refuses

from matchkernel.data.patch_set import PatchSet
from matchkernel.errors import ArgumentError
from matchkernel.evaluation.metrics import fpr95
from matchkernel.evaluation.patch_sets import retrieval_map, score_patch_set

random = np.random.default_rng(0)
LABELS = np.repeat(np.arange(30), 3)


def patch_set(pairs, labels=LABELS):
    patches = np.zeros((len(labels), 8, 8), np.uint8)
    return PatchSet(Path("/sets/liberty"), patches, np.asarray(labels), {}, pairs, {})


def some_pairs(count=200):
    a, b = random.integers(90, size=(2, count))
    return np.column_stack([a, b, LABELS[a] == LABELS[b]]).astype(np.int64)


def test_scores_are_those_of_the_metrics():
    pairs = {"m50_easy": some_pairs(), "m50hard_x": some_pairs()}
    rows = random.normal(size=(90, 16)).astype(np.float32) + np.eye(30, 16, dtype=np.float32)[LABELS]
    for kind in (rows, torch.from_numpy(rows)):
        result = score_patch_set("mine", kind, patch_set(pairs), queries=None)
        for name, part in pairs.items():
            distances = np.linalg.norm(rows[part[:, 0]] - rows[part[:, 1]], axis=1)
            assert result["pairs"][name]["fpr95"] == pytest.approx(fpr95(distances, part[:, 2]))
            assert result["pairs"][name]["matches"] == part[:, 2].sum()
            assert result["pairs"][name]["non_matches"] == 200 - part[:, 2].sum()
        assert result["retrieval_map"] == pytest.approx(retrieval_map(rows, LABELS)[0])
        assert result["test_set"] == "liberty"
        assert (result["dimension"], result["patches"]) == (16, 90)


def test_bits():
    bits = np.packbits(random.integers(0, 2, (90, 64), dtype=np.uint8), axis=1)
    pairs = some_pairs()
    result = score_patch_set("orb", bits, patch_set({"m50": pairs}), distance="hamming")
    unpacked = np.unpackbits(bits, axis=1)
    distances = (unpacked[pairs[:, 0]] != unpacked[pairs[:, 1]]).sum(1)
    assert result["pairs"]["m50"]["fpr95"] == pytest.approx(fpr95(distances, pairs[:, 2]))
    assert result["dimension"] == 64
    assert result["warnings"]


def test_perfect_and_constant():
    pairs = {"m50": some_pairs()}
    perfect = score_patch_set("perfect", np.eye(30)[LABELS], patch_set(pairs))
    assert perfect["pairs"]["m50"]["fpr95"] == 0
    assert perfect["retrieval_map"] == 1
    assert perfect["warnings"] == []
    constant = score_patch_set("constant", np.ones((90, 4)), patch_set(pairs))
    assert (constant["pairs"]["m50"]["fpr95"], constant["pairs"]["m50"]["fpr95_lowest"]) == (1, 0)
    assert constant["retrieval_map"] < 0.03
    assert constant["retrieval_map_highest"] == 1
    assert len(constant["warnings"]) == 2


def test_sets_without_pairs_or_without_matches():
    result = score_patch_set("mine", random.normal(size=(90, 4)), patch_set({}, np.arange(90)))
    assert result["pairs"] == {}
    assert result["retrieval_map"] is None


@pytest.mark.parametrize(
    ("rows", "pairs"),
    [
        (np.ones((90, 4)), {"m50": some_pairs() * [1, 1, 0]}),  # one class
        (np.ones((89, 4)), {}),
        (np.full((90, 4), np.nan), {}),
    ],
)
def test_what_does_not_fit_is_refused(rows, pairs):
    with refuses(ArgumentError):
        score_patch_set("mine", rows, patch_set(pairs))
