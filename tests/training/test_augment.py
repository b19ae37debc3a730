import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, kstest

from matchkernel.training.augment import (
    FLIPS,
    PHOTOMETRIC_COLUMNS,
    SQUARE,
    Augmentation,
    draw_photometric,
    draw_warps,
    sample_patches,
)
from matchkernel.training.feed import PHOTOMETRIC, WARPS, generator_at

STILL = {"rotation_degrees": 0.0, "scale_octaves": 0.0, "shift": 0.0}
HARDNET = [  # what its script makes of a patch: a coin for a transposition, then a coin for a mirror
    lambda patch: patch,
    lambda patch: patch[:, ::-1],
    lambda patch: patch.T,
    lambda patch: patch.T[:, ::-1],
]
OTHERS = [
    lambda patch: patch[::-1],
    lambda patch: patch[::-1, ::-1],
    lambda patch: patch.T[::-1],
    lambda patch: patch.T[::-1, ::-1],
]
PATCH = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
LIKELY = 1e-6  # a right draw falls below once in a million; the draws are fixed, so it is not up to chance


def means(patch):
    """The mean of each 2 x 2 block: exact in float32."""
    return patch.astype(np.float32).reshape(32, 2, 32, 2).mean((1, 3))


def sampled(warps, size):
    """The patch under each warp (..., 2, 3): (..., size, size)."""
    flat = torch.from_numpy(warps.reshape(-1, 2, 3))
    index = torch.zeros(len(flat), dtype=torch.int64)
    values = sample_patches(torch.from_numpy(PATCH)[None], index, flat, size)
    return values.numpy().reshape(*warps.shape[:-2], size, size)


def parts(warps):
    """Angle in degrees, octaves of scale, octaves of aspect, and shift of warps without flips."""
    linear = warps[..., :2].astype(np.float64)
    width, height = np.linalg.norm(linear[..., 0], axis=-1), np.linalg.norm(linear[..., 1], axis=-1)
    angle = np.degrees(np.arctan2(linear[..., 1, 0], linear[..., 0, 0]))
    return {
        "rotation_degrees": angle,
        "scale_octaves": np.log2(width * height) / 2,
        "aspect_octaves": np.log2(width / height),
        "shift": warps[..., 2].astype(np.float64),
    }


def is_uniform(values, low, high):
    """Within the range, and spread over it evenly (Kolmogorov-Smirnov)."""
    flat = np.ravel(values)
    slack = 1e-6 * (high - low)  # the warps are float32
    is_inside = flat.min() >= low - slack and flat.max() <= high + slack
    return bool(is_inside and kstest(flat, "uniform", (low, high - low)).pvalue > LIKELY)


@pytest.mark.parametrize(
    ("flips", "allowed"), [("none", HARDNET[:1]), ("hardnet4", HARDNET), ("dihedral8", HARDNET + OTHERS)]
)
def test_flips_are_exactly_numpys(flips, allowed):
    """Bit for bit, of the patch itself (64 -> 64) and of its 2 x 2 means (64 -> 32), the same for both of a pair."""
    warps = draw_warps(Augmentation(flips, **STILL), generator_at(0, 1, WARPS), 64)
    assert warps.shape == (2, 64, 2, 3)
    assert warps.dtype == np.float32
    assert np.array_equal(warps[0], warps[1])
    for size, reduced in ((64, PATCH.astype(np.float32)), (32, means(PATCH))):
        expected = {np.ascontiguousarray(flip(reduced)).tobytes() for flip in allowed}
        assert len(expected) == len(allowed)
        assert {patch.tobytes() for patch in sampled(warps, size)[0]} == expected


def test_hardnets_last_is_a_quarter_turn_clockwise():
    """As protocols.md names the four outcomes; numpy's rot90 turns the other way."""
    warps = np.concatenate([SQUARE[:4], np.zeros((4, 2, 1))], -1).astype(np.float32)
    turned = sampled(warps, 64)
    assert np.array_equal(turned[0], PATCH)
    assert np.array_equal(turned[1], np.fliplr(PATCH))
    assert np.array_equal(turned[2], PATCH.T)
    assert np.array_equal(turned[3], np.rot90(PATCH, -1))


