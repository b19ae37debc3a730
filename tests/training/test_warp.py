import math

import numpy as np
import pytest
import torch

from matchkernel.model.describe import resize_patches
from matchkernel.training.augment import Augmentation, draw_warps, sample_patches
from matchkernel.training.feed import WARPS, generator_at

SOURCE = np.random.default_rng(0).integers(0, 256, (5, 64, 64), dtype=np.uint8)
IDENTITY = np.array([[1, 0, 0], [0, 1, 0]], np.float32)
STRONG = Augmentation("dihedral8", 40.0, 0.6, 0.4, 0.4)


def sampled(source, warps, size, index=None):
    """(B, size, size); warps (2, 3) or (B, 2, 3), patch 0 unless said otherwise."""
    warps = warps.reshape(-1, 2, 3).astype(np.float32)
    index = np.zeros(len(warps), np.int64) if index is None else np.asarray(index)
    values = sample_patches(torch.from_numpy(source), torch.from_numpy(index), torch.from_numpy(warps), size)
    assert values.shape == (len(warps), 1, size, size)
    assert values.dtype == torch.float32
    return values[:, 0].numpy()


def linear(patch, x, y):
    """Bilinear interpolation at one place in pixels, in float64; beyond the border its outermost pixel."""
    S = len(patch)
    x, y = (min(max(value, 0.0), S - 1.0) for value in (x, y))
    left, top = min(math.floor(x), S - 2), min(math.floor(y), S - 2)
    fx, fy = x - left, y - top
    corners = patch[top : top + 2, left : left + 2].astype(np.float64)
    return (1 - fy) * ((1 - fx) * corners[0, 0] + fx * corners[0, 1]) + fy * (
        (1 - fx) * corners[1, 0] + fx * corners[1, 1]
    )


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


@pytest.mark.parametrize(
    ("S", "size", "finer"), [(64, 32, 1), (64, 64, 1), (64, 16, 2), (65, 32, 2), (64, 24, 2), (16, 24, 1), (64, 8, 4)]
)
def test_a_warp_by_brute_force(S, size, finer):
    """Positions in float32 are right to 1e-5 pixels, and pixels differ by 255 at most: gray levels to 0.01."""
    source = np.random.default_rng(S).integers(0, 256, (2, S, S), dtype=np.uint8)
    for k, warp in enumerate(draw_warps(STRONG, generator_at(0, 1, WARPS), 2)[:, 0]):
        found = sampled(source, warp, size, [k])[0]
        assert np.abs(found - by_brute_force(source[k], warp, size, finer)).max() < 0.01


def test_halving_is_the_exact_mean_of_four_pixels_as_in_testing():
    halves = sampled(SOURCE, np.stack([IDENTITY] * 5), 32, range(5))
    means = SOURCE.astype(np.float32).reshape(5, 32, 2, 32, 2).mean((2, 4))
    assert np.array_equal(halves, means)
    assert np.array_equal(resize_patches(torch.from_numpy(SOURCE)[:, None].float(), 32)[:, 0].numpy(), means)


def test_the_same_size_is_the_patch_itself():
    assert np.array_equal(sampled(SOURCE, np.stack([IDENTITY] * 5), 64, range(5)), SOURCE)


@pytest.mark.parametrize("size", [16, 8])
def test_smaller_sizes_are_exact_means_too(size):
    side = 64 // size
    means = SOURCE.astype(np.float32).reshape(5, size, side, size, side).mean((2, 4))
    assert np.abs(sampled(SOURCE, np.stack([IDENTITY] * 5), size, range(5)) - means).max() < 1e-4  # float32 sums


@pytest.mark.parametrize("size", [32, 16, 8])
def test_a_checkerboard_of_pixels_becomes_flat_gray(size):
    """The finest pattern there is does not come back as a coarse one."""
    board = (np.indices((64, 64)).sum(0) % 2 * 255).astype(np.uint8)[None]
    assert (sampled(board, IDENTITY, size) == 127.5).all()
    lines = np.tile(np.arange(64) % 2 * 255, (64, 1)).astype(np.uint8)[None]
    assert (sampled(lines, IDENTITY, size) == 127.5).all()
    assert sampled(board, IDENTITY, 64).std() > 100


