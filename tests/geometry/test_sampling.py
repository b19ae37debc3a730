import cv2
import numpy as np
import pytest
import torch
from helpers import refuses

from matchkernel.errors import ArgumentError
from matchkernel.geometry.device_sampling import extract_patches_on
from matchkernel.geometry.frames import Frames, extract_patches

ROUNDING = 1e-3  # of float32 ramps up to 2,000 and cv2's float32 coordinates


def ramp(width, height):
    """Every pixel tells its place: x + 2 y."""
    y, x = np.mgrid[:height, :width]
    return (x + 2 * y).astype(np.float32)


def places(frames, size):
    """(K, size, size, 2) where the definition samples: c + A (u_k, u_l), u_k = (2k + 1) / size - 1."""
    u = (2 * np.arange(size) + 1) / size - 1
    grid = np.stack(np.meshgrid(u, u), -1)
    return frames.centers[:, None, None] + np.einsum("kij,rcj->krci", frames.shapes, grid)


def at_level(level, size, first, last):
    """Frames of this level whose outermost samples stand on `first`, in the middle, and on `last`."""
    step = 2.0**level
    reach = (size - 1) / 2 * step
    centers = np.stack([first + reach, (first + last) / 2, last - reach])
    return Frames.turned_squares(centers, np.full(3, step * size / 2), np.zeros(3))


def wavy(x, y, waves=40, seed=0):
    """A texture that is known between the pixels too: waves of 8 to 40 px in all directions, 0 to 255."""
    random = np.random.default_rng(seed)
    lengths, directions = np.exp(random.uniform(np.log(8), np.log(40), waves)), random.uniform(0, np.pi, waves)
    total = np.zeros(np.broadcast(x, y).shape)
    for length, direction, phase in zip(lengths, directions, random.uniform(0, 2 * np.pi, waves), strict=True):
        total += np.sin(2 * np.pi * (x * np.cos(direction) + y * np.sin(direction)) / length + phase)
    return np.clip(127.5 + 15 * total, 0, 255)


def wavy_image(width=200, height=160):
    y, x = np.mgrid[:height, :width]
    return wavy(x, y).astype(np.float32)


@pytest.mark.parametrize(("width", "height"), [(641, 577), (640, 574)])
@pytest.mark.parametrize(
    ("size", "level"),
    [(size, level) for size in (3, 4) for level in range(7)]
    + [(size, level) for size in (7, 8) for level in range(5)]
    + [(size, level) for size in (32, 33) for level in range(3)],
)
def test_a_ramp_is_sampled_exactly_near_both_borders_and_in_the_middle(size, level, width, height):
    """At every level that has a pixel which no border has touched.

    pyrDown mirrors the image at its border. A ramp's mirror image is no ramp, and the second pixel of a level is the
    last that the mirror reaches: from three pixels of the level on, blurring leaves a ramp as it is.
    """
    margin = 3.0 * 2**level if level else 0.0
    frames = at_level(level, size, np.full(2, margin), np.array([width, height]) - 1.0 - margin)
    where = places(frames, size)
    if level < 6:
        assert where.min() >= margin  # all samples of all three frames are judged
    clear = ((where >= margin) & (where <= np.array([width, height]) - 1 - margin)).all(-1)
    assert clear.any((1, 2)).all()
    error = np.abs(extract_patches(ramp(width, height), frames, size) - where @ [1, 2])
    assert error[clear].max() < ROUNDING


@pytest.mark.parametrize("step", [0.05, 0.3, 0.7, 1.0, 1.4, 1.42, 1.9, 2.8, 2.9, 5.6, 5.7, 11.0, 12.0])
def test_positions_do_not_jump_where_the_level_changes(step):
    """Levels change at 2^(l + 1/2); a level that stood half a pixel off would show as 0.5 to 8 on the ramp."""
    frames = Frames.turned_squares(np.array([[320.0, 288.0]]), np.array([step * 8]), np.array([0.4]))
    expected = places(frames, 16) @ [1, 2]
    assert np.abs(extract_patches(ramp(641, 577), frames, 16) - expected).max() < ROUNDING


