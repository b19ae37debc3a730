"""Where patches are sampled: flips, jitter and zoom as they are drawn, and the interpolation against brute force."""

import math

import numpy as np
import pytest
import torch
from scipy.stats import chi2, ks_2samp, kstest

from matchkernel.model.describe import resize_patches
from matchkernel.storage.settings import to_dict
from matchkernel.training.augment import (
    FLIPS,
    PHOTOMETRIC_COLUMNS,
    SQUARE,
    Augmentation,
    draw_photometric,
    draw_warps,
    sample_patches,
)
from matchkernel.training.config import TrainingConfig
from matchkernel.training.feed import PHOTOMETRIC, WARPS, generator_at

STILL = {"rotation_degrees": 0.0, "scale_octaves": 0.0, "shift": 0.0}
HARDNET = [  # what its script makes of a patch: the identity, a mirror, a transposition, a quarter turn clockwise
    lambda patch: patch,
    np.fliplr,
    lambda patch: patch.T,
    lambda patch: np.rot90(patch, -1),
]
OTHERS = [np.flipud, lambda patch: np.rot90(patch, 2), np.rot90, lambda patch: np.rot90(patch.T, 2)]
SOURCE = np.random.default_rng(0).integers(0, 256, (5, 64, 64), dtype=np.uint8)
IDENTITY = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
LIKELY = 1e-6  # a correct draw falls below this once in a million times; the draws are fixed, so the tests are too


def drawn(settings, count, seed=0, step=1):
    return draw_warps(settings, generator_at(seed, step, WARPS), count)


def sampled(source, warps, size, index=None):
    """(B, size, size); warps (..., 2, 3), of patch 0 by default."""
    warps = warps.reshape(-1, 2, 3).astype(np.float32)
    index = np.zeros(len(warps), np.int64) if index is None else np.asarray(index)
    values = sample_patches(torch.from_numpy(source), torch.from_numpy(index), torch.from_numpy(warps), size)
    assert values.shape == (len(warps), 1, size, size)
    assert values.dtype == torch.float32
    return values[:, 0].numpy()


def means(patches, size):
    """Each pixel the mean of a block; exact in float32 for 2 x 2."""
    side = patches.shape[-1] // size
    return patches.astype(np.float32).reshape(*patches.shape[:-2], size, side, size, side).mean((-3, -1))


def parts(warps):
    """Angle in degrees, octaves of scale, octaves of aspect, and shift of warps without flips."""
    linear = warps[..., :2].astype(np.float64)
    width, height = np.linalg.norm(linear[..., 0], axis=-1), np.linalg.norm(linear[..., 1], axis=-1)
    return {
        "rotation_degrees": np.degrees(np.arctan2(linear[..., 1, 0], linear[..., 0, 0])),
        "scale_octaves": np.log2(width * height) / 2,
        "aspect_octaves": np.log2(width / height),
        "shift": warps[..., 2].astype(np.float64),
    }


def is_uniform(values, low, high):
    """Within the range, and evenly distributed over it (Kolmogorov-Smirnov)."""
    flat = np.ravel(values)
    slack = 1e-6 * (high - low)  # the warps are float32
    is_inside = flat.min() >= low - slack and flat.max() <= high + slack
    return bool(is_inside and kstest(flat, "uniform", (low, high - low)).pvalue > LIKELY)


@pytest.mark.parametrize(
    ("flips", "allowed"), [("none", HARDNET[:1]), ("hardnet4", HARDNET), ("dihedral8", HARDNET + OTHERS)]
)
def test_flips_are_exactly_those_of_numpy_and_equally_likely(flips, allowed):
    """Bit for bit, of the patch itself (64 -> 64) and of its 2 x 2 means (64 -> 32), the same for both of a pair."""
    warps = drawn(Augmentation(flips, **STILL), 8000)
    assert np.array_equal(warps[0], warps[1])
    kinds = FLIPS[flips]
    counts = np.array([(warps[0, :, :, :2] == SQUARE[k]).all((1, 2)).sum() for k in range(kinds)])
    assert counts.sum() == 8000
    assert ((counts - 8000 / kinds) ** 2 / (8000 / kinds)).sum() <= chi2.ppf(1 - LIKELY, max(kinds - 1, 1))
    fixed = np.concatenate([SQUARE[:kinds], np.zeros((kinds, 2, 1))], -1)
    for size in (64, 32):
        for flip, found in zip(allowed, sampled(SOURCE, fixed, size), strict=True):
            assert np.array_equal(found, flip(means(SOURCE[0], size)))


