"""Preset `author`: encoding and descriptor by the formulas of the first author's later code, written out here.

manyids2/mkd_local_descriptor, commit 9234a80: input_norm, ExplicitSpacialEncoding and Whitening, in float64.
"""

import math

import numpy as np
import pytest
import torch
from helpers import textures, trained_like

from matchkernel.model.backbone import Backbone
from matchkernel.model.descriptors import Descriptor
from matchkernel.runtime.config import VARIANTS
from matchkernel.training.config import TrainingConfig

SIDE, CHANNELS, CODES = 8, 128, 9
FACTORS = {"x": math.pi / 2, "y": math.pi / 2, "rho": math.pi, "phi": 1.0}


def author(variant, **model):
    values = {"preset": "author", "model": {"variant": variant, **model}, "data": {"train": "none"}}
    return TrainingConfig.from_dict(values)


def bessel(order, kappa):
    """I_order(kappa) by its power series."""
    terms = [(kappa / 2) ** (2 * k + order) / (math.factorial(k) * math.factorial(k + order)) for k in range(30)]
    return sum(terms)


def embedding(angles, kappa=1.0, n=1):
    """Kernel.get_embedding: (8, 8) angles -> (8, 8, 2n + 1)."""
    constant = 0.5 * (bessel(0, kappa) - math.exp(-kappa)) / math.sinh(kappa)
    others = [math.sqrt(bessel(i, kappa) / math.sinh(kappa)) for i in range(1, n + 1)]
    cosines = [weight * np.cos(i * angles) for i, weight in enumerate(others, 1)]
    sines = [weight * np.sin(i * angles) for i, weight in enumerate(others, 1)]
    return np.stack([np.full_like(angles, math.sqrt(constant)), *cosines, *sines], -1)


def encoding(phi, dtype):
    """ExplicitSpacialEncoding: (B, 128, 8, 8) -> (B, 1152), channel slow, then phi and rho (or x and y), l2."""
    axis = np.arange(-(SIDE - 1), SIDE, 2, dtype=float)
    xx, yy = np.meshgrid(axis, axis)
    grid = {"x": xx / (SIDE - 1), "y": yy / (SIDE - 1), "phi": np.arctan2(yy, xx)}
    grid["rho"] = np.hypot(xx, yy) / np.sqrt(2 * (SIDE - 1) ** 2)
    grid = {name: value * FACTORS[name] for name, value in grid.items()}
    distance = np.sqrt(grid["x"] ** 2 + grid["y"] ** 2)
    mask = np.exp(-((distance / distance.max()) ** 2))
    first, second = ("x", "y") if dtype == "cart" else ("phi", "rho")
    one, two = embedding(grid[first]), embedding(grid[second])
    codes = np.stack([one[..., i] * two[..., j] for i in range(3) for j in range(3)]) * mask
    encoded = np.stack([phi[:, k // CODES] * codes[k % CODES] for k in range(CHANNELS * CODES)], 1).sum((2, 3))
    return encoded / np.sqrt((encoded**2).sum(1, keepdims=True) + 1e-10)


def ours_to_theirs(dtype):
    """For each number of their encoding its place in ours: polar codes are phi (x) rho there, rho (x) theta here."""
    places = np.arange(CODES).reshape(3, 3)
    order = (places if dtype == "cart" else places.T).ravel()
    return (np.arange(CHANNELS)[:, None] * CODES + order).ravel()


@pytest.mark.parametrize("D", [128, CHANNELS * CODES])
@pytest.mark.parametrize(("variant", "dtype"), [("cartesian", "cart"), ("polar", "polar")])
@torch.no_grad()
def test_the_descriptor_is_that_of_the_authors_code(variant, dtype, D):
    """With its bias b before M as m = -M b; D = 1152 is that code's."""
    model = trained_like(Descriptor(author(variant, D=D).model)).double().eval()
    random = np.random.default_rng(1)
    matrix, bias = random.normal(size=(CHANNELS * CODES, D)), random.normal(0, 0.02, CHANNELS * CODES)
    mean, variance = random.normal(size=D), random.uniform(0.5, 2, D)
    ours = np.empty_like(matrix.T)
    ours[:, ours_to_theirs(dtype)] = matrix.T / math.sqrt(CHANNELS * CODES)
    values = {"weight": ours, "bias": -bias @ matrix}
    for name, value in values.items():
        getattr(model.projection, name).copy_(torch.from_numpy(value))
    model.output_norm.running_mean.copy_(torch.from_numpy(mean))
    model.output_norm.running_var.copy_(torch.from_numpy(variance))
    patches = textures(4, dtype=torch.float64)
    flat = patches.flatten(1)
    normal = (patches - flat.mean(1).view(-1, 1, 1, 1)) / (flat.std(1) + 1e-8).view(-1, 1, 1, 1)
    backbone = model.backbones[0]
    assert isinstance(backbone, Backbone)
    rows = (encoding(backbone(normal).numpy(), dtype) - bias) @ matrix
    rows = (rows - mean) / np.sqrt(variance + 1e-5)
    rows = rows / np.sqrt((rows**2).sum(1, keepdims=True) + 1e-10)
    assert np.allclose(model(patches).numpy(), rows, rtol=0, atol=1e-7)


@pytest.mark.parametrize("variant", VARIANTS)
def test_every_variant_has_its_dropout_and_what_else_it_can_have(variant):
    found = author(variant).model
    assert found.dropout == 0.1
    assert Descriptor(found).dropout.p == 0.1
    if VARIANTS[variant].systems:
        assert (found.s, found.kappas, found.grid, found.encoding_norm) == (
            1,
            (1.0,) * len(VARIANTS[variant].systems),
            "endpoints",
            True,
        )
    assert author(variant, dropout=0.0).model.dropout == 0.0
    assert TrainingConfig.from_dict(author(variant).to_dict()) == author(variant)
