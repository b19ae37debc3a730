"""Histograms of gradient directions and their peaks."""

import numpy as np
import pytest

from matchkernel.geometry.orientation import direction_histograms, peak_heights


def ramp(degrees, side=101):
    """Gray that grows in a direction, from +x towards +y."""
    y, x = np.mgrid[:side, :side] - side // 2
    angle = np.deg2rad(degrees)
    return (127 + x * np.cos(angle) + y * np.sin(angle)).astype(np.float32)


@pytest.mark.parametrize("degrees", range(0, 360, 30))
@pytest.mark.parametrize("sigma", [1.2, 3.0])
def test_the_highest_bin_is_where_the_gradient_points(degrees, sigma):
    histogram = direction_histograms(ramp(degrees), np.array([[50.3, 49.6]]), np.array([sigma]))
    assert histogram.shape == (1, 36)
    assert histogram[0].argmax() == degrees // 10
    heights = [peak_heights(histogram, np.array([float(angle)]))[0] for angle in range(360)]
    assert np.argmax(heights) == degrees


def test_a_height_lies_between_those_of_its_neighbouring_bins():
    histogram = np.arange(36.0)[None]
    assert peak_heights(histogram, np.array([44.0])) == pytest.approx([4.4])
    assert peak_heights(histogram, np.array([355.0])) == pytest.approx([17.5])  # between bins 35 and 0


def test_a_flat_region_and_no_keypoint():
    assert np.abs(direction_histograms(np.full((40, 40), 90, np.uint8), np.array([[5.0, 5]]), np.ones(1))).max() < 1e-3
    assert direction_histograms(np.zeros((40, 40), np.uint8), np.zeros((0, 2)), np.zeros(0)).shape == (0, 36)