def level_by_hand(image, level):
    """Blurred by 1 4 6 4 1 along both axes and halved; the border is mirrored, as far as anyone looks there."""
    for _ in range(level):
        padded = np.pad(image.astype(np.float64), 2, mode="reflect")
        rows = sum(w * padded[i : i + len(image)] for i, w in enumerate((1, 4, 6, 4, 1))) / 16
        blurred = sum(w * rows[:, i : i + image.shape[1]] for i, w in enumerate((1, 4, 6, 4, 1))) / 16
        image = blurred[::2, ::2]
    return image


def linearly(image, x, y):
    """Between four pixels, by hand."""
    i, j = np.floor(x).astype(int), np.floor(y).astype(int)
    a, b = x - i, y - j
    top, bottom = ((1 - a) * image[row, i] + a * image[row, i + 1] for row in (j, j + 1))
    return (1 - b) * top + b * bottom


@pytest.mark.parametrize(
    ("step", "level"), [(0.3, 0), (1.0, 0), (1.4, 0), (1.43, 1), (2.0, 1), (2.8, 1), (2.85, 2), (4.0, 2), (5.6, 2)]
)
def test_the_level_is_the_one_whose_pixels_are_nearest_to_the_samples(step, level):
    """On white noise, where every level has other values; steps on both sides of 2^(l + 1/2)."""
    noise = np.random.default_rng(0).uniform(0, 255, (160, 200)).astype(np.float32)
    frames = Frames.turned_squares(np.array([[99.3, 80.6]]), np.array([step * 8]), np.array([0.4]))
    x, y = np.moveaxis(places(frames, 16)[0], -1, 0) / 2**level
    expected = linearly(level_by_hand(noise, level), x, y)
    # float32 coordinates of up to 200 are right to 1e-5, and neighbours differ by up to 255 gray levels
    assert np.abs(extract_patches(noise, frames, 16)[0] - expected).max() < 1e-2


@pytest.mark.parametrize("step", [16.0, 32.0, 1000.0])
def test_the_last_level_has_four_pixels_along_the_shorter_side(step):
    """Of 64 x 80 pixels that is level 4, also for frames that ask for a higher one."""
    noise = np.random.default_rng(0).uniform(0, 255, (64, 80)).astype(np.float32)
    frames = Frames(np.array([[40.0, 24.0]]), np.array([np.eye(2) * step / 2]))
    expected = linearly(level_by_hand(noise, 4), np.array([40 / 16]), np.array([24 / 16]))
    assert extract_patches(noise, frames, 1)[0, 0] == pytest.approx(expected, abs=1e-2)


@pytest.mark.parametrize("size", [7, 8])
def test_outside_the_image_the_border_is_repeated(size):
    width, height = 40, 30
    corners = np.array([[0.0, 0.0], [39.0, 0.0], [39.0, 29.0], [0.0, 29.0], [-500.0, 12.0], [1e6, 12.0]])
    frames = Frames.turned_squares(corners, np.full(6, size / 2), np.full(6, 0.5))
    expected = np.clip(places(frames, size), 0, [width - 1, height - 1]) @ [1, 2]
    assert np.abs(extract_patches(ramp(width, height), frames, size) - expected).max() < ROUNDING


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("size", [1, 5, 31, 65])
def test_an_upright_frame_on_a_pixel_is_a_crop(size, dtype):
    """Of odd size, A = (size / 2) I: every sample falls on a pixel, and comes back bit for bit."""
    image = np.random.default_rng(0).integers(0, 256, (90, 120)).astype(dtype)
    x, y, reach = 50, 40, size // 2
    patch = extract_patches(image, Frames(np.array([[x, y]]), np.array([np.eye(2) * size / 2])), size)[0]
    assert patch.dtype == extract_patches(image, UPRIGHT[:0], size).dtype == dtype
    assert (patch == image[y - reach : y + reach + 1, x - reach : x + reach + 1]).all()


