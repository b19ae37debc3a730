"""Fewer numbers per patch: rows along directions, whatever the descriptor."""

import numpy as np
import pytest
import torch
from helpers import refuses, trained_like

import matchkernel
from matchkernel.errors import ArgumentError
from matchkernel.model.descriptors import build
from matchkernel.model.reduce import principal_directions, reduced
from matchkernel.model.weights import load, save

SETTINGS = {"d": 8, "D": 24, "patch_size": 16}


def trained(variant, **settings):
    settings = {**SETTINGS, **settings}
    return trained_like(build(variant, generator=torch.Generator().manual_seed(0), **settings), seed=1)


def patches(count=200):
    return np.random.default_rng(2).integers(0, 256, (count, 16, 16), dtype=np.uint8)


@pytest.mark.parametrize(
    ("variant", "settings"),
    [("cartesian", {"s": 1}), ("dual", {"s": 1}), ("fc", {}), ("polar", {"s": 1, "output_norm": "none"})],
)
def test_shorter_rows_are_the_rows_along_the_directions(variant, settings, tmp_path):
    model = trained(variant, **settings)
    rows = matchkernel.describe(patches(), model)
    directions = principal_directions(rows, 9)
    assert np.abs(directions @ directions.T - np.eye(9)).max() < 1e-9
    along = rows @ directions.T
    expected = along / np.linalg.norm(along, axis=1, keepdims=True)
    shorter = reduced(model, directions)
    assert np.abs(matchkernel.describe(patches(), shorter) - expected).max() < 1e-5
    save(shorter, tmp_path / "short.safetensors", shorter.card)
    again = load(tmp_path / "short.safetensors")
    assert again.config.D == 9
    assert np.abs(matchkernel.describe(patches(), again) - expected).max() < 1e-5
    assert again.card.other["reduced_from"].startswith(f"{model.name} ")


def test_the_directions_keep_more_than_others():
    rows = matchkernel.describe(patches(), trained("cartesian", s=1))
    kept = [np.square(rows @ principal_directions(rows, D).T).sum() for D in (24, 9, 3)]
    assert kept[0] == pytest.approx(len(rows), rel=1e-5)
    assert kept[0] > kept[1] > kept[2]
    assert kept[2] > np.square(rows[:, :3]).sum()


def test_limits_and_scores_of_the_longer_rows_are_not_kept():
    model = matchkernel.load("light")
    shorter = reduced(model, np.eye(128)[:64])
    assert model.card.match_threshold is not None
    assert shorter.card.match_threshold is None
    assert not shorter.card.metrics
    assert shorter.card.licence == model.card.licence


@pytest.mark.parametrize(
    ("make", "directions"),
    [
        (lambda: trained("sum", D=None), np.eye(8)[:4]),
        (lambda: trained("cartesian", s=1).fold(), np.eye(24)[:4]),
        (lambda: trained("cartesian", s=1), np.eye(24)),
        (lambda: trained("cartesian", s=1), np.empty((0, 24))),
    ],
)
def test_what_cannot_be_reduced_is_refused(make, directions):
    with refuses(ArgumentError):
        reduced(make(), directions)