@pytest.mark.parametrize("size", [64, 32, 16])
def test_an_image_that_is_linear_is_sampled_exactly(size):
    """Gray = 2 x + y at every place inside: angle, scale and shift are where they should be, whatever the size."""
    y, x = np.mgrid[:64, :64]
    ramp = (2 * x + y).astype(np.uint8)[None]
    warps = draw_warps(Augmentation("dihedral8", 30.0, 0.2, 0.2, 0.1), generator_at(0, 1, WARPS), 20).reshape(-1, 2, 3)
    warps[..., :2] *= 0.5  # stays inside
    t = (np.arange(size) + 0.5) * 2 / size - 1
    u, v = np.meshgrid(t, t)
    for warp, found in zip(warps.astype(np.float64), sampled(ramp, warps, size), strict=True):
        at = np.einsum("ij,jrc->irc", warp[:, :2], np.stack([u, v])) + warp[:, 2, None, None]
        at_x, at_y = (at + 1) * 32 - 0.5
        assert min(at_x.min(), at_y.min()) > 0
        assert max(at_x.max(), at_y.max()) < 63
        assert np.abs(found - (2 * at_x + at_y)).max() < 1e-3


@pytest.mark.parametrize(("right", "down"), [(3, 0), (0, -5), (-7, 2), (63, 0), (100, -100)])
def test_a_shift_by_whole_pixels_repeats_the_border(right, down):
    warp = IDENTITY.copy()
    warp[:, 2] = right / 32, down / 32  # in half sides
    rows, columns = (np.clip(np.arange(64) + by, 0, 63) for by in (down, right))
    assert np.array_equal(sampled(SOURCE, warp, 64)[0], SOURCE[0][np.ix_(rows, columns)])


def test_a_quarter_turn_of_the_warp_turns_the_patch():
    turned = np.array([[0, 1, 0], [-1, 0, 0]], np.float32)
    assert np.array_equal(sampled(SOURCE, turned, 64)[0], np.rot90(SOURCE[0], -1))


def test_a_warp_says_where_the_output_looks():
    """Turned clockwise (y is down) it looks below what was on the right: the content turns the other way."""
    angle = math.radians(8)
    warp = np.array([[math.cos(angle), -math.sin(angle), 0], [math.sin(angle), math.cos(angle), 0]])
    y, x = np.mgrid[:64, :64] - 31.5
    spot = (255 * np.exp(-((x - 20) ** 2 + y**2) / 18)).astype(np.uint8)[None]  # on the right
    found = sampled(spot, warp, 64)[0].astype(np.float64)
    centre = (found * y).sum() / found.sum()
    assert centre == pytest.approx(-20 * math.sin(angle), abs=0.1)


def test_nothing_leaves_the_range_of_the_patch():
    warps = draw_warps(Augmentation("dihedral8", 180.0, 2.0, 2.0, 1.0), generator_at(0, 1, WARPS), 100).reshape(
        -1, 2, 3
    )
    for size in (32, 64):
        values = sampled(np.clip(SOURCE, 10, 200), warps, size, np.arange(200) % 5)
        assert values.min() >= 10 - 1e-4
        assert values.max() <= 200 + 1e-4
        assert np.isfinite(values).all()


def test_every_patch_is_sampled_by_itself_and_the_same_every_time():
    warps = draw_warps(STRONG, generator_at(0, 1, WARPS), 10).reshape(-1, 2, 3)
    index = np.arange(20) % 5
    together = sampled(SOURCE, warps, 32, index)
    assert np.array_equal(sampled(SOURCE, warps, 32, index), together)
    for k in (0, 7, 19):
        assert np.array_equal(sampled(SOURCE, warps[k], 32, [index[k]])[0], together[k])
    assert np.array_equal(sampled(SOURCE, warps[::-1], 32, index[::-1].copy()), together[::-1])
    assert sampled(SOURCE, warps[:0], 32, index[:0]).shape == (0, 32, 32)


def test_the_source_stays_as_it_is_and_may_be_a_view():
    before = SOURCE.copy()
    warps = draw_warps(STRONG, generator_at(0, 1, WARPS), 3).reshape(-1, 2, 3)
    every_second = torch.from_numpy(np.repeat(SOURCE, 2, 0))[::2]
    index = torch.arange(6) % 5
    found = sample_patches(every_second, index, torch.from_numpy(warps), 32)[:, 0].numpy()
    assert np.array_equal(found, sampled(SOURCE, warps, 32, index.numpy()))
    assert np.array_equal(SOURCE, before)