def flips_of(linear):
    """Which of the eight flips each (..., 2, 2) is close to, and what is left without it."""
    which = np.abs(linear[..., None, :, :] - SQUARE).sum((-2, -1)).argmin(-1)
    return which, linear @ SQUARE[which].swapaxes(-1, -2)


@pytest.mark.parametrize("size", [32, 64])
def test_a_flip_acts_on_the_jittered_patch(size):
    """The patch turned, stretched and shifted, then numpy's flip; positions differ in the last bits, gray by 0.01."""
    warps = drawn(Augmentation("dihedral8", 8.0, 0.12, 0.1, 0.05), 40).reshape(-1, 2, 3)
    which, jitter = flips_of(warps[..., :2])
    assert set(which.tolist()) == set(range(8))
    jittered = sampled(SOURCE, np.concatenate([jitter, warps[..., 2:]], -1), size)
    for k, found, patch in zip(which, sampled(SOURCE, warps, size), jittered, strict=True):
        assert np.abs(found - (HARDNET + OTHERS)[k](patch)).max() < 0.01


AMOUNTS = {"rotation_degrees": 8.0, "scale_octaves": 0.12, "aspect_octaves": 0.3, "shift": 0.05}


def test_each_change_is_uniform_alone_and_independent_of_the_others():
    found = parts(drawn(Augmentation("none", **AMOUNTS), 2000, 5, 7))
    for name, amount in AMOUNTS.items():
        assert is_uniform(found[name], -amount, amount)
        alone = parts(drawn(Augmentation("none", **{**STILL, name: amount}), 2000, 5, 7))
        assert found[name] == pytest.approx(alone[name], abs=2e-5)  # switching on the others does not redraw it
        for other in AMOUNTS.keys() - {name}:
            assert np.abs(alone[other]).max() < 2e-5  # float32 of angles in degrees
    numbers = [found[name] for name in AMOUNTS if name != "shift"] + [found["shift"][..., k] for k in (0, 1)]
    rows = np.concatenate(numbers)  # 5 numbers of each of the two patches
    assert np.abs(np.corrcoef(rows) - np.eye(10)).max() < 0.12  # 2000 draws: 5 standard deviations


def test_a_pair_shares_its_flip_and_nothing_else():
    which, undone = flips_of(drawn(Augmentation("dihedral8", 8.0, 0.12, 0.1, 0.05), 1000)[..., :2].astype(np.float64))
    assert np.array_equal(which[0], which[1])
    assert np.abs(undone - np.eye(2)).max() < math.sin(math.radians(8)) * 1.15 + 0.15  # close to no change at all
    found = parts(np.concatenate([undone, np.zeros((2, 1000, 2, 1))], -1))
    for name in ("rotation_degrees", "scale_octaves", "aspect_octaves"):
        assert abs(np.corrcoef(found[name][0], found[name][1])[0, 1]) < 0.15  # 1000 draws: 5 standard deviations


def test_a_zoom_is_uniform_shared_by_a_pair_and_changes_nothing_else():
    plain, zoomed = (drawn(Augmentation(zoom_octaves=x), 2000, 2, 3).astype(np.float64) for x in (0.0, 0.75))
    octaves = -np.log2((zoomed / np.where(plain, plain, 1))[..., 2])
    assert np.abs(octaves - octaves[0, :, :1]).max() < 1e-5  # of both patches of a pair, in x and y
    assert is_uniform(octaves[0, :, 0], 0, 0.75)
    assert np.allclose(zoomed, plain * 2 ** -octaves[..., :1, None], atol=1e-6)
    assert np.array_equal(sampled(SOURCE, 0.5 * IDENTITY, 32)[0], SOURCE[0, 16:48, 16:48])  # an octave: the inner half