@pytest.mark.parametrize("flips", ["hardnet4", "dihedral8"])
def test_flips_are_equally_likely(flips):
    warps = draw_warps(Augmentation(flips, **STILL), generator_at(3, 1, WARPS), 8000)[0, :, :, :2]
    kinds = FLIPS[flips]
    counts = np.array([(warps == SQUARE[k]).all((1, 2)).sum() for k in range(kinds)])
    assert counts.sum() == 8000
    assert ((counts - 8000 / kinds) ** 2 / (8000 / kinds)).sum() < chi2.ppf(1 - LIKELY, kinds - 1)


def flips_of(linear):
    """Which of the eight flips each (..., 2, 2) is close to, and what is left without it."""
    which = np.abs(linear[..., None, :, :] - SQUARE).sum((-2, -1)).argmin(-1)
    return which, linear @ SQUARE[which].swapaxes(-1, -2)


@pytest.mark.parametrize("size", [32, 64])
def test_a_flip_acts_on_the_jittered_patch(size):
    """The patch turned, stretched and shifted, then numpy's flip; positions differ in the last bits, gray by 0.01."""
    warps = draw_warps(Augmentation("dihedral8", 8.0, 0.12, 0.1, 0.05), generator_at(0, 1, WARPS), 40).reshape(-1, 2, 3)
    which, jitter = flips_of(warps[..., :2])
    assert set(which.tolist()) == set(range(8))
    jittered = sampled(np.concatenate([jitter, warps[..., 2:]], -1).astype(np.float32), size)
    for k, found, patch in zip(which, sampled(warps, size), jittered, strict=True):
        assert np.abs(found - (HARDNET + OTHERS)[k](patch)).max() < 0.01


def test_flips_are_shared_by_a_pair_and_the_rest_is_not():
    jitter = Augmentation("dihedral8", 8.0, 0.12, 0.1, 0.05)
    linear = draw_warps(jitter, generator_at(0, 1, WARPS), 1000)[..., :2].astype(np.float64)
    which, undone = flips_of(linear)
    assert np.array_equal(which[0], which[1])
    assert set(which[0].tolist()) == set(range(8))
    assert np.abs(undone - np.eye(2)).max() < math.sin(math.radians(8)) * 1.15 + 0.15  # close to no change at all
    found = parts(np.concatenate([undone, np.zeros((2, 1000, 2, 1))], -1))
    for name in ("rotation_degrees", "scale_octaves", "aspect_octaves"):
        assert is_uniform(found[name], -getattr(jitter, name), getattr(jitter, name))
        assert abs(np.corrcoef(found[name][0], found[name][1])[0, 1]) < 0.15  # 1000 draws: 5 standard deviations


AMOUNTS = {"rotation_degrees": 8.0, "scale_octaves": 0.12, "aspect_octaves": 0.3, "shift": 0.05}


@pytest.mark.parametrize("name", AMOUNTS)
def test_each_change_alone_is_uniform_and_changes_nothing_else(name):
    amount = AMOUNTS[name]
    found = parts(draw_warps(Augmentation("none", **{**STILL, name: amount}), generator_at(0, 1, WARPS), 2000))
    assert is_uniform(found[name], -amount, amount)
    for other in AMOUNTS.keys() - {name}:
        assert np.abs(found[other]).max() < 2e-5  # float32 of angles in degrees


def test_all_changes_together_are_uniform_and_independent():
    found = parts(draw_warps(Augmentation("none", **AMOUNTS), generator_at(5, 7, WARPS), 2000))
    rows = []
    for name, amount in AMOUNTS.items():
        assert is_uniform(found[name], -amount, amount)
        rows += [found[name][..., 0], found[name][..., 1]] if name == "shift" else [found[name]]
    rows = np.concatenate([np.stack([row[0], row[1]]) for row in rows])  # 5 numbers of each of the two patches
    correlation = np.corrcoef(rows) - np.eye(10)
    assert np.abs(correlation).max() < 0.12  # 2000 draws: 5 standard deviations


def test_a_zoom_is_uniform_shared_by_a_pair_and_changes_nothing_else():
    plain, zoomed = (
        draw_warps(Augmentation(zoom_octaves=x), generator_at(2, 3, WARPS), 2000).astype(np.float64)
        for x in (0.0, 0.75)
    )
    ratio = zoomed / np.where(plain, plain, 1)
    octaves = -np.log2(ratio[..., 2])
    assert np.abs(octaves - octaves[0, :, :1]).max() < 1e-5  # of both patches of a pair, in x and y
    assert is_uniform(octaves[0, :, 0], 0, 0.75)
    assert np.allclose(zoomed, plain * 2 ** -octaves[..., :1, None], atol=1e-6)