@pytest.mark.parametrize("size", [31, 32])
@pytest.mark.parametrize("step", [0.6, 1.0, 3.7])
def test_turning_the_frame_turns_the_patch(size, step):
    """Towards +y, clockwise on the screen, the patch's columns run down the image: np.rot90 turns it back."""
    angles = np.array([0, 1, 2, 3]) * np.pi / 2 + 0.2
    frames = Frames.turned_squares(np.full((4, 2), (97.3, 81.6)), np.full(4, step * size / 2), angles)
    patches = extract_patches(wavy_image(), frames, size)
    for turns in range(4):
        assert np.abs(np.rot90(patches[0], turns) - patches[turns]).max() < 0.01  # the same samples, to rounding
    assert np.abs(patches[1] - patches[0]).max() > 20


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("period", [2, 4])
def test_fine_stripes_vanish_in_a_large_frame(period, dtype):
    """Samples 8 px apart would hit the stripes at black or white; what is left is their mean."""
    stripes = np.zeros((400, 400), dtype)
    stripes[:, np.arange(400) % period < period // 2] = 255
    frames = Frames.turned_squares(np.array([[200.0, 200.0], [198.7, 201.1]]), np.full(2, 128.0), np.array([0.0, 0.3]))
    patches = extract_patches(stripes, frames, 32).astype(np.float64)
    assert np.abs(patches - 127.5).max() < 3  # uint8 rounds at each of the three levels
    small = extract_patches(stripes, Frames(frames.centers[:1], np.eye(2)[None] * 15.5), 31)
    assert small.min() == 0  # at the image's own scale they are still there
    assert small.max() == 255


@pytest.mark.parametrize(("step", "levels"), [(0.4, 0), (1.0, 0), (2.2, 1), (4.5, 2)])
def test_bytes_and_floats_agree_to_rounding(step, levels):
    """Half a gray level for each blurred level and for the patch itself."""
    image = np.round(wavy_image()).astype(np.uint8)
    random = np.random.default_rng(0)
    frames = Frames.turned_squares(
        random.uniform(60, 110, (20, 2)), np.full(20, step * 8), random.uniform(-np.pi, np.pi, 20)
    )
    floats = extract_patches(image.astype(np.float32), frames, 16)
    assert np.abs(extract_patches(image, frames, 16) - floats).max() <= 0.5 * (levels + 1) + 0.01


def kornias(image, frames, size):
    kornia_feature = pytest.importorskip("kornia.feature")
    lafs = np.concatenate([frames.shapes, frames.centers[..., None]], 2)
    tensors = (torch.from_numpy(values).float()[None] for values in (image[None], lafs))
    return kornia_feature.extract_patches_from_pyramid(*tensors, size)[0, :, 0].numpy()


def frames_with_steps(least, most, size, k=40):
    random = np.random.default_rng(0)
    centers = np.column_stack([random.uniform(65, 135, k), random.uniform(65, 95, k)])
    frames = Frames.turned_squares(centers, random.uniform(least, most, k) * size / 2, random.uniform(-3, 3, k))
    return Frames(frames.centers, frames.shapes @ np.diag([1.1, 1 / 1.1]))


@pytest.mark.parametrize("size", [16, 33])
def test_small_frames_equal_kornias(size):
    """Steps below 0.7: both sample the image itself.

    kornia's coordinates are float32 from -1 to 1: 3e-5 px in this image, times at most 30 gray levels a pixel.
    """
    frames, image = frames_with_steps(0.2, 0.7, size), cv2.GaussianBlur(wavy_image(), (0, 0), 2)
    assert np.abs(extract_patches(image, frames, size) - kornias(image, frames, size)).max() < 1e-3
    in_bytes = np.round(image).astype(np.uint8)
    ours = extract_patches(in_bytes, frames, size)
    assert np.abs(ours - kornias(in_bytes, frames, size)).max() < 0.51  # kornia does not round


@pytest.mark.parametrize("step", [2.0, 4.0])
def test_large_frames_stand_where_kornias_do(step):
    """kornia rounds the level down, so steps stay below sqrt 2 of ours; it also blurs more, by averaging four pixels.

    On an image smooth enough for that not to matter, patches half a pixel of the level off are seven times further.
    """
    noise = np.random.default_rng(0).uniform(0, 255, (160, 200)).astype(np.float32)
    smooth = cv2.GaussianBlur(noise, (0, 0), 4 * step)
    smooth = (smooth - smooth.mean()) / smooth.std() * 40 + 127
    frames = frames_with_steps(step, step * 1.35, 16)
    theirs = kornias(smooth, frames, 16)
    off = np.abs(extract_patches(smooth, frames, 16) - theirs).mean()
    shifted = extract_patches(smooth, Frames(frames.centers + step / 2, frames.shapes), 16)
    assert off < 0.5
    assert np.abs(shifted - theirs).mean() > 5 * off


def test_the_image_may_be_a_view_and_is_left_alone():
    whole = np.round(wavy_image()).astype(np.uint8)
    copy = whole.copy()
    frames = frames_with_steps(0.5, 4, 16, 5)
    view = whole[::-1, ::2]
    assert (extract_patches(view, frames, 16) == extract_patches(view.copy(), frames, 16)).all()
    assert (whole == copy).all()


def test_tiny_images_and_regions():
    """A pixel, and frames far larger than the image or of no area at all, give the gray value that is there."""
    frames = Frames(np.array([[0.0, 0.0]] * 2), np.array([np.eye(2) * 1000, np.zeros((2, 2))]))
    assert (extract_patches(np.full((1, 1), 77, np.uint8), frames, 8) == 77).all()
    assert (extract_patches(np.full((1, 50), 77, np.uint8), frames, 8) == 77).all()


@pytest.mark.parametrize("size", [16, 33, 64])
def test_on_a_device_patches_are_the_same_within_rounding(size):
    """On all levels, across the border and far outside; OpenCV before 5 rounds positions to 1/32 of a pixel."""
    image = np.clip(wavy_image(333, 222), 0, 255).astype(np.uint8)
    random = np.random.default_rng(0)
    centers = random.uniform(-30, 350, (60, 2))
    centers[0] = 1e7, -1e7
    frames = Frames.turned_squares(centers, 2.0 ** random.uniform(1, 8, 60), random.uniform(-4, 4, 60))
    expected = extract_patches(image, frames, size).astype(int)
    found = extract_patches_on(torch.from_numpy(image), frames, size).numpy()
    assert found.dtype == np.uint8
    difference = np.abs(found - expected)
    is_exact = int(cv2.__version__.split(".")[0]) >= 5
    assert difference.max() <= (1 if is_exact else 8)
    assert difference.mean() < (1e-3 if is_exact else 0.2)
    assert extract_patches_on(torch.from_numpy(image), frames[:0], size).shape == (0, size, size)
    with refuses(ArgumentError):
        extract_patches_on(torch.zeros(3, 4, 5), frames, size)


BLACK, UPRIGHT = np.zeros((8, 8), np.uint8), Frames(np.zeros((1, 2)), np.eye(2)[None])


@pytest.mark.parametrize(
    ("image", "frames", "size"),
    [
        *((BLACK.astype(dtype), UPRIGHT, 8) for dtype in (np.float64, np.uint16, bool)),
        *((np.zeros(shape, np.uint8), UPRIGHT, 8) for shape in ((8, 8, 3), (1, 8, 8), (0, 8))),
        *((BLACK, Frames(np.array([[bad, 0]]), UPRIGHT.shapes), 8) for bad in (np.nan, np.inf)),
        *((BLACK, Frames(np.zeros((1, 2)), np.full((1, 2, 2), bad)), 8) for bad in (np.nan, np.inf)),
        *((BLACK, UPRIGHT, size) for size in (0, -1)),
    ],
)
def test_what_is_refused(image, frames, size):
    with refuses(ArgumentError):
        extract_patches(image, frames, size)
