"""Deformable convolution against loops, ordinary convolution, and torchvision where it is installed."""

import numpy as np
import pytest
import torch

from matchkernel.evaluation.photos.deformable import deform_conv2d


def slow(image, offset, weight, bias, padding, mask):
    """By loops over everything, as the papers define it; padding is (rows, columns)."""
    B, C, H, W = image.shape
    D, _, h, w = weight.shape
    groups = offset.shape[1] // (2 * h * w)
    out = np.zeros((B, D, *offset.shape[2:]))
    for b, d, y, x in np.ndindex(*out.shape):
        total = bias[d]
        for c, i, j in np.ndindex(C, h, w):
            place = (c * groups // C) * h * w + i * w + j
            at_y = y + i - padding[0] + offset[b, 2 * place, y, x]
            at_x = x + j - padding[1] + offset[b, 2 * place + 1, y, x]
            value = 0.0
            for row in (int(np.floor(at_y)), int(np.floor(at_y)) + 1):
                for column in (int(np.floor(at_x)), int(np.floor(at_x)) + 1):
                    if 0 <= row < H and 0 <= column < W:
                        value += image[b, c, row, column] * (1 - abs(at_y - row)) * (1 - abs(at_x - column))
            total += weight[d, c, i, j] * value * mask[b, place, y, x]
        out[b, d, y, x] = total
    return out


def drawn(B, C, H, W, D, h, w, padding, groups, spread):
    generator = np.random.default_rng(0)
    rows, columns = H + 2 * padding[0] - h + 1, W + 2 * padding[1] - w + 1
    shapes = {
        "image": (B, C, H, W),
        "offset": (B, 2 * groups * h * w, rows, columns),
        "weight": (D, C, h, w),
        "bias": (D,),
        "mask": (B, groups * h * w, rows, columns),
    }
    made = {name: generator.normal(size=shape) for name, shape in shapes.items()}
    made["offset"] *= spread  # far enough to leave the image
    return made


@pytest.mark.parametrize(
    ("B", "C", "H", "W", "D", "h", "w", "padding", "groups", "spread"),
    [
        (2, 2, 5, 6, 3, 3, 3, (1, 1), 1, 1.0),
        (1, 4, 4, 7, 2, 3, 2, (0, 2), 2, 3.0),
        (1, 1, 1, 1, 1, 3, 3, (1, 1), 1, 0.5),  # one pixel
        (1, 3, 6, 5, 2, 1, 1, (0, 0), 1, 2.0),
    ],
)
def test_it_is_the_sum_of_the_papers(B, C, H, W, D, h, w, padding, groups, spread):
    made = drawn(B, C, H, W, D, h, w, padding, groups, spread)
    tensors = [torch.from_numpy(made[name]) for name in ("image", "offset", "weight", "bias")]
    found = deform_conv2d(*tensors, padding=padding, mask=torch.from_numpy(made["mask"]))
    assert found.numpy() == pytest.approx(slow(*list(made.values())[:4], padding, made["mask"]), abs=1e-12)
    without = deform_conv2d(*tensors[:3], padding=padding)
    ones = np.ones_like(made["mask"])
    expected = slow(made["image"], made["offset"], made["weight"], np.zeros(D), padding, ones)
    assert without.numpy() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("padding", [0, 1, (1, 2)])
def test_without_offsets_it_is_a_convolution(padding):
    image, weight, bias = (torch.randn(*shape, generator=torch.Generator().manual_seed(0)) for shape in (
        (2, 16, 20, 30), (8, 16, 3, 3), (8,)
    ))  # fmt: skip
    expected = torch.conv2d(image, weight, bias, padding=padding)
    offset = torch.zeros(2, 18, *expected.shape[2:])
    assert deform_conv2d(image, offset, weight, bias, padding).numpy() == pytest.approx(expected.numpy(), abs=1e-4)


def test_an_offset_of_whole_pixels_moves_the_image():
    image, weight = torch.arange(30.0).reshape(1, 1, 5, 6), torch.ones(1, 1, 1, 1)
    offset = torch.tensor([1.0, -2.0]).reshape(1, 2, 1, 1).expand(1, 2, 5, 6)  # one row down, two columns to the left
    found = deform_conv2d(image, offset, weight)[0, 0]
    assert torch.allclose(found[:4, 2:], image[0, 0, 1:, :4], atol=1e-4)
    assert found[4].abs().max() < 1e-4
    assert found[:, :2].abs().max() < 1e-4


def test_it_is_torchvisions():
    try:
        from torchvision.ops import deform_conv2d as reference
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"no torchvision that fits this torch: {str(error)[:80]}")
    made = drawn(2, 8, 15, 17, 6, 3, 3, (1, 1), 2, 2.0)
    image, offset, weight, bias, mask = (torch.from_numpy(values).float() for values in made.values())
    expected = reference(image, offset, weight, bias, padding=1, mask=mask)
    assert deform_conv2d(image, offset, weight, bias, 1, mask).numpy() == pytest.approx(expected.numpy(), abs=1e-4)