def test_an_octave_of_zoom_shows_the_inner_half_bit_for_bit():
    half = 0.5 * np.eye(2, 3, dtype=np.float32)
    assert np.array_equal(sampled(half[None], 32)[0], PATCH[16:48, 16:48])


def test_the_papers_preset_is_the_default():
    assert Augmentation() == Augmentation("dihedral8", rotation_degrees=8.0, scale_octaves=0.12, shift=0.05)
    assert not Augmentation().is_photometric


@pytest.mark.parametrize(("draw", "purpose"), [(draw_warps, WARPS), (draw_photometric, PHOTOMETRIC)])
def test_draws_follow_from_seed_and_step_alone(draw, purpose):
    settings = Augmentation(gamma=0.5, noise=3.0)
    first = draw(settings, generator_at(3, 9, purpose), 50)
    draw(settings, generator_at(3, 10, purpose), 50)
    assert np.array_equal(draw(settings, generator_at(3, 9, purpose), 50), first)
    different = {
        draw(settings, generator_at(seed, step, purpose), 50).tobytes() for seed in range(4) for step in range(1, 6)
    }
    assert len(different) == 20


@pytest.mark.parametrize("name", ["gamma", "contrast", "light_gradient", "blur", "noise", "jpeg"])
def test_any_change_of_light_is_noticed(name):
    assert Augmentation(**{name: 1 if name == "jpeg" else 0.1}).is_photometric


EVERYTHING = {"gamma": 0.5, "contrast": 0.3, "light_gradient": 0.25, "blur": 1.5, "noise": 8.0, "jpeg": 30}


def test_light_is_uniform_in_its_ranges_and_drawn_for_each_patch():
    drawn = draw_photometric(Augmentation(**EVERYTHING), generator_at(0, 1, PHOTOMETRIC), 2000)
    assert drawn.shape == (2, 2000, 8)
    assert drawn.dtype == np.float32
    column = dict(zip(PHOTOMETRIC_COLUMNS, np.moveaxis(drawn.astype(np.float64), -1, 0), strict=True))
    assert is_uniform(np.log(column["gamma"]), -0.5, 0.5)
    assert is_uniform(np.log(column["contrast"]), -0.3, 0.3)
    assert is_uniform(column["slope_x"], -0.25, 0.25)
    assert is_uniform(column["slope_y"], -0.25, 0.25)
    assert is_uniform(column["blur"], 0, 1.5)
    assert is_uniform(column["noise"], 0, 8)
    assert is_uniform(column["quality"], 30, 100)
    rows = drawn.reshape(2, -1, 8).transpose(0, 2, 1).reshape(16, -1)
    assert np.abs(np.corrcoef(rows) - np.eye(16)).max() < 0.12  # 2000 draws: 5 standard deviations


def test_seeds_of_noise_are_whole_numbers_that_float32_holds():
    drawn = draw_photometric(Augmentation(**EVERYTHING), generator_at(0, 1, PHOTOMETRIC), 2000)
    seeds = drawn[..., PHOTOMETRIC_COLUMNS.index("noise_seed")].astype(np.float64)
    assert np.array_equal(seeds, np.round(seeds))
    assert seeds.min() >= 0
    assert seeds.max() < 2**23
    assert is_uniform(seeds, 0, 2**23)


def test_light_that_is_off_is_drawn_as_no_change():
    drawn = draw_photometric(Augmentation(), generator_at(0, 1, PHOTOMETRIC), 10)
    neutral = {"gamma": 1, "contrast": 1, "slope_x": 0, "slope_y": 0, "blur": 0, "noise": 0}
    for name, value in neutral.items():
        assert (drawn[..., PHOTOMETRIC_COLUMNS.index(name)] == value).all()


def test_switching_one_change_on_does_not_redraw_the_others():
    """A change can be studied alone: what else was drawn stays."""
    base = draw_warps(Augmentation("none", 8.0, 0.0, 0.0, 0.05), generator_at(0, 1, WARPS), 20)
    more = draw_warps(Augmentation("none", 8.0, 0.12, 0.0, 0.05), generator_at(0, 1, WARPS), 20)
    for name in ("rotation_degrees", "shift"):
        assert parts(base)[name] == pytest.approx(parts(more)[name], abs=2e-5)
    assert not np.allclose(base, more, atol=1e-3)
