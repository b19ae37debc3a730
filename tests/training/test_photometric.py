"""Changes of gray values: equal to their formulas and to SciPy, within the range, each patch on its own."""

import math

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter
from scipy.stats import kstest, norm

from matchkernel.training.augment import (
    BLUR_RADIUS,
    PHOTOMETRIC_COLUMNS,
    Augmentation,
    change_photometric,
    draw_photometric,
)
from matchkernel.training.feed import PHOTOMETRIC, generator_at

NEUTRAL = {**dict.fromkeys(PHOTOMETRIC_COLUMNS, 0), "gamma": 1, "contrast": 1}
AMOUNTS = ("gamma", "contrast", "light_gradient", "blur", "noise")
ALL_ON = Augmentation(gamma=1.0, contrast=1.0, light_gradient=0.5, blur=3.0, noise=60.0)


def light(**columns):
    """(B, 7): given columns, each a list of B numbers, and nothing else changed."""
    count = len(next(iter(columns.values())))
    rows = {**{name: [value] * count for name, value in NEUTRAL.items()}, **columns}
    return torch.tensor([rows[name] for name in PHOTOMETRIC_COLUMNS], dtype=torch.float32).T.contiguous()


def changed(patches, settings, **columns):
    return change_photometric(patches, light(**columns), Augmentation(**settings))


def flat(gray, count=1, size=32):
    return torch.full((count, 1, size, size), float(gray))


@pytest.mark.parametrize("name", AMOUNTS)
def test_a_change_of_amount_0_changes_nothing(name, textures):
    """Gray levels 0 to 255 in float32 have steps of 1.5e-5: a few of them."""
    patches = textures(3)
    assert (changed(patches, {name: 0.3}, noise_seed=[1, 2, 3]) - patches).abs().max() < 1e-4


def test_gamma_is_a_power_and_keeps_black_and_white(textures):
    patches = textures(4)
    patches[0, 0, 0, :2] = torch.tensor([0.0, 255.0])
    for exponent in (0.5, 0.8, 1.3, 2.0):
        found = changed(patches, {"gamma": 1.0}, gamma=[exponent] * 4).double()
        assert (found - 255 * (patches.double() / 255) ** exponent).abs().max() < 1e-3
        assert found[0, 0, 0, :2].tolist() == [0, 255]


def test_a_gradient_of_light_is_linear_and_1_at_the_centre():
    slopes = torch.tensor([[0.5, 0.0], [0.0, -0.4], [0.3, 0.2]], dtype=torch.float64)
    found = changed(flat(100, 3), {"light_gradient": 0.5}, slope_x=slopes[:, 0], slope_y=slopes[:, 1])[:, 0].double()
    for (sx, sy), patch in zip(slopes.tolist(), found, strict=True):
        for row in (0, 5, 31):
            for column in (0, 16, 31):
                u, v = (column + 0.5) / 16 - 1, (row + 0.5) / 16 - 1
                assert patch[row, column].item() == pytest.approx(100 * (1 + sx * u + sy * v), abs=1e-4)
        assert patch.mean().item() == pytest.approx(100, abs=1e-4)


def test_contrast_stretches_about_the_mean_and_saturates():
    patch = torch.tensor([60.0, 100.0, 100.0, 140.0]).view(1, 1, 2, 2).repeat(1, 1, 4, 4)
    for factor in (0.25, 1.0, 2.0):
        found = changed(patch, {"contrast": 2.0}, contrast=[factor])
        assert torch.allclose(found, 100 + factor * (patch - 100), atol=1e-4)
    saturated = changed(patch, {"contrast": 2.0}, contrast=[7.0])  # -180, 100 and 380
    assert torch.equal(saturated.unique(), torch.tensor([0.0, 100.0, 255.0]))


@pytest.mark.parametrize("size", [32, 16, 13])
def test_blur_is_scipys(size, textures):
    """The same Gaussian, cut at the same radius, borders repeated; each patch by its own sigma."""
    sigmas = [0.3, 0.5, 1.0, 1.7, 2.4, 3.0]
    patches = textures(len(sigmas), size) + 20 * torch.rand(
        6, 1, size, size, generator=torch.Generator().manual_seed(1)
    )
    patches = patches.clamp(0, 255)
    found = changed(patches, {"blur": 3.0}, blur=sigmas)[:, 0].numpy()
    for sigma, patch, ours in zip(sigmas, patches[:, 0].double().numpy(), found, strict=True):
        expected = gaussian_filter(patch, sigma, mode="nearest", radius=BLUR_RADIUS)
        assert np.abs(ours - expected).max() < 1e-3
        assert np.abs(patch - expected).max() > 0.5  # something happened


def noise_of(seeds, amounts=None, size=32):
    """What is added to mid-gray patches, in units of the standard deviation."""
    amounts = amounts or [10.0] * len(seeds)
    found = changed(flat(127.5, len(seeds), size), {"noise": 255.0}, noise=amounts, noise_seed=seeds)
    return (found - 127.5)[:, 0].double().numpy() / np.array(amounts)[:, None, None]


def test_noise_is_white_and_standard_normal_times_its_amount():
    """Neighbouring pixels, the two axes and different patches are independent."""
    values = noise_of(list(range(0, 4000, 100)), [1.0, 5.0, 10.0, 20.0] * 10)
    error = 5 / math.sqrt(values.size)  # five standard errors
    assert abs(values.mean()) < error
    assert kstest(values.ravel(), norm.cdf).pvalue > 1e-6
    assert np.abs(values.std((1, 2)) - 1).max() < 5 / math.sqrt(2 * 1024)  # for every amount
    assert abs((values[:, :, 1:] * values[:, :, :-1]).mean()) < error
    assert abs((values[:, 1:] * values[:, :-1]).mean()) < error
    assert np.abs(np.corrcoef(values.reshape(40, -1)) - np.eye(40)).max() < 5.5 / math.sqrt(1024)
    assert np.abs(values.mean(0)).max() < 5.5 / math.sqrt(40)  # no pixel is special


def test_noise_follows_from_the_seed_of_the_patch_alone():
    seeds = [3, 77, 2**23 - 1, 0]
    together = noise_of(seeds)
    assert np.array_equal(noise_of(seeds), together)
    for k, seed in enumerate(seeds):
        assert np.array_equal(noise_of([seed])[0], together[k])
    many = noise_of(list(range(0, 2**23, 2**13)))
    assert len({np.sort(patch.ravel()).tobytes() for patch in many}) == 1024  # nor are they exchanged pixels of another


@pytest.mark.parametrize("size", [32, 20])
def test_patches_are_changed_one_by_one_within_0_to_255_and_by_what_is_on(size, textures):
    patches = torch.cat([textures(60, size), flat(0, 10, size), flat(255, 10, size)])
    before = patches.clone()
    drawn = torch.from_numpy(draw_photometric(ALL_ON, generator_at(0, 1, PHOTOMETRIC), 80)[0])
    settings = [ALL_ON, *(Augmentation(**{name: getattr(ALL_ON, name)}) for name in AMOUNTS)]
    for some in settings:
        found = change_photometric(patches, drawn, some)
        assert found.shape == patches.shape
        assert found.min() >= 0
        assert found.max() <= 255
        assert not torch.equal(found, patches)
        assert (change_photometric(patches[7:8], drawn[7:8], some) - found[7]).abs().max() < 1e-3
    assert torch.equal(change_photometric(patches, drawn, Augmentation()), patches)
    assert torch.equal(patches, before)
