import numpy as np
import pytest
import torch
from PIL import Image

from matchkernel.plots.canvas import save_png
from matchkernel.plots.conventions_sheet import encoding_order
from matchkernel.plots.kernels import (
    POINTS,
    SHIFT,
    TURN,
    draw_kernel_curves,
    invariance_curves,
    kernel_pictures,
    position_kernels,
)
from matchkernel.runtime.positions import fourier_coefficients


def is_drawn(path):
    """A picture of some size with ink in it."""
    with Image.open(path) as image:
        gray = np.asarray(image.convert("L"))
    return min(gray.shape) > 200 and gray.std() > 10


@pytest.mark.slow
def test_kernel_pictures_are_drawn_and_repeatable(tmp_path):
    first, others = kernel_pictures(tmp_path / "a"), kernel_pictures(tmp_path / "b", kappa=3.0, s=1)
    assert [path.name for path in first] == ["kernels.png", "position_kernels.png", "invariance.png"]
    assert all(is_drawn(path) for path in first)
    assert all(one.read_bytes() != other.read_bytes() for one, other in zip(first, others, strict=True))
    save_png(draw_kernel_curves(), tmp_path / "again.png")
    assert (tmp_path / "again.png").read_bytes() == first[0].read_bytes()


def test_kronecker_order_is_channel_then_first_then_second():
    assert np.array_equal(encoding_order(), np.arange(18).reshape(2, 3, 3))


def test_more_frequencies_are_nearer_to_the_exact_kernel():
    for axes in draw_kernel_curves().axes:
        _, *truncated, exact = (line.get_ydata() for line in axes.lines)
        assert exact.max() == pytest.approx(1)
        errors = [np.abs(values - exact).max() for values in truncated]
        assert errors == sorted(errors, reverse=True)


def test_position_kernels_peak_at_the_position():
    maps = position_kernels(fourier_coefficients(8, 2))
    axis = (np.arange(64) + 0.5) / 32 - 1
    for system in maps:
        for values, (u, v) in zip(maps[system], POINTS, strict=True):
            row, column = np.unravel_index(values.argmax(), values.shape)
            if (u, v) != (0, 0):  # the polar kernel of the very centre has a direction
                assert abs(axis[column] - u) < 0.05
                assert abs(axis[row] - v) < 0.05


def test_each_system_ignores_p_under_its_own_change_only():
    curves = invariance_curves(fourier_coefficients(8, 2))
    spread = {key: np.ptp(values, axis=0).max() for key, values in curves.items()}
    assert spread["cartesian", SHIFT] < 1e-12
    assert spread["polar", TURN] < 1e-12
    assert spread["cartesian", TURN] > 0.1
    assert spread["polar", SHIFT] > 0.1
    assert torch.isfinite(torch.tensor([*spread.values()])).all()