def test_light_is_uniform_in_its_ranges_and_drawn_for_each_patch():
    settings = Augmentation(gamma=0.5, contrast=0.3, light_gradient=0.25, blur=1.5, noise=8.0)
    values = draw_photometric(settings, generator_at(0, 1, PHOTOMETRIC), 2000).astype(np.float64)
    column = dict(zip(PHOTOMETRIC_COLUMNS, np.moveaxis(values, -1, 0), strict=True))
    for name, low, high in (
        ("slope_x", -0.25, 0.25), ("slope_y", -0.25, 0.25), ("blur", 0, 1.5), ("noise", 0, 8), ("noise_seed", 0, 2**23),
    ):  # fmt: skip
        assert is_uniform(column[name], low, high)
    assert is_uniform(np.log(column["gamma"]), -0.5, 0.5)
    assert is_uniform(np.log(column["contrast"]), -0.3, 0.3)
    assert np.array_equal(column["noise_seed"], np.round(column["noise_seed"]))  # whole numbers that float32 holds
    rows = values.transpose(0, 2, 1).reshape(14, -1)
    assert np.abs(np.corrcoef(rows) - np.eye(14)).max() < 0.12  # 2000 draws: 5 standard deviations


def linear(patch, x, y):
    """Bilinear interpolation at one place in pixels, in float64; beyond the border its outermost pixel."""
    S = len(patch)
    x, y = (min(max(value, 0.0), S - 1.0) for value in (x, y))
    left, top = min(math.floor(x), S - 2), min(math.floor(y), S - 2)
    fx, fy = x - left, y - top
    corners = patch[top : top + 2, left : left + 2].astype(np.float64)
    return np.array([1 - fy, fy]) @ corners @ np.array([1 - fx, fx])


def by_brute_force(patch, warp, size, finer):
    """Every pixel by itself: the mean of finer x finer places spread over it."""
    S, result = len(patch), np.zeros((size, size))
    offsets = (np.arange(finer) + 0.5) / finer
    for row in range(size):
        for column in range(size):
            values = []
            for dy in offsets:
                for dx in offsets:
                    u, v = (column + dx) * 2 / size - 1, (row + dy) * 2 / size - 1
                    x, y = warp[:, :2].astype(np.float64) @ (u, v) + warp[:, 2]
                    values.append(linear(patch, (x + 1) * S / 2 - 0.5, (y + 1) * S / 2 - 0.5))
            result[row, column] = np.mean(values)
    return result


STRONG = Augmentation("dihedral8", 40.0, 0.6, 0.4, 0.4)


@pytest.mark.parametrize(
    ("S", "size", "finer"), [(64, 32, 1), (64, 64, 1), (64, 16, 2), (65, 32, 2), (64, 24, 2), (16, 24, 1), (64, 8, 4)]
)
def test_a_warp_by_brute_force(S, size, finer):
    """Positions in float32 are right to 1e-5 pixels, and pixels differ by 255 at most: gray levels to 0.01."""
    source = np.random.default_rng(S).integers(0, 256, (2, S, S), dtype=np.uint8)
    for k, warp in enumerate(drawn(STRONG, 2)[:, 0]):
        found = sampled(source, warp, size, [k])[0]
        assert np.abs(found - by_brute_force(source[k], warp, size, finer)).max() < 0.01


