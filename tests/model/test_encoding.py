import math

import numpy as np
import pytest
import torch

from matchkernel.model.encoding import SpatialEncoding
from matchkernel.runtime.positions import (
    SYSTEMS,
    coordinates,
    feature_map,
    fourier_coefficients,
    position_codes,
    position_matrix,
    positions,
)


def explicit_kronecker_sum(phi, system, gamma, grid="cells"):
    """The definition [M11, M12]: sum over positions of w_p phi^p (x) f(first) (x) f(second), one position at a time."""
    n = phi.shape[-1]
    place = positions(n, grid)
    first, second = (place.x, place.y) if system == "cartesian" else (place.rho, place.theta)
    total = 0
    for j in range(n):
        for i in range(n):
            code = torch.from_numpy(np.kron(feature_map(first[j, i], gamma), feature_map(second[j, i], gamma)))
            total = total + place.weight[j, i] * torch.stack([torch.kron(vector, code) for vector in phi[:, :, j, i]])
    return total


def encoding(system, n, gamma, **changes):
    settings = {"grid": "cells", "center_weight": True, "unit_norm": False, **changes}
    return SpatialEncoding(system, n, gamma, **settings).double()


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize(("kappa", "s"), [(1, 0), (1, 1), (8, 2), (8, 3)])
def test_aggregation_equals_the_explicit_kronecker_sum(system, n, kappa, s):
    gamma = fourier_coefficients(kappa, s)
    phi = torch.randn(3, 6, n, n, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    expected = explicit_kronecker_sum(phi, system, gamma) * 64 / n**2
    assert (encoding(system, n, gamma)(phi) - expected).abs().max() < 1e-10
    other = encoding(system, 8 if n != 8 else 4, gamma)  # F of another n is computed in the forward pass
    assert (other(phi) - expected).abs().max() < 1e-10


@pytest.mark.parametrize("system", SYSTEMS)
def test_unit_norm_gives_mean_square_one(system):
    gamma = fourier_coefficients(8, 2)
    phi = torch.rand(4, 6, 8, 8, dtype=torch.float64)
    plain, normed = encoding(system, 8, gamma)(phi), encoding(system, 8, gamma, unit_norm=True)(phi)
    assert normed.square().mean(1).tolist() == pytest.approx([1] * 4, abs=1e-12)
    assert torch.nn.functional.cosine_similarity(plain, normed).tolist() == pytest.approx([1] * 4, abs=1e-12)
    assert not encoding(system, 8, gamma, unit_norm=True)(torch.zeros(1, 6, 8, 8).double()).any()


def kernel_between(system, here, there, gamma):
    codes = [position_codes(system, coordinates(*point), gamma) for point in (here, there)]
    return (codes[0] * codes[1]).sum(-1)


def points(count=200):
    radius, angle = np.random.default_rng(1).random((2, count))
    return 0.1 + 0.8 * radius, 2 * math.pi * angle


@pytest.mark.parametrize(("kappa", "s"), [(1, 1), (8, 2)])
def test_cartesian_kernel_depends_on_the_shift_only_and_polar_on_the_turn_only(kappa, s):
    gamma = fourier_coefficients(kappa, s)
    radius, angle = points()
    here = (radius * np.cos(angle), radius * np.sin(angle))
    shifted = (here[0] + 0.3, here[1] - 0.2)
    turned = (radius * np.cos(angle + 0.5), radius * np.sin(angle + 0.5))
    spread = {
        (system, name): kernel_between(system, here, there, gamma).std()
        for system in SYSTEMS
        for name, there in (("shift", shifted), ("turn", turned))
    }
    assert spread["cartesian", "shift"] < 1e-12
    assert spread["polar", "turn"] < 1e-12
    assert spread["cartesian", "turn"] > 0.005
    assert spread["polar", "shift"] > 0.005


def test_gradients():
    phi = torch.randn(2, 3, 4, 4, dtype=torch.float64, requires_grad=True)
    for unit_norm in (False, True):
        module = encoding("polar", 4, fourier_coefficients(8, 2), unit_norm=unit_norm)
        assert torch.autograd.gradcheck(module, (phi,))


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("n", "kappa", "s"), [(8, 1, 1), (8, 8, 2), (8, 1, 2), (8, 8, 1), (16, 8, 2)])
@pytest.mark.parametrize("masked", [True, False])
def test_endpoints_grid_reproduces_the_first_authors_encodings(golden, system, n, kappa, s, masked):
    name = f"{'cart' if system == 'cartesian' else 'polar'}/n{n}/kappa{kappa}/s{s}/{'masked' if masked else 'unmasked'}"
    recorded = np.load(golden / "spatial_encoding.npz")[name]
    F = position_matrix(system, n, fourier_coefficients(kappa, s), grid="endpoints", center_weight=masked)
    ours = F.T.reshape(2 * s + 1, 2 * s + 1, n, n)
    if system == "polar":
        ours = ours.swapaxes(0, 1)  # recorded with the angle before the radius
    assert np.abs(ours.reshape(-1, n, n) - recorded).max() < 1e-6


@pytest.mark.parametrize("system", SYSTEMS)
def test_endpoints_grid_reproduces_the_first_authors_sums(golden, system):
    recorded = np.load(golden / "spatial_encoding.npz")
    name = f"example/{'cart' if system == 'cartesian' else 'polar'}/kappa8/s2"
    module = encoding(system, 8, fourier_coefficients(8, 2), grid="endpoints")
    ours = module(torch.from_numpy(recorded["example/input"]).double()).reshape(2, 3, 5, 5)
    if system == "polar":
        ours = ours.transpose(2, 3)
    ours = ours.flatten(1)
    assert np.abs(ours.numpy() - recorded[f"{name}/raw"]).max() < 1e-5  # float32 sums of 64 terms
    assert np.abs(torch.nn.functional.normalize(ours).numpy() - recorded[f"{name}/l2"]).max() < 1e-6


def test_position_matrix_is_exact_after_every_conversion():
    """A formula is computed again, never widened from rounded numbers or left uninitialised."""
    gamma = fourier_coefficients(8, 2)
    exact = torch.from_numpy(position_matrix("polar", 8, gamma))
    module = SpatialEncoding("polar", 8, gamma, grid="cells", center_weight=True, unit_norm=False)
    assert torch.equal(module.half().double().F, exact)
    assert torch.equal(module.float().F, exact.float())
    with torch.device("meta"):
        empty = SpatialEncoding("polar", 8, gamma, grid="cells", center_weight=True, unit_norm=False)
    assert torch.equal(empty.to_empty(device="cpu").F, exact.float())
    assert not module.state_dict()
