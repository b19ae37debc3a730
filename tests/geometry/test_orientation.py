"""Histograms of gradient directions and their peaks."""

import numpy as np
import pytest

from matchkernel.geometry import orientation
from matchkernel.geometry.frames import Frames
from matchkernel.geometry.orientation import direction_histograms, dominant_angles


def region(sigma, degrees=0.0, center=(50.3, 49.6)):
    return Frames.turned_squares(np.array([center]), np.array([sigma]), np.deg2rad([degrees]))


def ramp(degrees, side=101):
    """Gray that grows in a direction, from +x towards +y."""
    y, x = np.mgrid[:side, :side] - side // 2
    angle = np.deg2rad(degrees)
    return (127 + x * np.cos(angle) + y * np.sin(angle)).astype(np.float32)


@pytest.mark.parametrize("degrees", range(0, 360, 30))
@pytest.mark.parametrize("sigma", [1.2, 3.0])
def test_the_highest_bin_is_where_the_gradient_points(degrees, sigma):
    histogram = direction_histograms(ramp(degrees), region(sigma))
    assert histogram.shape == (1, 36)
    assert histogram[0].argmax() == degrees // 10
    assert np.rad2deg(dominant_angles(ramp(degrees), region(sigma)))[0] == pytest.approx(degrees, abs=0.5)


@pytest.mark.parametrize("turn", [20, 100, 350])
def test_an_angle_is_measured_from_the_patches_own_axis(turn):
    found = np.rad2deg(dominant_angles(ramp(130), region(2.0, turn)))[0]
    assert (found + turn - 130 + 180) % 360 - 180 == pytest.approx(0, abs=1)


def test_a_stretched_region_is_turned_as_its_patch_shows_it():
    """Gray that grows along (1, 1), in a patch that is twice as wide as high: along (2, 1) there."""
    frames = Frames(np.array([[50.0, 50.0]]), 2 * np.array([[[2**0.5, 0], [0, 0.5**0.5]]]))
    assert np.rad2deg(dominant_angles(ramp(45), frames))[0] == pytest.approx(np.rad2deg(np.arctan2(1, 2)), abs=1)


def test_a_flat_region_and_no_keypoint():
    flat = np.full((40, 40), 90, np.uint8)
    assert np.abs(direction_histograms(flat, region(1.0, center=(5, 5)))).max() < 1e-3
    assert np.isfinite(dominant_angles(flat, region(1.0, center=(5, 5)))).all()
    assert direction_histograms(flat, region(1.0)[[]]).shape == (0, 36)
    assert dominant_angles(flat, region(1.0)[[]]).shape == (0,)


def test_frames_in_parts_give_the_same(monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (80, 80), np.uint8)
    frames = Frames.turned_squares(np.random.default_rng(1).uniform(0, 80, (20, 2)), np.full(20, 2.0), np.zeros(20))
    whole = dominant_angles(noise, frames)
    monkeypatch.setattr(orientation, "FRAMES_AT_A_TIME", 7)
    assert dominant_angles(noise, frames) == pytest.approx(whole, abs=1e-5)