def test_without_a_warp_a_smaller_patch_is_the_mean_of_blocks_as_in_testing():
    """So the finest pattern, a checkerboard of pixels, does not come back as a coarse one."""
    source = np.concatenate([SOURCE, (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)[None]])
    for size in (64, 32, 16, 8):
        found = sampled(source, np.stack([IDENTITY] * 6), size, range(6))
        assert np.abs(found - means(source, size)).max() <= (0 if size >= 32 else 1e-4)  # float32 sums
        if size == 32:
            in_testing = resize_patches(torch.from_numpy(source)[:, None].float(), 32)
            assert np.array_equal(in_testing[:, 0].numpy(), found)


def test_every_patch_is_sampled_by_itself_and_within_its_range():
    source = np.clip(SOURCE, 10, 200)
    warps = drawn(Augmentation("dihedral8", 180.0, 2.0, 2.0, 1.0), 50).reshape(-1, 2, 3)
    index = np.arange(100) % 5
    together = sampled(source, warps, 32, index)
    assert together.min() >= 10 - 1e-4
    assert together.max() <= 200 + 1e-4
    assert np.array_equal(sampled(source, warps[::-1], 32, index[::-1].copy()), together[::-1])


def a_window_of_torchvision(random, crop):
    """RandomResizedCrop.get_params with scale (1 - crop, 1), ratio (1 - crop, 1 + crop) on a unit square."""
    for _ in range(10):
        area = random.uniform(1 - crop, 1)
        ratio = math.exp(random.uniform(math.log(1 - crop), math.log(1 + crop)))
        width, height = math.sqrt(area * ratio), math.sqrt(area / ratio)
        if width <= 1 and height <= 1:
            return width, height, random.uniform(0, 1 - width), random.uniform(0, 1 - height)
    return 1.0, 1.0, 0.0, 0.0


def test_a_crop_is_a_window_of_the_rotated_patch_as_torchvision_draws_it():
    """Turned back, every warp is a rectangle along the axes within the patch, of the same distribution."""
    count, crop = 4000, 0.1
    settings = Augmentation(flips="none", rotation_degrees=5.0, scale_octaves=0.0, shift=0.0, crop=crop)
    warps = drawn(settings, count // 2).reshape(-1, 2, 3).astype(np.float64)
    t = np.arctan2(warps[:, 1, 0], warps[:, 0, 0])
    assert 4.9 < np.abs(np.degrees(t)).max() <= 5.001
    back = np.stack([np.stack([np.cos(t), np.sin(t)], -1), np.stack([-np.sin(t), np.cos(t)], -1)], -2) @ warps
    assert np.allclose(back[:, [0, 1], [1, 0]], 0, atol=1e-6)
    sides, low = back[:, [0, 1], [0, 1]], back[:, :, 2] - back[:, [0, 1], [0, 1]]
    assert np.abs(back[:, :, 2]).max() > 0.02
    assert (np.abs(back[:, :, 2]) + sides).max() <= 1 + 1e-6
    random = np.random.default_rng(0)
    expected = np.array([a_window_of_torchvision(random, crop) for _ in range(count)])
    found = np.concatenate([sides, (low + 1) / 2], 1)
    for k in range(4):
        assert ks_2samp(found[:, k], expected[:, k]).pvalue > LIKELY
    area, other = found[:, 0] * found[:, 1], expected[:, 0] * expected[:, 1]
    assert ks_2samp(area, other).pvalue > LIKELY


def test_without_a_crop_the_draws_are_those_of_earlier_versions():
    plain = drawn(Augmentation(**AMOUNTS), 8)
    assert not np.array_equal(plain, drawn(Augmentation(**AMOUNTS, crop=0.1), 8))
    assert "crop" not in to_dict(Augmentation(**AMOUNTS))


def test_the_preset_hardnet_augmentation_is_hardnets_script_with_that_option():
    plain, other = (
        TrainingConfig.from_dict({"preset": name, "data": {"train": "none"}}).to_dict()
        for name in ("hardnet", "hardnet-augmentation")
    )
    changed = {"rotation_degrees": 5.0, "crop": 0.1}
    assert other == {**plain, "preset": "hardnet-augmentation", "augmentation": {**plain["augmentation"], **changed}}
